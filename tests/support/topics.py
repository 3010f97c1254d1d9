"""Topics altered as an operator does."""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from aiokafka import TopicPartition
from aiokafka.admin import RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from diem.kafka.client import admin_client, connected_client
from diem.kafka.config import KafkaOptions
from diem.kafka.metadata import describe
from diem.kafka.topic_config import UPDATES_CONFIG
from diem.kafka.topics import settings_in_force
from tests.support.patience import PATIENCE_S


async def alter_topic(options: KafkaOptions, topic: str, config: Mapping[str, str]) -> None:
    """Set settings of a topic; they are in force afterwards.

    The controller answers before the brokers have learnt of a change.
    """
    async with admin_client(options) as admin:
        await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, dict(config))])
    limit = time.monotonic() + PATIENCE_S
    async with connected_client(options) as client:
        while found := [
            each[topic] for each in await settings_in_force(client, topic) if not config.items() <= each[topic].items()
        ]:
            assert time.monotonic() < limit, (found, config)
            await asyncio.sleep(0.05)


@asynccontextmanager
async def altered(options: KafkaOptions, changes: Mapping[str, str], *topics: str) -> AsyncIterator[None]:
    """Alter compacted topics in this block, as an operator may by mistake."""
    async with connected_client(options) as client:
        found = (await settings_in_force(client, *topics))[0]
    own = {topic: {name: found[topic][name] for name in (*UPDATES_CONFIG, "min.insync.replicas")} for topic in topics}
    for topic, config in own.items():
        await alter_topic(options, topic, {**config, **changes})
    try:
        yield
    finally:
        for topic, config in own.items():
            await alter_topic(options, topic, config)


async def delete_records(options: KafkaOptions, *topics: str, before: int = -1) -> None:
    """Delete the records of topics before an offset of each partition, by default all; they are gone afterwards."""
    async with connected_client(options) as client:
        found = (await describe(client, *topics)).topics.values()
    parts = [TopicPartition(topic.name, number) for topic in found for number in topic.partitions]
    # Brokers refuse this for topics that are only compacted.
    async with altered(options, {"cleanup.policy": "compact,delete"}, *topics), admin_client(options) as admin:
        await admin.delete_records({part: RecordsToDelete(before_offset=before) for part in parts})
