"""Every rule, both ways: what passes, what does not, and what is to be changed."""

from dataclasses import replace
from typing import Any

import pytest

from deploy.check.facts import INTERNAL, Facts
from deploy.check.rule import Severity, audit
from deploy.check.rules import TABLE
from diem.kafka.metadata import Partition, Topic
from tests.unit.deploy.check.healthy import BESIDE, BROKER, UPDATES, cluster, facts, finding, judgement, topic

FAULT, WARNING, OK = Severity.FAULT, Severity.WARNING, Severity.OK
ALONE = {1: ("127.0.0.1", 9092)}


def small(**changes: Any) -> Facts:
    """One broker on loopback, as `diem up` starts it."""
    settings = {
        "authorizer.class.name": "",
        "controller.quorum.voters": "1@127.0.0.1:9093",
        "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "min.insync.replicas": "1",
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "transaction.state.log.replication.factor": "1",
    }
    topics = (topic(UPDATES, 12, 1, 1), *(topic(name, 1, 1, 1) for name in BESIDE))
    alone = cluster(*topics)._replace(brokers=ALONE)
    given = facts(of_topic={"min.insync.replicas": "1"}, of_broker=settings)
    plain = replace(given, cluster=alone, bootstrap_servers="127.0.0.1:9092", security_protocol="PLAINTEXT")
    return replace(plain, **changes)


def with_partition(given: Facts, number: int, partition: Partition) -> Facts:
    ours = given.topic
    changed = Topic(ours.name, ours.id, {**ours.partitions, number: partition})
    return replace(given, cluster=given.cluster._replace(topics={**given.cluster.topics, UPDATES: changed}))


def test_a_healthy_cluster_is_in_order_by_every_rule() -> None:
    findings = audit(facts(), TABLE)
    assert {each.rule.name for each in findings} == {rule.name for _, rules in TABLE for rule in rules}
    assert [each for each in findings if each.judgement.verdict is not OK] == []


def test_one_local_broker_is_in_order_when_no_loss_is_tolerated_and_not_when_one_is() -> None:
    assert {each.judgement.verdict for each in audit(small(tolerate=0), TABLE)} == {OK}
    faults = {each.rule.name for each in audit(small(), TABLE) if each.judgement.verdict is FAULT}
    assert faults == {"replication", "min in sync", "internal replication", "internal min in sync", "controllers"}


def test_every_finding_that_is_not_in_order_says_what_to_change() -> None:
    for given in (small(), facts(brokers={}), facts(cluster=cluster())):
        for each in audit(given, TABLE):
            if each.judgement.verdict is not OK:
                assert each.judgement.change or each.judgement.commands, each


def replicas(count: int, brokers: int = 3) -> Facts:
    return facts(cluster=cluster(topic(UPDATES, 12, count, brokers), brokers=brokers))


@pytest.mark.parametrize(("have", "tolerated", "verdict"), [(3, 1, OK), (1, 0, OK), (2, 1, FAULT), (1, 1, FAULT)])
def test_replication_is_two_for_every_tolerated_loss_and_one(have: int, tolerated: int, verdict: Severity) -> None:
    assert judgement("replication", replace(replicas(have), tolerate=tolerated)).verdict is verdict


def test_replication_tells_lost_updates_from_stopped_writes() -> None:
    assert "may lose updates" in judgement("replication", replicas(1)).found
    assert "stops the writes" in judgement("replication", replicas(2)).found


def test_replication_of_a_local_cluster_is_mended_by_diem_up() -> None:
    found = judgement("replication", small(started=frozenset({1})))
    assert found.commands == ("diem up --mode x --brokers 3 --replication 3",)
    assert "remove `kafka`" in found.change
    beyond = judgement("replication", small(started=frozenset({1}), tolerate=2))
    assert (beyond.verdict, "at most 3 brokers" in beyond.change) == (FAULT, True)


