"""How our topics must be: their specifications, and what is said of one that is otherwise."""

from dataclasses import replace

import pytest

from diem.kafka.config import KafkaOptions
from diem.kafka.errors import WrongTopic
from diem.kafka.metadata import Cluster, Partition, Topic
from diem.kafka.topics import check_room, differences, specs, updates_spec
from diem.protocol.partition_map import HOT, Entry, Head, PartitionMap

OPTIONS = KafkaOptions("k:9092")


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


def test_without_a_configured_number_the_topics_partitions_are_taken() -> None:
    spec = updates_spec(OPTIONS, 3)
    assert not list(differences(spec, OPTIONS, topic(24), spec.config))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"cleanup.policy": "compact,delete"}, "cleanup.policy is compact,delete, it must be compact"),
        ({"unclean.leader.election.enable": "true"}, "unclean.leader.election.enable is true"),
        ({"min.insync.replicas": "1"}, "min.insync.replicas is 1, it must be 2"),
    ],
)
def test_a_setting_that_loses_updates_is_named_with_its_remedy(change: dict[str, str], said: str) -> None:
    spec = updates_spec(OPTIONS, 3)
    (line,) = differences(spec, OPTIONS, topic(), {**spec.config, **change})
    assert said in line
    assert "--add-config" in line


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
    assert line == "it has 2 partitions, it must have 1: delete it, and it is made again"
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
