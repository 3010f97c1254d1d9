"""Topics are made when they are missing, with the partitions that the map uses, and compared when they are there."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from diem.kafka import topics
from diem.kafka.config import KafkaOptions
from diem.kafka.errors import WrongTopic
from diem.kafka.metadata import Cluster, Partition, Topic
from diem.kafka.topics import TopicSpec, check_room, ensure, specs
from diem.protocol.partition_map import Entry, Head, PartitionMap

OPTIONS = KafkaOptions("k:9092")


class Broker:
    """One that has the topics of ``specs``, and a map."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, map_: PartitionMap | None, *made: TopicSpec) -> None:
        self._map = map_
        self._specs = {spec.name: spec for spec in made}
        monkeypatch.setattr(topics, "connected", self._connected)
        for name in ("describe", "create", "read_map"):
            monkeypatch.setattr(topics, name, getattr(self, name))
        monkeypatch.setattr(topics, "settings_in_force", self.settings_in_force)

    @asynccontextmanager
    async def _connected(self, _options: KafkaOptions) -> AsyncIterator[None]:
        yield

    async def describe(self, _client: None, *_names: str) -> Cluster:
        there = {
            spec.name: Topic(spec.name, "id", {n: Partition(1, (1,), (1,)) for n in range(spec.partitions)})
            for spec in self._specs.values()
        }
        return Cluster("c", 1, {1: ("k", 9092)}, there)

    async def create(self, _options: KafkaOptions, *wanted: TopicSpec) -> None:
        self._specs |= {spec.name: spec for spec in wanted}

    async def settings_in_force(self, _client: None, *_names: str) -> list[dict[str, dict[str, str]]]:
        return [{name: dict(spec.config) for name, spec in self._specs.items()}]

    async def read_map(self, _options: KafkaOptions) -> PartitionMap | None:
        return self._map


MOVED = PartitionMap(Head(12, 4), {b"/a": Entry(15)})


async def test_a_topic_that_is_made_again_has_the_partitions_that_plans_gave_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Broker(monkeypatch, MOVED, *specs(OPTIONS, 1)[1:])
    cluster = await ensure(OPTIONS)
    check_room("diem.updates", len(cluster.topics["diem.updates"].partitions), MOVED)


async def test_a_topic_that_plans_gave_partitions_is_as_configured(monkeypatch: pytest.MonkeyPatch) -> None:
    Broker(monkeypatch, MOVED, *specs(OPTIONS, 1, 16))
    assert len((await ensure(replace(OPTIONS, partitions=12))).topics["diem.updates"].partitions) == 16


@pytest.mark.parametrize("map_", [None, MOVED], ids=["no map", "another hash"])
async def test_a_topic_that_was_made_with_other_partitions_than_configured_is_refused(
    monkeypatch: pytest.MonkeyPatch, map_: PartitionMap | None
) -> None:
    Broker(monkeypatch, map_, *specs(OPTIONS, 1, 16))
    with pytest.raises(WrongTopic, match="16 partitions, 8 are configured"):
        await ensure(replace(OPTIONS, partitions=8))
