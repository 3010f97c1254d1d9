"""A broker that hangs: it keeps its connections and answers nothing, while others lead what it led."""

import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from deploy.kafka.cluster import LocalCluster
from deploy.kafka.program import Program
from diem.kafka.connecting import connected
from diem.kafka.metadata import describe
from diem.kafka.options import KafkaOptions
from services.data.publisher import Publisher
from tests.support.bridging import Heard, bridging, until
from tests.support.published import MemoryStore, publishing


@pytest.fixture
async def options(tmp_path: Path, kafka_program: Program) -> AsyncIterator[tuple[LocalCluster, KafkaOptions]]:
    cluster = LocalCluster(tmp_path / "kafka", brokers=3, prepare=lambda: kafka_program)
    await cluster.start()
    try:
        yield cluster, KafkaOptions(cluster.bootstrap_servers, topic_prefix="h.", partitions=6, replication=3)
    finally:
        await cluster.stop()


async def leader_of_most(options: KafkaOptions) -> int:
    async with connected(options) as client:
        topic = (await describe(client, options.names.updates)).topics[options.names.updates]
    leaders = [partition.leader for partition in topic.partitions.values()]
    return max(set(leaders), key=leaders.count)


async def test_updates_pass_by_a_broker_that_hangs(options: tuple[LocalCluster, KafkaOptions], tmp_path: Path) -> None:
    cluster, where = options
    names = [f"/e/{n}" for n in range(60)]
    store = MemoryStore()
    store.put(*names)
    async with publishing(store, where) as publisher, bridging(tmp_path, where, marks=True) as bridge:
        server = Heard()
        async with bridge.reading(server):
            await until(lambda: server.state.caught_up and _all_told(server, store))
            pid = cluster.pid(await leader_of_most(where))
            os.kill(pid, signal.SIGSTOP)
            try:
                await _everything_passes(publisher, server, store, names)
            finally:
                os.kill(pid, signal.SIGCONT)
            beats = len(server.beats)
            await until(lambda: len(server.beats) > beats + 1)


async def _everything_passes(publisher: Publisher, server: Heard, store: MemoryStore, names: list[str]) -> None:
    for _ in range(2):
        store.put(*names)
        publisher.changed()
        await until(lambda: publisher.lag == 0 and _all_told(server, store))


def _all_told(server: Heard, store: MemoryStore) -> bool:
    return {name: held.version for name, held in server.state.retained.items()} == store.versions
