"""One of three brokers hangs or dies, while the others lead what it led, once from an older copy of it.

They are closed to others, as those of ``diem up --brokers 3``; ``make faults MODE=x`` has a whole system on them. A
broker that hangs keeps its connections and answers nothing. Each test leaves all three running.
"""

import contextlib
import os
import signal
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
import pytest_asyncio
from aiokafka.admin import NewTopic

from deploy.kafka.program import KafkaProgram
from deploy.topology.kafka_users import KafkaUser
from diem.kafka import topics
from diem.kafka.client import admin_client, close_all, connected_client
from diem.kafka.config import KafkaOptions
from diem.kafka.metadata import Partition, describe
from diem.kafka.topic_config import UPDATES_CONFIG
from services.data.publisher import Publisher
from tests.integration.kafka.membership import Member, members, serving
from tests.integration.kafka.test_cluster import TOPIC, consume, eventually, produce, where
from tests.integration.kafka.test_log_cut import Reader
from tests.support.bridge import FeedRecorder, running_bridge
from tests.support.local_cluster import LocalCluster
from tests.support.maps import ensure_map
from tests.support.patience import FACTOR, until
from tests.support.published import MemoryStore, publishing
from tests.support.required import in_cluster

pytestmark = in_cluster("it takes 50 s of CPU time")
PARTITIONS = 4
NAMES = [f"/e/{number}" for number in range(40)]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def three_brokers(
    kafka_program: KafkaProgram, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[LocalCluster]:
    directory = tmp_path_factory.mktemp("kafka")
    async with LocalCluster(
        directory, 3, prepare=lambda: kafka_program, with_users=True, time_factor=FACTOR
    ) as cluster:
        yield cluster


def login(cluster: LocalCluster) -> dict[str, str]:
    """Return the settings with which a process is let in."""
    return {f"kafka_{name}": value for name, value in KafkaUser.OPERATOR.settings(cluster.directory).items()}


async def test_two_of_three_brokers_continue_without_a_killed_coordinator(
    three_brokers: LocalCluster, tmp_path: Path
) -> None:
    options = replace(three_brokers.options, topic_prefix="three.", partitions=PARTITIONS, replication=3)
    await ensure_map(options, PARTITIONS)
    async with contextlib.AsyncExitStack() as stack:
        [stays] = await stack.enter_async_context(members(options, 1))
        running = await stack.enter_async_context(serving(tmp_path, options, **login(three_brokers)))
        second = Member(options, 2)
        await second.join()
        await running.until_stable(2)
        async with admin_client(options) as admin:
            coordinator = await admin.find_coordinator(options.names.z_group(1))
            # It leads the topic's partition, too.
            replicas = [coordinator, *({1, 2, 3} - {coordinator})]
            await admin.create_topics([NewTopic(TOPIC, -1, -1, replica_assignments={0: replicas})])
        await eventually(lambda: leads(options, coordinator))
        await produce(options, b"before")
        killed = three_brokers.kill(coordinator)
        try:
            assert not psutil.pid_exists(killed)

            async def has_another_leader() -> bool:
                return (await where(options)).leader not in {coordinator, -1}

            await eventually(has_another_leader)
            await produce(options, b"meanwhile")
            # Its stop may end with what it has cancelled itself: a fetch from the broker that is gone.
            await close_all(second.leave)
            await running.until_stable(1)
            await running.until_status(lambda status: status["live"])
            assert set((await running.owners(*NAMES)).values()) == {stays.server.public}
        finally:
            await three_brokers.restart(coordinator)

    async def is_complete() -> bool:
        return len((await where(options)).isr) == 3

    await eventually(is_complete)
    assert await consume(options, 2) == [b"before", b"meanwhile"]


async def leads(options: KafkaOptions, broker: int) -> bool:
    return (await where(options)).leader == broker


async def leader_of_most(options: KafkaOptions) -> int:
    async with connected_client(options) as client:
        topic = (await describe(client, options.names.updates)).topics[options.names.updates]
    leaders = [partition.leader for partition in topic.partitions.values()]
    return max(set(leaders), key=leaders.count)


async def test_updates_continue_while_a_broker_hangs(three_brokers: LocalCluster, tmp_path: Path) -> None:
    options = replace(three_brokers.options, topic_prefix="h.", partitions=6, replication=3)
    names = [f"/e/{n}" for n in range(60)]
    store = MemoryStore()
    store.put(*names)
    async with (
        publishing(store, options) as publisher,
        running_bridge(tmp_path, options, watermarks=True, **login(three_brokers)) as bridge,
    ):
        server = FeedRecorder()
        async with bridge.reading(server):
            await until(lambda: server.state.caught_up and _all_told(server, store))
            pid = three_brokers.pid(await leader_of_most(options))
            os.kill(pid, signal.SIGSTOP)
            try:
                await _everything_passes(publisher, server, store, names)
            finally:
                os.kill(pid, signal.SIGCONT)
            heartbeats = len(server.heartbeats)
            await until(lambda: len(server.heartbeats) > heartbeats + 1)


@pytest.fixture
def unclean(monkeypatch: pytest.MonkeyPatch) -> None:
    """The settings with which a replica may lead that lacks updates; DIEM would not publish to such topics."""
    config = {**UPDATES_CONFIG, "unclean.leader.election.enable": "true"}
    monkeypatch.setattr(topics, "UPDATES_CONFIG", config)
    monkeypatch.setattr(topics, "min_insync", lambda _: 1)


@pytest.mark.usefixtures("unclean")
async def test_no_heartbeat_after_an_unclean_election_before_the_reader_has_everything_again(
    three_brokers: LocalCluster, tmp_path: Path
) -> None:
    leader, follower, other = 1, 2, 3
    options = replace(three_brokers.options, topic_prefix="u.", partitions=1, replication=2)
    # The other topics lose nothing.
    places = {name: [other, leader] for name in options.names.topics} | {options.names.updates: [leader, follower]}
    async with admin_client(options) as admin:
        found = [
            NewTopic(each.name, -1, -1, replica_assignments={0: places[each.name]}, topic_configs=dict(each.config))
            for each in topics.specs(options, 3)
        ]
        await admin.create_topics(found)

    async def state() -> Partition:
        async with connected_client(options) as client:
            return (await describe(client, options.names.updates)).topics[options.names.updates].partitions[0]

    async def leader_alone() -> bool:
        return (await state()).isr == (leader,)

    store = MemoryStore()
    store.put(*NAMES)
    async with (
        publishing(store, options) as publisher,
        running_bridge(tmp_path, options, watermarks=True, **login(three_brokers)) as bridge,
    ):
        reader = Reader(store)
        await until(lambda: publisher.publishing and publisher.lag == 0)
        three_brokers.kill(follower)
        try:
            await eventually(leader_alone)
            store.put(*NAMES)
            publisher.changed()
            async with bridge.reading(reader):
                await until(lambda: reader.heartbeats and not reader.lacks_something)
            # What it misses. Sent again, it is before the position of the reader.
            store.put(*NAMES)
            publisher.changed()
            await until(lambda: publisher.lag == 0)
            reader.false_heartbeats = 0
        finally:
            three_brokers.kill(leader)
            await three_brokers.restart(follower)
            await three_brokers.restart(leader)
        assert (await state()).leader == follower
        heartbeats = len(reader.heartbeats)
        async with bridge.reading(reader):
            await until(lambda: len(reader.heartbeats) >= heartbeats + 3)
        assert (reader.lacks_something, reader.false_heartbeats) == (False, 0)


async def _everything_passes(publisher: Publisher, server: FeedRecorder, store: MemoryStore, names: list[str]) -> None:
    for _ in range(2):
        store.put(*names)
        publisher.changed()
        await until(lambda: publisher.lag == 0 and _all_told(server, store))


def _all_told(server: FeedRecorder, store: MemoryStore) -> bool:
    return {name: version for name, (version, _) in server.state.retained.items()} == store.versions
