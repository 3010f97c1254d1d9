"""How the updates topic must be: its specification, and what is said of one that is otherwise."""

from dataclasses import replace

import pytest

from diem.kafka.metadata import Partition, Topic
from diem.kafka.options import KafkaOptions
from diem.kafka.topics import differences, updates_spec

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
