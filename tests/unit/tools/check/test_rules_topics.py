"""Rules of our topics, passed and failed."""

from dataclasses import replace

import pytest

from diem.kafka.config import PARTITIONS
from diem.kafka.metadata import Partition, Topic
from learning.costs import DEFAULT
from learning.modes import configuration
from learning.sizing.even import PLANNED, choose_count, planned_sizes
from tests.unit.tools.check.healthy import (
    SIDE_TOPICS,
    UPDATES,
    cluster,
    facts,
    judgement,
    topic,
)
from tools.check.facts import Facts, Severity
from tools.size.sizing import Figures, Limits, size

FAULT, WARNING, OK = Severity.FAULT, Severity.WARNING, Severity.OK


@pytest.mark.parametrize("value", ["compact,delete", "delete"])
def test_anything_but_compaction_alone_is_a_fault(value: str) -> None:
    found = judgement("cleanup policy", facts(of_topic={"cleanup.policy": value}))
    assert (found.verdict, "loses its only copy" in found.found) == (FAULT, True)
    assert found.commands[0].endswith("--add-config cleanup.policy=compact")


def test_a_disabled_cleaner_is_a_fault_and_a_missing_setting_is_not() -> None:
    assert judgement("cleaner", facts(of_broker={"log.cleaner.enable": "false"})).verdict is FAULT
    assert judgement("cleaner", facts(of_broker={"log.cleaner.enable": "absent"})).verdict is OK


def test_slow_compaction_is_a_warning_with_one_command_and_faster_than_ours_is_in_order() -> None:
    slow = {"segment.ms": "604800000", "min.cleanable.dirty.ratio": "0.5", "segment.bytes": "1048576"}
    found = judgement("compaction pace", facts(of_topic=slow))
    assert found.verdict is WARNING
    assert found.commands[0].endswith("--add-config segment.ms=600000,min.cleanable.dirty.ratio=0.1")
    assert judgement("compaction pace", facts(of_topic={"segment.ms": "1000"})).verdict is OK


@pytest.mark.parametrize(("value", "verdict"), [("131072", OK), ("1000", FAULT), ("1048588", WARNING)])
def test_record_size_admits_the_producers_batches_and_little_more(value: str, verdict: Severity) -> None:
    assert judgement("record size", facts(of_topic={"max.message.bytes": value})).verdict is verdict


def test_other_settings_are_compared_with_ours() -> None:
    given = facts(of_topic={"compression.type": "zstd"})
    assert judgement("other settings", given).verdict is WARNING


def test_times_set_by_writers_are_a_warning_with_a_command_for_each_topic() -> None:
    assert judgement("record times", facts()).verdict is OK
    given = with_topics(facts(), topic("diem.traffic", 12))
    names = [UPDATES, SIDE_TOPICS[1], "diem.traffic"]
    settings = {name: {**given.wanted, "message.timestamp.type": "CreateTime"} for name in names}
    found = judgement("record times", replace(given, topics={**given.topics, **settings}, traffic="diem.traffic"))
    assert found.verdict is WARNING
    changes = [line.partition("--entity-name ")[2] for line in found.commands]
    assert changes == [f"{name} --add-config message.timestamp.type=LogAppendTime" for name in names]


def counted(count: int, *planned: int) -> Facts:
    return facts(cluster=cluster(topic(UPDATES, count)), planned=planned)


def test_fewer_partitions_than_servers_are_a_fault() -> None:
    found = judgement("enough partitions", counted(5, 1, 2, 3, 4, 6, 12))
    assert found.verdict is FAULT
    assert "of 12 servers 7 get no partition" in found.found
    assert "with 12 partitions 1.00" in found.change
    assert found.commands[-1].endswith("--partitions 12")
    assert judgement("enough partitions", counted(12, 12)).verdict is OK


def test_sizes_that_do_not_divide_the_count_are_graded() -> None:
    found = judgement("even shares", counted(12, 1, 4, 5, 8))
    assert found.verdict is WARNING
    assert "12 among 1, 4: even" in found.found
    assert "5: the busiest has 1.25 x the mean, 8: the busiest has 1.33 x the mean" in found.found
    assert judgement("even shares", counted(120, 1, 2, 3, 4, 5, 6, 8, 10, 12)).verdict is OK


