"""A compacted topic of other programs, as they make and write it: with their own partitioner, and without DIEM's."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import orjson
from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.admin import NewPartitions, NewTopic, RecordsToDelete

from diem.kafka.client import admin_client, connected_client
from diem.kafka.config import KafkaOptions
from diem.kafka.metadata import describe
from tests.support.patience import PATIENCE_S
from tests.support.topics import altered


class CompanyTopic:
    """A topic with JSON documents by their key."""

    def __init__(self, options: KafkaOptions, name: str, partitions: int = 4) -> None:
        self.options = options
        self.name = name
        self.partitions = partitions
        self._producer: AIOKafkaProducer | None = None

    async def create(self, **config: str) -> None:
        """Create it, compacted unless ``config`` has another policy."""
        settings = {"cleanup.policy": "compact", **{name.replace("_", "."): value for name, value in config.items()}}
        async with admin_client(self.options) as admin:
            await admin.create_topics([NewTopic(self.name, self.partitions, 1, topic_configs=settings)])
        await self._until(exists=True)

    async def delete(self) -> None:
        """Delete it, and wait until it is gone."""
        await self.close()
        async with admin_client(self.options) as admin:
            await admin.delete_topics([self.name])
        await self._until(exists=False)

    async def _until(self, *, exists: bool) -> None:
        async with connected_client(self.options) as client, asyncio.timeout(PATIENCE_S):
            while exists is not (self.name in (await describe(client, self.name)).topics):
                await asyncio.sleep(0.05)

    async def grow(self, partitions: int) -> None:
        """Add partitions; this producer hears of them at once."""
        await self.close()
        async with admin_client(self.options) as admin:
            await admin.create_partitions({self.name: NewPartitions(partitions)})
        self.partitions = partitions

    async def cut(self, partition: int, before: int) -> None:
        """Delete the records of a partition before an offset."""
        # Brokers refuse this for topics that are only compacted.
        async with (
            altered(self.options, {"cleanup.policy": "compact,delete"}, self.name),
            admin_client(self.options) as admin,
        ):
            await admin.delete_records({TopicPartition(self.name, partition): RecordsToDelete(before)})

    async def put(self, key: str, document: Any, partition: int | None = None) -> int:
        """Write a document, None deletes; return the offset."""
        value = None if document is None else orjson.dumps(document)
        return await self.write(key.encode(), value, partition)

    async def write(self, key: bytes, value: bytes | None, partition: int | None = None) -> int:
        """Write a record; return its offset."""
        if self._producer is None:
            self._producer = AIOKafkaProducer(**self.options.client_arguments(), enable_idempotence=True, acks="all")
            await self._producer.start()
            async with asyncio.timeout(PATIENCE_S):
                while len(await self._producer.partitions_for(self.name)) < self.partitions:
                    await self._producer.client.force_metadata_update()
                    await asyncio.sleep(0.05)
        sent = await self._producer.send_and_wait(self.name, value, key, partition)
        return int(sent.offset)

    async def close(self) -> None:
        """Close the producer; the next write opens another one."""
        if self._producer is not None:
            await self._producer.stop()
            self._producer = None


@contextlib.asynccontextmanager
async def company_topic(options: KafkaOptions, name: str, partitions: int = 4) -> AsyncIterator[CompanyTopic]:
    """Create a topic."""
    topic = CompanyTopic(options, name, partitions)
    await topic.create()
    try:
        yield topic
    finally:
        await topic.close()