def test_replication_of_a_foreign_cluster_begins_with_more_brokers() -> None:
    found = judgement("replication", small())
    assert found.change.startswith("run 3 brokers")
    assert found.commands == (
        *(f"kafka-topics.sh --bootstrap-server 127.0.0.1:9092 --delete --topic {name}" for name in (UPDATES, *BESIDE)),
        "diem topics --bootstrap-servers 127.0.0.1:9092 --replication 3",
    )
    assert judgement("replication", replicas(1)).change.startswith("stop the Data Service, make the topics anew")


@pytest.mark.parametrize(
    ("value", "verdict", "said"),
    [
        ("2", OK, "2 of 3 replicas"),
        ("1", FAULT, "only the leader"),
        ("3", FAULT, "writes stop when 1 broker"),
        ("4", FAULT, "nothing can be written"),
    ],
)
def test_min_in_sync_is_one_more_than_may_be_lost(value: str, verdict: Severity, said: str) -> None:
    found = judgement("min in sync", facts(of_topic={"min.insync.replicas": value}))
    assert found.verdict is verdict
    assert said in found.found
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


def test_internal_replication_judges_topics_that_are_there_and_the_plan_for_those_that_are_not() -> None:
    there = facts(cluster=cluster(topic(UPDATES, 12), topic(INTERNAL[0], 6, 2), topic(INTERNAL[1], 6)))
    assert judgement("internal replication", there).verdict is WARNING
    lost = facts(cluster=cluster(topic(UPDATES, 12), topic(INTERNAL[0], 6, 1), topic(INTERNAL[1], 6)))
    assert judgement("internal replication", lost).verdict is FAULT
    planned = facts(cluster=cluster(topic(UPDATES, 12)), of_broker={"offsets.topic.replication.factor": "1"})
    found = judgement("internal replication", planned)
    assert (found.verdict, found.commands) == (FAULT, ("offsets.topic.replication.factor=3",))


def test_internal_min_in_sync_judges_topics_that_are_there_and_the_plan_for_those_that_are_not() -> None:
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


def test_machines_that_are_shared_are_named() -> None:
    given = facts()
    together = given.cluster._replace(brokers={n: ("a.example", 9000 + n) for n in (1, 2, 3)})
    assert judgement("machines", replace(given, cluster=together)).verdict is WARNING
    assert finding("machines", replace(given, cluster=together, tolerate=0)) is None


def test_auto_creation_is_off_everywhere() -> None:
    given = facts()
    one = {**given.brokers, 2: {**BROKER, "auto.create.topics.enable": "true"}}
    found = judgement("auto creation", replace(given, brokers=one))
    assert (found.verdict, "broker 2" in found.found) == (FAULT, True)


def test_a_broker_that_has_replicas_or_was_started_and_is_not_there_is_missing() -> None:
    given = facts()
    gone = given.cluster._replace(brokers={n: given.cluster.brokers[n] for n in (1, 2)})
    assert "missing: 3" in judgement("brokers", replace(given, cluster=gone)).found
    assert judgement("brokers", replace(given, started=frozenset({1, 4}))).verdict is FAULT
    assert "without an answer: 2" in judgement("brokers", replace(given, silent=frozenset({2}))).found


def test_a_missing_topic_is_one_fault_and_nothing_else_is_said_of_it() -> None:
    given = facts(cluster=cluster())
    assert judgement("topic", given).verdict is FAULT
    assert [finding(name, given) for name in ("replication", "cleanup policy", "even shares", "spread")] == [None] * 4


def test_a_partition_without_a_leader_is_a_fault() -> None:
    found = judgement("leaders", with_partition(facts(), 7, Partition(-1, (1, 2, 3), (1,))))
    assert (found.verdict, "diem.updates/7" in found.found) == (FAULT, True)


def test_replicas_behind_are_a_warning_and_a_fault_once_writes_are_refused() -> None:
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


@pytest.mark.parametrize("value", ["compact,delete", "delete"])
def test_anything_but_compaction_alone_is_a_fault(value: str) -> None:
    found = judgement("cleanup policy", facts(of_topic={"cleanup.policy": value}))
    assert (found.verdict, "quiet" in found.found) == (FAULT, True)
    assert found.commands[0].endswith("--add-config cleanup.policy=compact")


