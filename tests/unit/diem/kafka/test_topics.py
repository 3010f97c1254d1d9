"""Missing topics are created with the partitions that the map uses; existing ones are compared."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from aiokafka.errors import NodeNotReadyError

from diem.kafka import metadata, topics
from diem.kafka.config import KafkaOptions
from diem.kafka.errors import KafkaUnavailable, WrongTopic
from diem.kafka.metadata import Cluster, Partition, Topic
from diem.kafka.topics import (
    TopicSpec,
    check_room,
    compare,
    differences,
    ensure,
    lesser_differences,
    specs,
    updates_spec,
)
from diem.protocol.partition_map import HOT, Entry, Head, PartitionMap

OPTIONS = KafkaOptions("k:9092")


class Broker:
    """A cluster with the topics of ``specs``, and a map."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, map_: PartitionMap | None, *made: TopicSpec) -> None:
        self._map = map_
        self._specs = {spec.name: spec for spec in made}
        monkeypatch.setattr(topics, "connected_client", self._connected)
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


def topic(partitions: int = 12, replicas: tuple[int, ...] = (1, 2, 3)) -> Topic:
    return Topic("diem.updates", "id", {n: Partition(1, replicas, replicas) for n in range(partitions)})


@pytest.mark.parametrize(("brokers", "replication", "in_sync"), [(1, 1, "1"), (2, 2, "2"), (3, 3, "2"), (9, 3, "2")])
def test_replication_follows_the_brokers_up_to_three(brokers: int, replication: int, in_sync: str) -> None:
    spec = updates_spec(OPTIONS, brokers)
    assert (spec.partitions, spec.replication, spec.config["min.insync.replicas"]) == (12, replication, in_sync)


def test_the_topic_is_compacted_and_nothing_else() -> None:
    assert updates_spec(OPTIONS, 3).config["cleanup.policy"] == "compact"


def test_what_is_as_specified_has_no_faults() -> None:
    spec = updates_spec(OPTIONS, 3)
    assert not list(differences(spec, OPTIONS, topic(), spec.config))


def test_without_a_configured_number_any_partitions_are_accepted() -> None:
    spec = updates_spec(OPTIONS, 3)
    assert not list(differences(spec, OPTIONS, topic(24), spec.config))


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"cleanup.policy": "compact,delete"}, "cleanup.policy is compact,delete, it must be compact"),
        ({"unclean.leader.election.enable": "true"}, "unclean.leader.election.enable is true"),
        ({"min.insync.replicas": "1"}, "min.insync.replicas is 1, it must be 2"),
    ],
)
def test_a_setting_that_loses_updates_is_named_with_its_remedy(change: dict[str, str], text: str) -> None:
    spec = updates_spec(OPTIONS, 3)
    (line,) = differences(spec, OPTIONS, topic(), {**spec.config, **change})
    assert text in line
    assert "--add-config" in line


def test_a_setting_that_refuses_records_is_a_lesser_fault_named_with_its_remedy() -> None:
    spec = updates_spec(OPTIONS, 3)
    config = {**spec.config, "max.message.bytes": "1000"}
    assert not list(differences(spec, OPTIONS, topic(), config))
    (line,) = lesser_differences(spec, config)
    assert "topic diem.updates: max.message.bytes is 1000, it should be 131072" in line
    assert "--topic diem.updates --add-config max.message.bytes=131072" in line
    (line,) = lesser_differences(spec, {**spec.config, "message.timestamp.type": "CreateTime"})
    assert "message.timestamp.type is CreateTime, it should be LogAppendTime" in line
    assert not list(lesser_differences(spec, {**spec.config, "max.message.bytes": "1048588"}))


def test_a_stricter_number_of_replicas_in_sync_is_right_too() -> None:
    spec = updates_spec(OPTIONS, 3)
    assert not list(differences(spec, OPTIONS, topic(), {**spec.config, "min.insync.replicas": "3"}))


def test_another_number_of_partitions_or_replicas_than_configured_is_a_fault() -> None:
    options = replace(OPTIONS, partitions=24, replication=3)
    spec = updates_spec(options, 3)
    config = {**spec.config, "min.insync.replicas": "1"}
    lines = list(differences(spec, options, topic(12, (1,)), config))
    assert len(lines) == 2
    assert "12 partitions, 24 are configured" in lines[0]
    assert "1 replicas, 3 are configured" in lines[1]


def test_hot_updates_and_the_map_have_one_partition_each_and_the_settings_of_updates() -> None:
    updates, hot, map_ = specs(replace(OPTIONS, partitions=24), 3)
    assert [(each.name, each.partitions) for each in (updates, hot, map_)] == [
        ("diem.updates", 24),
        ("diem.updates.hot", 1),
        ("diem.partition-map", 1),
    ]
    assert updates.config == hot.config == map_.config
    assert {each.replication for each in (updates, hot, map_)} == {3}


def test_a_map_that_is_there_decides_how_many_partitions_are_made() -> None:
    assert [each.partitions for each in specs(replace(OPTIONS, partitions=24), 3, 6)] == [6, 1, 1]


