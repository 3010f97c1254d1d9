"""Facts of a cluster without faults for N = 1, and helpers to change them."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from bridge.consumer import CONSUMER
from diem.kafka.config import KafkaOptions
from diem.kafka.metadata import Cluster, Partition, Topic
from diem.kafka.topic_config import INTERNAL
from diem.kafka.topics import updates_spec
from services.data.publisher.log import PRODUCER
from tools.check.facts import Facts, Judgement, RuleResult
from tools.check.report import audit

UPDATES = "diem.updates"
SIDE_TOPICS = ("diem.updates.hot", "diem.partition-map")
BROKER = {
    "auto.create.topics.enable": "false",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "broker.session.timeout.ms": "9000",
    "controller.quorum.bootstrap.servers": "",
    "controller.quorum.voters": "1@a:9093,2@b:9093,3@c:9093",
    "listeners": "CLIENTS://:9092,CONTROLLER://:9093",
    "listener.security.protocol.map": "CLIENTS:SASL_SSL,CONTROLLER:SSL",
    "log.cleaner.enable": "true",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "transaction.state.log.replication.factor": "3",
}
INTERNAL_TOPIC = {"min.insync.replicas": "2", "unclean.leader.election.enable": "false"}


def topic(name: str, count: int, replicas: int = 3, brokers: int = 3) -> Topic:
    def placed(number: int) -> Partition:
        nodes = tuple((number + copy) % brokers + 1 for copy in range(replicas))
        return Partition(nodes[0], nodes, nodes)

    return Topic(name, f"id of {name}", {number: placed(number) for number in range(count)})


def cluster(*topics: Topic, brokers: int = 3) -> Cluster:
    hosts = {number: (f"{chr(96 + number)}.example", 9092) for number in range(1, brokers + 1)}
    return Cluster("cluster", 1, hosts, {each.name: each for each in topics})


def facts(**changes: Any) -> Facts:
    """Healthy facts with other fields; `of_topic` changes the updates topic's settings, `of_broker` every broker's."""
    of_topic, of_broker = changes.pop("of_topic", {}), changes.pop("of_broker", {})
    wanted = updates_spec(KafkaOptions(""), 3).config
    good = Facts(
        bootstrap_servers="a.example:9092",
        security_protocol="SASL_SSL",
        cluster=cluster(topic(UPDATES, 12), *_side_topics(), *(topic(name, 6) for name in INTERNAL)),
        updates=UPDATES,
        wanted=wanted,
        topics={
            UPDATES: _changed(wanted, of_topic),
            **dict.fromkeys(SIDE_TOPICS, wanted),
            **dict.fromkeys(INTERNAL, INTERNAL_TOPIC),
        },
        brokers={number: _changed(BROKER, of_broker) for number in (1, 2, 3)},
        producer=PRODUCER,
        consumer=CONSUMER,
        side_topics=SIDE_TOPICS,
    )
    return replace(good, **changes)


def _side_topics() -> tuple[Topic, ...]:
    return tuple(topic(name, 1) for name in SIDE_TOPICS)


def finding(rule: str, given: Facts) -> RuleResult | None:
    found = [each for each in audit(given) if each.rule.name == rule]
    return found[0] if found else None


def judgement(rule: str, given: Facts) -> Judgement:
    found = finding(rule, given)
    assert found is not None, f"the rule {rule!r} says nothing"
    return found.judgement


def _changed(settings: Mapping[str, str], changes: Mapping[str, str | None]) -> dict[str, str | None]:
    """A change to the text "absent" removes a setting; None is a hidden value."""
    return {key: value for key, value in {**settings, **changes}.items() if value != "absent"}


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
    topics = (topic(UPDATES, 12, 1, 1), *(topic(name, 1, 1, 1) for name in SIDE_TOPICS))
    alone = cluster(*topics)._replace(brokers=ALONE)
    given = facts(of_topic={"min.insync.replicas": "1"}, of_broker=settings)
    plain = replace(given, cluster=alone, bootstrap_servers="127.0.0.1:9092", security_protocol="PLAINTEXT")
    return replace(plain, **changes)


def with_partition(given: Facts, number: int, partition: Partition) -> Facts:
    ours = given.topic
    changed = Topic(ours.name, ours.id, {**ours.partitions, number: partition})
    return replace(given, cluster=given.cluster._replace(topics={**given.cluster.topics, UPDATES: changed}))
