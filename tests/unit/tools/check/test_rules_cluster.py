"""Rules of the cluster, passed and failed, with the changes that they suggest."""

from dataclasses import replace

import pytest

from diem.kafka.metadata import Partition, Topic
from diem.kafka.topic_config import INTERNAL
from tests.unit.tools.check.healthy import (
    BROKER,
    SIDE_TOPICS,
    UPDATES,
    cluster,
    facts,
    finding,
    judgement,
    small,
    topic,
    with_partition,
)
from tools.check.facts import Facts, Judgement, Severity

FAULT, WARNING, OK = Severity.FAULT, Severity.WARNING, Severity.OK


def replicas(count: int, brokers: int = 3) -> Facts:
    return facts(cluster=cluster(topic(UPDATES, 12, count, brokers), brokers=brokers))


@pytest.mark.parametrize(("have", "tolerated", "verdict"), [(3, 1, OK), (1, 0, OK), (2, 1, FAULT), (1, 1, FAULT)])
def test_replication_is_two_per_tolerated_loss_plus_one(have: int, tolerated: int, verdict: Severity) -> None:
    assert judgement("replication", replace(replicas(have), tolerate=tolerated)).verdict is verdict


def test_replication_distinguishes_lost_updates_from_stopped_writes() -> None:
    assert "may lose updates" in judgement("replication", replicas(1)).found
    assert "stops writes" in judgement("replication", replicas(2)).found


def test_replication_of_a_local_cluster_is_corrected_by_diem_up() -> None:
    found = judgement("replication", small(started=frozenset({1})))
    assert found.commands == ("diem up --mode x --brokers 3 --replication 3",)
    assert "remove the folder kafka" in found.change
    beyond = judgement("replication", small(started=frozenset({1}), tolerate=2))
    assert (beyond.verdict, "at most 3 brokers" in beyond.change) == (FAULT, True)


def test_too_few_brokers_of_another_cluster_come_first() -> None:
    found = judgement("replication", small())
    assert found.change.startswith("run 3 brokers")
    assert found.commands == (
        *(
            f"kafka-topics.sh --bootstrap-server 127.0.0.1:9092 --delete --topic {name}"
            for name in (UPDATES, *SIDE_TOPICS)
        ),
        "diem topics --bootstrap-servers 127.0.0.1:9092 --replication 3",
    )
    assert judgement("replication", replicas(1)).change.startswith("stop the Data Service, recreate the topics")


@pytest.mark.parametrize(
    ("value", "verdict", "expected"),
    [
        ("2", OK, "2 of 3 replicas"),
        ("1", FAULT, "only the leader"),
        ("3", FAULT, "writes stop when 1 broker"),
        ("4", FAULT, "nothing can be written"),
    ],
)
def test_min_in_sync_is_one_more_than_the_tolerated_losses(value: str, verdict: Severity, expected: str) -> None:
    found = judgement("min in sync", facts(of_topic={"min.insync.replicas": value}))
    assert found.verdict is verdict
    assert expected in found.found
    if verdict is FAULT:
        assert found.commands[0].endswith("--entity-name diem.updates --add-config min.insync.replicas=2")


def test_min_in_sync_may_be_stricter_where_replicas_allow_it() -> None:
    five = facts(cluster=cluster(topic(UPDATES, 12, 5, 5), brokers=5), of_topic={"min.insync.replicas": "3"})
    assert judgement("min in sync", five).verdict is OK
    assert judgement("min in sync", replace(five, tolerate=2)).verdict is OK
    assert judgement("min in sync", replace(five, tolerate=3)).verdict is FAULT


def test_unclean_election_is_off_for_ours_and_for_internal_topics() -> None:
    name = "unclean.leader.election.enable"
    assert judgement("unclean election", facts(of_topic={name: "true"})).verdict is FAULT
    given = facts()
    spoilt = {**given.topics, INTERNAL[0]: {name: "true"}}
    found = judgement("unclean election", replace(given, topics=spoilt))
    assert (found.verdict, len(found.commands)) == (FAULT, 1)
    assert INTERNAL[0] in found.commands[0]


def test_internal_replication_checks_topics_or_the_default_for_missing_ones() -> None:
    there = facts(cluster=cluster(topic(UPDATES, 12), topic(INTERNAL[0], 6, 2), topic(INTERNAL[1], 6)))
    assert judgement("internal replication", there).verdict is WARNING
    lost = facts(cluster=cluster(topic(UPDATES, 12), topic(INTERNAL[0], 6, 1), topic(INTERNAL[1], 6)))
    assert judgement("internal replication", lost).verdict is FAULT
    planned = facts(cluster=cluster(topic(UPDATES, 12)), of_broker={"offsets.topic.replication.factor": "1"})
    found = judgement("internal replication", planned)
    assert (found.verdict, found.commands) == (FAULT, ("offsets.topic.replication.factor=3",))


def test_internal_min_in_sync_checks_topics_or_the_default_for_missing_ones() -> None:
    given = facts()
    there = replace(given, topics={**given.topics, INTERNAL[1]: {"min.insync.replicas": "1"}})
    found = judgement("internal min in sync", there)
    assert (found.verdict, len(found.commands)) == (FAULT, 1)
    assert "__transaction_state --add-config min.insync.replicas=2" in found.commands[0]
    planned = facts(cluster=cluster(topic(UPDATES, 12)), of_broker={"min.insync.replicas": "1"})
    assert "--entity-default" in judgement("internal min in sync", planned).commands[0]


