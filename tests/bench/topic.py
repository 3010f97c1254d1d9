"""Fills an updates topic fast: whole batches of real update records, straight to its partitions."""

import asyncio
import itertools
from collections import deque
from typing import Final

from aiokafka import AIOKafkaProducer

from diem.kafka.config import KafkaOptions
from diem.kafka.topics import ensure
from diem.protocol.update import encode

PARTITIONS: Final = 12
BATCH: Final = 600
"""Records: less than the topic takes at once."""
UNDER_WAY: Final = 12
START: Final = 1_750_000_000_000


async def fill(options: KafkaOptions, records: int, endpoints: int) -> dict[str, int]:
    """Write ``records`` of about 140 bytes, the endpoints in turn; returns the end of each partition by name."""
    await ensure(options)
    topic = options.names.updates
    keys = [
        itertools.cycle([f"/market/day-ahead/prices/zone-{n:06d}" for n in range(part, endpoints, PARTITIONS)])
        for part in range(PARTITIONS)
    ]
    ends = [0] * PARTITIONS
    pending: deque[asyncio.Future[object]] = deque()
    arguments = options.client_arguments()
    async with AIOKafkaProducer(**arguments, enable_idempotence=True, acks="all", max_batch_size=131072) as producer:
        version, left = START, records
        for part in itertools.cycle(range(PARTITIONS)):
            batch = producer.create_batch()
            count = min(BATCH, left)
            for name in itertools.islice(keys[part], count):
                version += 1
                added = batch.append(key=name.encode(), value=encode(name, version, version), timestamp=None)
                assert added is not None, "the batch is full"
            batch.close()
            pending.append(await producer.send_batch(batch, topic, partition=part))
            ends[part] += count
            left -= count
            if len(pending) > UNDER_WAY:
                await pending.popleft()
            if not left:
                break
        await asyncio.gather(*pending)
    return {f"{topic}/{part}": end for part, end in enumerate(ends)}
