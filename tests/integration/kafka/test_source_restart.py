"""A source of topics whose broker restarts, or whose partitions get other leaders."""

import asyncio
import contextlib
import sqlite3
from pathlib import Path

from deploy.kafka.program import KafkaProgram
from diem.kafka.config import KafkaOptions
from tests.support.kafka import killed
from tests.support.kafka_source import create_topic, produce, producer, reading, table_of
from tests.support.local_cluster import LocalCluster
from tests.support.patience import FACTOR, PATIENCE_S, until
from tests.support.required import in_cluster

pytestmark = in_cluster("it restarts a broker")


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


async def test_another_leader_is_read_further_with_every_record_once(
    kafka_program: KafkaProgram, tmp_path: Path
) -> None:
    directory = tmp_path / "kafka"
    async with LocalCluster(directory, 3, prepare=lambda: kafka_program, time_factor=FACTOR) as cluster:
        options = KafkaOptions(cluster.bootstrap_servers, topic_prefix="")
        topic = await create_topic(options, "orders", 6, replicas=3, min_insync_replicas="2")
        async with (
            reading(table_of(options, topic), tmp_path) as running,
            producer(options, enable_idempotence=True, acks="all") as made,
        ):
            for number in range(600):
                await made.send(topic, b"%d" % number, key=b"k%d" % (number % 60), partition=number % 6)
                if number in {200, 400}:
                    cluster.kill(1 + number // 200)
                    await until(lambda: running.intake.records > 0)
                    await cluster.restart(1 + number // 200)
                await asyncio.sleep(0.005)
            await made.flush()
            await until(lambda: running.intake.records == 600, within=2 * PATIENCE_S)
            await running.caught_up()
            assert [await running.content(f"/t/k{n}") for n in range(60)] == list(range(540, 600))
    rows = "SELECT endpoint FROM history UNION ALL SELECT endpoint FROM endpoints"
    with contextlib.closing(sqlite3.connect(tmp_path / "data.db")) as database:
        (count,) = database.execute(f"SELECT count(*) FROM ({rows}) WHERE endpoint LIKE '/t/k%'").fetchone()
    assert count == 600, "each record is a version"