def test_controllers_keep_a_majority() -> None:
    two = facts(of_broker={"controller.quorum.voters": "1@a:1,2@b:1"})
    assert judgement("controllers", two).verdict is FAULT
    unknown = {"controller.quorum.voters": "", "controller.quorum.bootstrap.servers": "a:1,b:1,c:1"}
    assert judgement("controllers", facts(of_broker=unknown)).verdict is OK
    unknown["controller.quorum.bootstrap.servers"] = "a:1"
    found = judgement("controllers", facts(of_broker=unknown))
    assert (found.verdict, bool(found.commands)) == (WARNING, True)


def test_brokers_on_shared_machines_are_a_warning() -> None:
    given = facts()
    together = given.cluster._replace(brokers={n: ("a.example", 9000 + n) for n in (1, 2, 3)})
    assert judgement("machines", replace(given, cluster=together)).verdict is WARNING
    assert finding("machines", replace(given, cluster=together, tolerate=0)) is None


def test_racks_count_where_brokers_have_them() -> None:
    given = facts()

    def found(racks: dict[int, str]) -> Judgement:
        return judgement("machines", replace(given, cluster=given.cluster._replace(racks=racks)))

    assert found({1: "a", 2: "b", 3: "c"}).found == "3 brokers in 3 racks"
    one = found({1: "a", 2: "a", 3: "a"})
    assert (one.verdict, one.found) == (WARNING, "3 brokers in 1 rack: losing a rack loses all its brokers")
    assert (found({1: "a", 2: "b"}).verdict, found({1: "a", 2: "b"}).commands) == (WARNING, ("broker.rack=NAME",))


def test_replicas_in_one_rack_are_a_warning() -> None:
    # Six brokers in three racks, of which neighbours share one: partition 0 is on brokers 1, 2 and 3.
    given = facts()
    six = cluster(*(topic(name, 12, 3, 6) for name in (UPDATES, *SIDE_TOPICS)), brokers=6)
    found = judgement(
        "machines", replace(given, cluster=six._replace(racks={n: "abc"[(n - 1) // 2] for n in range(1, 7)}))
    )
    assert found.verdict is WARNING
    assert "with several replicas in one rack (diem.updates/0, diem.updates/1, diem.updates/2 ...)" in found.found
    spread = replace(given, cluster=six._replace(racks={n: "abc"[n % 3] for n in range(1, 7)}))
    assert judgement("machines", spread).found == "6 brokers in 3 racks"


def test_auto_creation_is_off_everywhere() -> None:
    given = facts()
    one = {**given.brokers, 2: {**BROKER, "auto.create.topics.enable": "true"}}
    found = judgement("auto creation", replace(given, brokers=one))
    assert (found.verdict, "broker 2" in found.found) == (FAULT, True)


def test_absent_brokers_with_replicas_or_started_here_are_missing() -> None:
    given = facts()
    gone = given.cluster._replace(brokers={n: given.cluster.brokers[n] for n in (1, 2)})
    assert "missing: 3" in judgement("brokers", replace(given, cluster=gone)).found
    assert judgement("brokers", replace(given, started=frozenset({1, 4}))).verdict is FAULT
    assert "no answer from 2" in judgement("brokers", replace(given, silent=frozenset({2}))).found


def test_a_missing_topic_is_a_single_fault() -> None:
    given = facts(cluster=cluster())
    assert judgement("topic", given).verdict is FAULT
    assert [finding(name, given) for name in ("replication", "cleanup policy", "even shares", "spread")] == [None] * 4


def test_a_partition_without_a_leader_is_a_fault() -> None:
    found = judgement("leaders", with_partition(facts(), 7, Partition(-1, (1, 2, 3), (1,))))
    assert (found.verdict, "diem.updates/7" in found.found) == (FAULT, True)


def test_lagging_replicas_are_a_warning_and_a_fault_once_writes_are_refused() -> None:
    assert judgement("in sync", with_partition(facts(), 0, Partition(1, (1, 2, 3), (1, 2)))).verdict is WARNING
    assert judgement("in sync", with_partition(facts(), 0, Partition(1, (1, 2, 3), (1,)))).verdict is FAULT


def test_leaders_on_one_broker_are_moved_back_or_spread() -> None:
    given = facts()
    crowded = {n: part._replace(leader=1) for n, part in given.topic.partitions.items()}
    moved = Topic(UPDATES, "id", crowded)
    found = judgement("spread", replace(given, cluster=given.cluster._replace(topics={UPDATES: moved})))
    assert found.verdict is WARNING
    assert found.commands[0].startswith("kafka-leader-election.sh")
    assert "--admin.config client.properties" in found.commands[0]
    fixed = Topic(UPDATES, "id", dict.fromkeys(range(12), Partition(1, (1, 2, 3), (1, 2, 3))))
    found = judgement("spread", replace(given, cluster=given.cluster._replace(topics={UPDATES: fixed})))
    assert found.commands[0].startswith("kafka-reassign-partitions.sh")
