"""The publisher without brokers: topics deleted while it runs, missing replicas, and its batches."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.record.memory_records import MemoryRecords

from diem.kafka.config import KafkaOptions
from diem.kafka.metadata import Cluster, Partition, ReplicaFaults, Topic
from diem.process import metrics
from diem.protocol.partition_map import Entry, Head, PartitionMap
from diem.protocol.update import encode
from diem.traffic import kafka_sink
from services.data.publisher import log, publisher
from services.data.publisher.backlog import Backlog, PublisherState
from services.data.publisher.log import LogTopics
from services.data.publisher.log_monitor import LogMonitor
from services.data.publisher.senders import PartitionSenders
from tests.support.published import MemoryStore

OPTIONS = KafkaOptions("k:9092")


async def test_recreated_topics_have_the_partitions_of_the_current_map(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    map_ = PartitionMap(Head(12, 4), {b"/a": Entry(15)})

    @asynccontextmanager
    async def connected_client(_options: KafkaOptions) -> AsyncIterator[None]:
        yield

    async def describe(_client: None, *_names: str) -> Cluster:
        return Cluster("c", 1, {}, {})

    async def ensure(options: KafkaOptions, partitions: int) -> Cluster:
        assert options.partitions in {None, partitions}, "what differs is refused"
        sizes = {options.names.updates: partitions, options.names.hot: 1, options.names.partition_map: 1}
        made = {
            name: Topic(name, "new", dict.fromkeys(range(size), Partition(1, (1,), (1,))))
            for name, size in sizes.items()
        }
        return Cluster("c", 1, {}, made)

    async def begin_map(*given: object) -> PartitionMap:
        assert given[-1] == map_
        return map_

    async def read_map(_options: KafkaOptions) -> None:
        return None

    for each in (connected_client, describe, ensure, begin_map, read_map):
        monkeypatch.setattr(publisher, each.__name__, each)
    before = PublisherState("c/old/old", "c/old", Backlog(16, 0, map_), resend_all=False, new_store=False, trackers=[])
    found = await publisher.find_topics(replace(OPTIONS, partitions=12), (), before)
    assert (found.partitions, found.map) == (16, map_)


def replicated(leader: int, *in_sync: int) -> Partition:
    return Partition(leader, (1, 2, 3), in_sync)


def test_partitions_that_lack_a_replica_are_counted() -> None:
    parts = {0: replicated(1, 1, 2, 3), 1: replicated(2, 2, 3), 2: replicated(-1)}
    cluster = Cluster("c", 1, {}, {"a": Topic("a", "id", parts), "b": Topic("b", "id", {0: replicated(3, 3)})})
    assert cluster.replica_faults() == ReplicaFaults(leaderless=1, under_replicated=3)


async def test_metrics_have_the_partitions_that_lacked_a_replica_at_the_last_look() -> None:
    class Described(log.Log):
        def __init__(self, faults: ReplicaFaults) -> None:
            self.faults = faults

        async def describe(self, avoid: Any = ()) -> LogTopics:
            return LogTopics("c/log", "c/map", {}, 2, self.faults)

    def samples() -> dict[str, float]:
        wanted = (metrics.KAFKA_LEADERLESS, metrics.KAFKA_UNDER_REPLICATED)
        return {s.metric.name: s.value for s in publishing.samples() if s.metric in wanted}

    store = MemoryStore()
    publishing = publisher.Publisher(store, OPTIONS)
    assert list(samples().values()) == [0, 0]
    map_ = PartitionMap(Head(2, 0))
    state = PublisherState("c/log", "c/map", Backlog(2, 0, map_), resend_all=False, new_store=False, trackers=[])
    publishing._state = state  # it follows from topics that are found
    described = Described(ReplicaFaults(leaderless=1, under_replicated=4))
    monitor = LogMonitor(described, state, PartitionSenders(described, state, store, lambda: None))
    await monitor.check_topics()
    assert list(samples().values()) == [1, 4]
    described.faults = ReplicaFaults()
    await monitor.check_topics()
    assert list(samples().values()) == [0, 0]


@pytest.mark.parametrize("settings", [log.PRODUCER, kafka_sink.PRODUCER], ids=["updates", "traffic"])
async def test_batches_are_compressed(settings: dict[str, Any]) -> None:
    batch = AIOKafkaProducer(bootstrap_servers="127.0.0.1:9", **settings).create_batch()
    size = 0
    for number in range(100):
        name, version = f"/market/prices/zone-{number:03d}", 1_750_000_000_000 + number
        update = encode(name, version, version)
        assert batch.append(key=name.encode(), value=update, timestamp=None) is not None
        size += len(name) + len(update)
    content = bytes(batch._build())  # as the sender does
    assert len(content) < size / 3
    records = MemoryRecords(content).next_batch()
    assert records is not None
    assert len(list(records)) == 100
