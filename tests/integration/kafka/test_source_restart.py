"""A source of topics whose broker restarts."""

import asyncio
import os
from pathlib import Path

import pytest

from diem.kafka.config import KafkaOptions
from tests.support.kafka import killed
from tests.support.kafka_source import create_topic, produce, reading, table_of
from tests.support.local_cluster import LocalCluster
from tests.support.patience import PATIENCE_S

pytestmark = pytest.mark.skipif("RUN_CLUSTER" not in os.environ, reason="it restarts a broker: make cluster")


async def test_a_restarted_broker_is_read_further(
    own_broker: LocalCluster, own_broker_options: KafkaOptions, tmp_path: Path
) -> None:
    topic = await create_topic(own_broker_options, "orders", 2)
    await produce(own_broker_options, topic, [("a", 1)])
    async with reading(table_of(own_broker_options, topic), tmp_path) as running:
        await running.caught_up()
        async with killed(own_broker):
            await running.failed("Kafka at ")
        await produce(own_broker_options, topic, [("a", 2), ("b", 2)])
        async with asyncio.timeout(PATIENCE_S):
            while await running.content("/t/b") is None:
                await asyncio.sleep(0.02)
        await running.caught_up()
        assert (await running.content("/t/a"), running.intake.records) == (2, 3)
