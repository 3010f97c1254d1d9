"""A topic as the origin of records: documents of 1 KB with a number, and tombstones."""

import asyncio
import time
from collections import defaultdict
from pathlib import Path
from typing import Final

import orjson
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.producer.message_accumulator import BatchBuilder

from diem.kafka.config import KafkaOptions
from experiments.intake.oracle import Numbers
from tests.support.kafka_source import create_topic, producer
from tests.support.local_cluster import LocalCluster

PARTITIONS: Final = 12
DOCUMENT_BYTES: Final = 1024
TOMBSTONE_EVERY: Final = 20
BATCH_BYTES: Final = 128 * 1024


def document(number: int, key: str) -> bytes:
    """Return a document of :data:`DOCUMENT_BYTES` with a unique number."""
    fixed = {
        "n": number,
        "id": key,
        "customer": {"name": "Ann Example", "city": "Athens"},
        "lines": [{"sku": f"s{line}", "amount": line, "price": 1.5 * line} for line in range(8)],
    }
    text = orjson.dumps({**fixed, "note": ""})
    return text[:-2] + b"x" * (DOCUMENT_BYTES - len(text)) + b'"}'


class TopicOrigin:
    """A topic of an own broker."""

    prefix = "/orders/"

    def __init__(self, cluster: LocalCluster, name: str, *, keys: int, rate: int) -> None:
        self._cluster = cluster
        self._name = name
        self._keys = keys
        self._rate = rate
        self.topic = ""
        self.number = 0
        """Of the next record."""

    async def create(self) -> None:
        """Create the topic."""
        self.topic = await create_topic(self.options, self._name, PARTITIONS)

    @property
    def options(self) -> KafkaOptions:
        """Of the broker."""
        return KafkaOptions(self._cluster.bootstrap_servers, topic_prefix="intake.")

    @property
    def table(self) -> str:
        """The source's table."""
        return (
            '[[source]]\ntype = "kafka"\nname = "orders"\nendpoint = "/orders/{key}"\n'
            f'bootstrap_servers = "{self._cluster.bootstrap_servers}"\ntopics = ["{self.topic}"]\n'
        )

    def _record(self, number: int, *, tombstones: bool) -> tuple[int, bytes, bytes | None]:
        """Return partition, key and value; each key in turn has a tombstone, after a document."""
        turn, place = divmod(number, self._keys)
        key = f"order-{place}"
        gone = tombstones and (turn + place) % TOMBSTONE_EVERY == 0 and turn % 2 == 1
        return place % PARTITIONS, key.encode(), None if gone else document(number, key)

    async def send(self, made: AIOKafkaProducer, count: int, *, tombstones: bool = True) -> None:
        """Write the next records, a batch for each partition, without waiting for their acknowledgements."""
        batches: dict[int, BatchBuilder] = {}

        async def flush(partition: int) -> None:
            await made.send_batch(batches.pop(partition), self.topic, partition=partition)

        for number in range(self.number, self.number + count):
            partition, key, value = self._record(number, tombstones=tombstones)
            while (
                batches.setdefault(partition, made.create_batch()).append(key=key, value=value, timestamp=None) is None
            ):
                await flush(partition)
        self.number += count
        for partition in [*batches]:
            await flush(partition)

    async def write(self, ended: asyncio.Event) -> None:
        """Write at the rate until ``ended``; the client repeats what a restarting broker has not acknowledged."""
        more = {"enable_idempotence": True, "request_timeout_ms": 120_000, "max_batch_size": BATCH_BYTES}
        async with producer(self.options, **more) as made:
            began, before = time.monotonic(), self.number
            while not ended.is_set():
                due = int((time.monotonic() - began) * self._rate) - (self.number - before)
                await self.send(made, max(0, due))
                await asyncio.sleep(0.02)
            await made.flush()

    async def restart(self) -> None:
        """Kill the broker, and start it again."""
        self._cluster.kill(1)
        await self._cluster.restart(1)

    async def written(self) -> dict[str, Numbers]:
        """Return what the topic has."""
        found: dict[str, list[int | None]] = defaultdict(list)
        parts = [TopicPartition(self.topic, number) for number in range(PARTITIONS)]
        async with AIOKafkaConsumer(**self.options.client_arguments(), auto_offset_reset="earliest") as consumer:
            consumer.assign(parts)
            ends = await consumer.end_offsets(parts)
            while any([await consumer.position(part) < end for part, end in ends.items()]):
                for records in (await consumer.getmany(timeout_ms=1000)).values():
                    for record in records:
                        number = None if record.value is None else orjson.loads(record.value)["n"]
                        found[self.prefix + record.key.decode()].append(number)
        return dict(found)


async def started(folder: Path) -> LocalCluster:
    """Start a broker."""
    cluster = LocalCluster(folder)
    await cluster.start()
    return cluster
