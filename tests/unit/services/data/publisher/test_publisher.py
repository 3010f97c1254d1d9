"""Topics deleted while the publisher runs."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from diem.kafka.config import KafkaOptions
from diem.kafka.metadata import Cluster, Partition, Topic
from diem.protocol.partition_map import Entry, Head, PartitionMap
from services.data.publisher import publisher
from services.data.publisher.backlog import Backlog, PublisherState

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

    for each in (connected_client, describe, ensure, begin_map):
        monkeypatch.setattr(publisher, each.__name__, each)
    before = PublisherState("c/old/old", "c/old", Backlog(16, 0, map_), resend_all=False, new_store=False)
    found = await publisher.find_topics(replace(OPTIONS, partitions=12), (), before)
    assert (found.partitions, found.map) == (16, map_)
