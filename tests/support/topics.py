"""Topics altered as an operator does."""

import asyncio
import time
from collections.abc import Mapping

from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from diem.kafka.client import admin_client, connected_client
from diem.kafka.config import KafkaOptions
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