def test_a_cleaner_that_is_off_is_a_fault_and_one_that_cannot_be_switched_off_is_not() -> None:
    assert judgement("cleaner", facts(of_broker={"log.cleaner.enable": "false"})).verdict is FAULT
    assert judgement("cleaner", facts(of_broker={"log.cleaner.enable": "absent"})).verdict is OK


def test_slow_compaction_is_a_warning_with_one_command_and_faster_than_ours_is_in_order() -> None:
    slow = {"segment.ms": "604800000", "min.cleanable.dirty.ratio": "0.5", "segment.bytes": "1048576"}
    found = judgement("compaction pace", facts(of_topic=slow))
    assert found.verdict is WARNING
    assert found.commands[0].endswith("--add-config segment.ms=600000,min.cleanable.dirty.ratio=0.1")
    assert judgement("compaction pace", facts(of_topic={"segment.ms": "1000"})).verdict is OK


@pytest.mark.parametrize(("value", "verdict"), [("131072", OK), ("1000", FAULT), ("1048588", WARNING)])
def test_the_topic_takes_what_the_producer_sends_and_little_more(value: str, verdict: Severity) -> None:
    assert judgement("record size", facts(of_topic={"max.message.bytes": value})).verdict is verdict


def test_other_settings_are_compared_with_ours() -> None:
    given = facts(of_topic={"message.timestamp.type": "LogAppendTime"})
    assert judgement("other settings", given).verdict is WARNING


def counted(count: int, *planned: int) -> Facts:
    return facts(cluster=cluster(topic(UPDATES, count)), planned=planned)


def test_fewer_partitions_than_servers_leave_some_without_work() -> None:
    found = judgement("enough partitions", counted(5, 1, 2, 3, 4, 6, 12))
    assert found.verdict is FAULT
    assert "of 12 servers 7 get none" in found.found
    assert "12 (1.00)" in found.change
    assert found.commands[-1].endswith("--partitions 12")
    assert judgement("enough partitions", counted(12, 12)).verdict is OK


def test_sizes_that_do_not_divide_the_count_are_graded() -> None:
    found = judgement("even shares", counted(12, 1, 4, 5, 8))
    assert found.verdict is WARNING
    assert "12 among 1, 4: even" in found.found
    assert "5: the busiest has 1.25 x the mean, 8: the busiest has 1.33 x the mean" in found.found
    assert judgement("even shares", counted(120, 1, 2, 3, 4, 5, 6, 8, 10, 12)).verdict is OK


def test_replicas_are_spread_evenly_when_leaders_need_not_be() -> None:
    four = facts(cluster=cluster(topic(UPDATES, 12, 3, 4), brokers=4))
    assert judgement("even replicas", four).verdict is OK
    five = facts(cluster=cluster(topic(UPDATES, 12, 3, 5), brokers=5))
    found = judgement("even replicas", five)
    assert (found.verdict, "15" in found.change) == (WARNING, True)


def test_too_many_partitions_are_counted_over_all_topics() -> None:
    crowd = facts(cluster=cluster(topic(UPDATES, 12), *(topic(f"other-{n}", 1000) for n in range(7))))
    found = judgement("not too many", crowd)
    assert found.verdict is WARNING
    assert "21036 replicas on 3 brokers, 2338 led by each: 11.69 s" in found.found


@pytest.mark.parametrize(
    ("rule", "spoilt"),
    [
        ("acks", {"producer": {"acks": 1, "enable_idempotence": True}}),
        ("acks", {"producer": {}}),
        ("idempotence", {"producer": {"acks": "all"}}),
        ("commits", {"consumer": {"enable_auto_commit": True}}),
        ("commits", {"consumer": {}}),
        ("start", {"consumer": {"auto_offset_reset": "latest"}}),
    ],
)
def test_clients_that_lose_or_reorder_updates_are_faults(rule: str, spoilt: dict[str, Any]) -> None:
    assert judgement(rule, facts(**spoilt)).verdict is FAULT


def test_a_producer_that_gives_up_before_a_new_leader_is_there_is_a_warning() -> None:
    assert judgement("patience", facts(of_broker={"broker.session.timeout.ms": "30000"})).verdict is WARNING