def test_a_new_topic_is_judged_as_it_is_sized() -> None:
    """`diem up`, `diem check` and `diem size` have one number for the same planned servers."""
    assert judgement("even shares", counted(PARTITIONS, *PLANNED)).verdict is OK
    for planned in (PLANNED, (*PLANNED, 5), tuple(range(1, 13)), (1, 5), (7,), (30,)):
        chosen = size(Figures(), Limits(planned=planned), DEFAULT).partitions
        few = judgement("enough partitions", counted(max(planned) - 1, *planned))
        assert few.commands[-1].endswith(f"--partitions {chosen}")
    assert choose_count(PLANNED) == PARTITIONS == configuration.PARTITIONS
    assert choose_count(range(1, 13)) == 48
    # One uneven size does not hide in the mean of several: five servers have 1.25 with 12.
    assert choose_count(planned_sizes(5)) == 24


def test_the_line_that_corrects_partitions_is_of_the_system_that_runs() -> None:
    given = replace(counted(12, 1, 5), started=frozenset({1}), restart=("--mode", "z-client", "--servers", "5"))
    (line,) = judgement("even shares", given).commands
    assert line == "diem up --mode z-client --servers 5 --brokers 1 --partitions 5"


def test_uneven_replicas_are_a_warning() -> None:
    four = facts(cluster=cluster(topic(UPDATES, 12, 3, 4), brokers=4))
    assert judgement("even replicas", four).verdict is OK
    five = facts(cluster=cluster(topic(UPDATES, 12, 3, 5), brokers=5))
    found = judgement("even replicas", five)
    assert (found.verdict, "15" in found.change) == (WARNING, True)


def test_too_many_partitions_are_counted_over_all_topics() -> None:
    crowd = facts(cluster=cluster(topic(UPDATES, 12), *(topic(f"other-{n}", 1000) for n in range(13))))
    found = judgement("not too many", crowd)
    assert found.verdict is WARNING
    assert "39036 replicas on 3 brokers, 4338 led by each: when one fails, 9.6 s until that is known" in found.found
    assert "10.85 s of elections" in found.found
    assert found.change == "use fewer partitions over all topics, or more brokers"
    slow = facts(of_broker={"broker.session.timeout.ms": "30000"})
    assert judgement("not too many", slow).commands == ("broker.session.timeout.ms=9000",)


def with_topics(given: Facts, *topics: Topic) -> Facts:
    changed = {**given.cluster.topics, **{each.name: each for each in topics}}
    return replace(given, cluster=given.cluster._replace(topics=changed))


def test_a_missing_topic_of_hot_updates_or_of_the_map_is_a_fault() -> None:
    given = facts(cluster=cluster(topic(UPDATES, 12), topic(SIDE_TOPICS[0], 1)))
    found = judgement("hot and map", given)
    assert (found.verdict, found.commands) == (FAULT, ("diem topics --bootstrap-servers a.example:9092",))
    assert found.found == "missing, or hidden from this user: diem.partition-map"


@pytest.mark.parametrize(("count", "replicas"), [(2, 3), (1, 2)])
def test_hot_updates_and_the_map_have_one_partition_and_as_many_replicas_as_updates(count: int, replicas: int) -> None:
    found = judgement("hot and map", with_topics(facts(), topic(SIDE_TOPICS[1], count, replicas)))
    assert found.verdict is FAULT
    assert found.commands[0].endswith("--delete --topic diem.partition-map")
    more = with_topics(facts(), topic(SIDE_TOPICS[1], 1, 5, 5))
    assert judgement("hot and map", more).verdict is OK


@pytest.mark.parametrize(
    ("key", "value", "verdict"),
    [
        ("cleanup.policy", "delete", FAULT),
        ("unclean.leader.election.enable", "true", FAULT),
        ("min.insync.replicas", "1", FAULT),
        ("min.insync.replicas", "3", OK),
        ("max.message.bytes", "1000", FAULT),
        ("segment.ms", "1", OK),
    ],
)
def test_settings_of_hot_updates_that_lose_records_are_faults(key: str, value: str, verdict: Severity) -> None:
    given = facts()
    spoilt = {**given.topics, SIDE_TOPICS[0]: {**given.topics[SIDE_TOPICS[0]], key: value}}
    found = judgement("hot and map", replace(given, topics=spoilt))
    assert found.verdict is verdict
    if verdict is FAULT:
        assert found.commands[0].endswith(f"--entity-name {SIDE_TOPICS[0]} --add-config {key}={given.wanted[key]}")


def test_a_map_topic_that_refuses_writes_is_a_fault() -> None:
    alone = Topic(SIDE_TOPICS[1], "id", {0: Partition(1, (1, 2, 3), (1,))})
    found = judgement("in sync", with_topics(facts(), alone))
    assert (found.verdict, "fewer than 2 in sync" in found.found) == (FAULT, True)
