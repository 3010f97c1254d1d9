"""Gives the updates topic the partitions that a plan asks for."""

import asyncio
from typing import Final

from aiokafka.admin import NewPartitions
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import KafkaError

from diem.kafka.client import administering, connected
from diem.kafka.config import KafkaOptions
from diem.kafka.errors import KafkaUnavailable
from diem.kafka.metadata import describe

WITHIN_S: Final = 10.0


async def grow(options: KafkaOptions, partitions: int) -> None:
    """Give the updates topic as many partitions, if it has fewer.

    A partition more moves nobody: only entries name it.

    Raises:
        KafkaUnavailable: they are not there within 10 s.
    """
    topic = options.names.updates
    why = f"{topic} did not get {partitions} partitions"
    try:
        async with connected(options) as client, asyncio.timeout(WITHIN_S):
            if not await _has(client, topic, partitions):
                async with administering(options) as admin:
                    await admin.create_partitions({topic: NewPartitions(partitions)})
            # Whoever is told of them is to find them.
            while not await _has(client, topic, partitions):  # noqa: ASYNC110 - Kafka tells nobody
                await asyncio.sleep(0.1)
    except (KafkaError, TimeoutError) as error:
        raise KafkaUnavailable(options.bootstrap_servers, f"{why}: {type(error).__name__} {error}") from error


async def _has(client: AIOKafkaClient, topic: str, partitions: int) -> bool:
    found = (await describe(client, topic)).topics.get(topic)
    return found is not None and sum(part.leader >= 0 for part in found.partitions.values()) >= partitions