def test_hot_updates_in_two_partitions_are_a_fault_whatever_is_configured() -> None:
    spec = specs(OPTIONS, 3)[1]
    hot = topic(2)._replace(name=spec.name)
    (line,) = differences(spec, replace(OPTIONS, partitions=2), hot, spec.config)
    assert line == "it has 2 partitions, it must have 1: delete it, and it is recreated"
    assert not list(differences(spec, replace(OPTIONS, partitions=2), topic(1)._replace(name=spec.name), spec.config))


@pytest.mark.parametrize(
    ("head", "entry"), [(13, Entry(HOT)), (12, Entry(12)), (12, Entry(0, 12))], ids=["hash", "home", "target"]
)
def test_a_map_that_uses_more_partitions_than_there_are_is_refused_with_what_to_do(head: int, entry: Entry) -> None:
    with pytest.raises(WrongTopic, match=r"has 12 partitions, the partition map uses 13: .*--alter .*--partitions 13"):
        check_room("diem.updates", 12, PartitionMap(Head(head, 0), {b"/a": entry}))
    check_room("diem.updates", 13, PartitionMap(Head(head, 0), {b"/a": entry}))


def test_a_source_names_every_topic_and_is_none_without_one_of_them() -> None:
    cluster = Cluster("c", 1, {}, {name: Topic(name, f"id of {name}", {}) for name in ("a", "b")})
    assert cluster.source("a", "b") == "c/id of a/id of b"
    assert cluster.source("a", "other") is None


def test_racks_are_those_of_the_brokers_that_have_one() -> None:
    brokers: list[tuple[object, ...]] = [
        (1, "a.example", 9092, "zone-a", {}),
        (2, "b.example", 9092, None, {}),
        (3, "c.example", 9092, "", {}),
    ]
    answer = SimpleNamespace(topics=[], brokers=brokers, cluster_id="c", controller_id=1)
    assert metadata._cluster(cast("Any", None), answer).racks == {1: "zone-a"}


GOOD: dict[str, str] = {}
BAD = {"cleanup.policy": "compact,delete"}
CLUSTER = Cluster(
    "c",
    1,
    {1: ("k", 1), 2: ("k", 2)},
    {
        spec.name: Topic(spec.name, "id", {n: Partition(1, (1, 2), (1, 2)) for n in range(spec.partitions)})
        for spec in specs(OPTIONS, 2)
    },
)


@dataclass
class Client:
    """Brokers with scripted answers about the updates topic; the last answer is repeated."""

    answers: dict[int, list[dict[str, str] | Exception | int]]
    requests: list[int] = field(default_factory=list)

    @property
    def cluster(self) -> Any:
        return SimpleNamespace(brokers=lambda: [SimpleNamespace(nodeId=node) for node in self.answers])

    async def send(self, node: int, _request: object) -> Any:
        self.requests.append(node)
        answers = self.answers[node]
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, int):
            return SimpleNamespace(resources=[(answer, None, 2, OPTIONS.names.updates, [])])
        config = {
            spec.name: {**spec.config, **(answer if spec.name == OPTIONS.names.updates else {})} for spec in SPECS
        }
        return SimpleNamespace(resources=[(0, None, 2, name, list(text.items())) for name, text in config.items()])


SPECS = specs(OPTIONS, 2)


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topics, "PAUSE_S", 0.0)


async def compared(**answers: list[dict[str, str] | Exception | int]) -> Client:
    client: Any = Client({int(name[1:]): given for name, given in answers.items()})
    await compare(client, OPTIONS, CLUSTER)
    assert isinstance(client, Client)
    return client


async def test_every_broker_describes_the_topics() -> None:
    assert (await compared(b1=[GOOD], b2=[GOOD])).requests == [1, 2]


async def test_all_brokers_are_asked_again_while_one_has_old_settings() -> None:
    with pytest.raises(WrongTopic, match=r"cleanup\.policy is compact,delete"):
        await compared(b1=[GOOD, GOOD, BAD], b2=[BAD])
    assert (await compared(b1=[BAD, BAD, GOOD], b2=[GOOD])).requests == [1, 2] * 3


async def test_a_topic_that_one_broker_calls_wrong_for_long_is_wrong() -> None:
    with pytest.raises(WrongTopic, match=r"cleanup\.policy is compact,delete"):
        await compared(b1=[GOOD], b2=[BAD])


async def test_a_broker_that_is_away_is_ignored_while_another_one_answers() -> None:
    await compared(b1=[NodeNotReadyError()], b2=[GOOD])
    with pytest.raises(WrongTopic):
        await compared(b1=[BAD], b2=[OSError("reset")])
    with pytest.raises(KafkaUnavailable, match="cannot be described: OSError reset"):
        await compared(b1=[NodeNotReadyError()], b2=[OSError("reset")])


async def test_a_broker_that_does_not_know_a_new_topic_is_asked_again() -> None:
    assert (await compared(b1=[GOOD], b2=[3, 3, GOOD])).requests == [1, 2] * 3
    with pytest.raises(KafkaUnavailable, match=r"broker 2: diem\.updates cannot be described: UnknownTopic"):
        await compared(b1=[GOOD], b2=[3])


async def test_a_topic_that_may_not_be_described_is_not_called_right() -> None:
    with pytest.raises(KafkaUnavailable, match=r"diem\.updates cannot be described: TopicAuthorization"):
        await compared(b1=[GOOD], b2=[29])