@pytest.mark.parametrize(
    ("listeners", "protocols", "verdict"),
    [
        ("A://:9092", "A:SASL_SSL", OK),
        ("A://0.0.0.0:9092", "A:SSL", OK),
        ("A://0.0.0.0:9092", "A:PLAINTEXT", FAULT),
        ("PLAINTEXT://:9092", "", FAULT),
        ("A://[::1]:9092,B://127.0.0.1:1,C://localhost:2", "A:PLAINTEXT,B:PLAINTEXT,C:PLAINTEXT", OK),
        ("A://10.0.0.1:9092", "A:SASL_PLAINTEXT", WARNING),
        ("A://:9092,CONTROLLER://10.0.0.1:9093", "A:SSL,CONTROLLER:PLAINTEXT", FAULT),
    ],
)
def test_nothing_is_spoken_in_the_clear_outside_loopback(listeners: str, protocols: str, verdict: Severity) -> None:
    given = facts(of_broker={"listeners": listeners, "listener.security.protocol.map": protocols})
    assert judgement("listeners", given).verdict is verdict


def test_our_own_connection_is_encrypted_when_it_leaves_the_machine() -> None:
    assert judgement("connection", facts(security_protocol="SASL_PLAINTEXT")).verdict is FAULT
    assert judgement("connection", small(bootstrap_servers="[::1]:9092,localhost:9093")).verdict is OK


def test_a_cluster_that_others_reach_needs_an_authorizer() -> None:
    assert judgement("authorizer", facts(of_broker={"authorizer.class.name": ""})).verdict is FAULT


@pytest.mark.parametrize(("value", "verdict"), [("absent", OK), ("false", OK), ("true", FAULT), (None, WARNING)])
def test_what_has_no_rule_is_closed(value: str | None, verdict: Severity) -> None:
    given = facts(of_broker={"allow.everyone.if.no.acl.found": value})
    assert judgement("no rule, no right", given).verdict is verdict


def test_what_may_not_be_seen_is_a_warning() -> None:
    hidden = facts(brokers={}, topics={})
    for rule in ("auto creation", "listeners", "authorizer", "cleanup policy", "min in sync", "controllers"):
        found = judgement(rule, hidden)
        assert (found.verdict, "does not show" in found.found) == (WARNING, True), rule


def with_topics(given: Facts, *topics: Topic) -> Facts:
    changed = {**given.cluster.topics, **{each.name: each for each in topics}}
    return replace(given, cluster=given.cluster._replace(topics=changed))


def test_a_missing_topic_of_hot_updates_or_of_the_map_is_a_fault() -> None:
    given = facts(cluster=cluster(topic(UPDATES, 12), topic(BESIDE[0], 1)))
    found = judgement("hot and map", given)
    assert (found.verdict, found.commands) == (FAULT, ("diem topics --bootstrap-servers a.example:9092",))
    assert found.found == "there is no topic diem.partition-map, or this user may not see it"


@pytest.mark.parametrize(("count", "replicas"), [(2, 3), (1, 2)])
def test_hot_updates_and_the_map_have_one_partition_and_as_many_replicas_as_updates(count: int, replicas: int) -> None:
    found = judgement("hot and map", with_topics(facts(), topic(BESIDE[1], count, replicas)))
    assert found.verdict is FAULT
    assert found.commands[0].endswith("--delete --topic diem.partition-map")
    more = with_topics(facts(), topic(BESIDE[1], 1, 5, 5))
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
    spoilt = {**given.topics, BESIDE[0]: {**given.topics[BESIDE[0]], key: value}}
    found = judgement("hot and map", replace(given, topics=spoilt))
    assert found.verdict is verdict
    if verdict is FAULT:
        assert found.commands[0].endswith(f"--entity-name {BESIDE[0]} --add-config {key}={given.wanted[key]}")


def test_a_map_that_refuses_writes_is_a_fault_though_the_updates_take_them() -> None:
    alone = Topic(BESIDE[1], "id", {0: Partition(1, (1, 2, 3), (1,))})
    found = judgement("in sync", with_topics(facts(), alone))
    assert (found.verdict, "fewer than 2 in sync" in found.found) == (FAULT, True)
