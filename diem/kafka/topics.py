"""The topic of updates: how it must be, made when it is missing, compared when it is there."""

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from aiokafka.admin import NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import TopicAlreadyExistsError, for_code

from diem.kafka.admin import administering
from diem.kafka.connecting import connected
from diem.kafka.errors import KafkaUnavailable, WrongTopic
from diem.kafka.metadata import Cluster, Topic, describe
from diem.kafka.options import PARTITIONS, KafkaOptions

MAX_MESSAGE_BYTES: Final = 131072
UPDATES_CONFIG: Final[Mapping[str, str]] = {
    # Compaction alone: with "delete" beside it, an endpoint that has been quiet for long would lose its only copy.
    "cleanup.policy": "compact",
    "segment.ms": "600000",
    "segment.bytes": str(64 * 1024 * 1024),
    "max.compaction.lag.ms": "600000",
    "min.cleanable.dirty.ratio": "0.1",
    "max.message.bytes": str(MAX_MESSAGE_BYTES),
    "message.timestamp.type": "CreateTime",
    "unclean.leader.election.enable": "false",
    # As the publisher wrote it: brokers that compress anew may do so in ways that not every reader knows.
    "compression.type": "producer",
}
"""Settings of the updates topic (docs/protocol.md section 3); ``min.insync.replicas`` follows the replication."""
# What loses or stops updates when it is otherwise. The rest is a matter of speed, and `diem check` speaks of it.
_MUST_HOLD: Final = (
    "cleanup.policy",
    "unclean.leader.election.enable",
    "compression.type",
    "min.insync.replicas",
    "max.message.bytes",
)
_AT_LEAST: Final = frozenset({"min.insync.replicas", "max.message.bytes"})
DEFAULT_REPLICATION: Final = 3


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """A topic as it is to be made."""

    name: str
    partitions: int
    replication: int
    config: Mapping[str, str]


def updates_spec(options: KafkaOptions, brokers: int) -> TopicSpec:
    """The updates topic for a cluster of that many ``brokers``.

    With three replicas two must have a record before it counts: one broker may be lost, with nothing that was
    acknowledged (N = 1 in the thesis' guideline 7.2: min.insync.replicas N + 1, replication 2 N + 1).
    """
    replication = options.replication or min(DEFAULT_REPLICATION, brokers)
    in_sync = {"min.insync.replicas": str(min_insync(replication))}
    return TopicSpec(
        options.names.updates, options.partitions or PARTITIONS, replication, {**UPDATES_CONFIG, **in_sync}
    )


def min_insync(replication: int) -> int:
    """Replicas that must have a record before it is acknowledged: a majority."""
    return replication // 2 + 1


def differences(spec: TopicSpec, options: KafkaOptions, topic: Topic, config: Mapping[str, str]) -> Iterator[str]:
    """What is wrong with an existing topic: one line each, with what to do about it."""
    count, replicas = len(topic.partitions), min(len(part.replicas) for part in topic.partitions.values())
    if options.partitions is not None and count != options.partitions:
        yield (
            f"it has {count} partitions, {options.partitions} are configured: set DIEM_KAFKA_PARTITIONS to {count} "
            "(or leave it out), or take another topic prefix"
        )
    if options.replication is not None and replicas != options.replication:
        yield (
            f"it has {replicas} replicas, {options.replication} are configured: reassign its partitions, "
            f"or set DIEM_KAFKA_REPLICATION to {replicas}"
        )
    needed = {name: spec.config[name] for name in _MUST_HOLD} | {"min.insync.replicas": str(min_insync(replicas))}
    for name, wanted in needed.items():
        if config.get(name) != wanted and not _is_more(name, config.get(name), wanted):
            yield (
                f"{name} is {config.get(name)}, it must be {wanted}: "
                f"kafka-configs.sh --alter --topic {topic.name} --add-config {name}={wanted}"
            )


def _is_more(name: str, value: str | None, wanted: str) -> bool:
    return name in _AT_LEAST and value is not None and value.isdigit() and int(value) > int(wanted)


async def ensure(options: KafkaOptions) -> Cluster:
    """Make the updates topic if it is missing, else compare it; returns the cluster with it.

    Raises:
        KafkaUnavailable: the cluster does not answer, or does not let us.
        WrongTopic: the topic is there, and not as it must be.
    """
    name = options.names.updates
    async with connected(options) as client:
        cluster = await describe(client, name)
        spec = updates_spec(options, len(cluster.brokers))
        if name not in cluster.topics:
            await create(options, spec)
            cluster = await _until_there(client, name)
        config = await configuration(options, name)
        if faults := list(differences(spec, options, cluster.topics[name], config)):
            raise WrongTopic(name, faults)
        return cluster


async def create(options: KafkaOptions, spec: TopicSpec) -> None:
    """Make a topic; one that somebody else has just made is as good.

    Raises:
        KafkaUnavailable: it could not be made.
    """
    new = NewTopic(spec.name, spec.partitions, spec.replication, topic_configs=dict(spec.config))
    async with administering(options) as admin:
        answer = await admin.create_topics([new])
    for topic, code, *rest in answer.topic_errors:
        kind = for_code(code)
        if code and kind is not TopicAlreadyExistsError:
            said = (rest[0] if rest else "") or kind.__name__
            raise KafkaUnavailable(options.bootstrap_servers, f"topic {topic} was not made: {said}")


async def configuration(options: KafkaOptions, topic: str) -> dict[str, str]:
    """The settings of a topic as they are in force.

    Raises:
        KafkaUnavailable: the cluster does not say.
    """
    async with administering(options) as admin:
        answers = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
    found: dict[str, str] = {}
    for answer in answers:
        for code, said, _kind, name, entries in answer.resources:
            if code:
                raise KafkaUnavailable(options.bootstrap_servers, f"{name} cannot be described: {said or code}")
            found |= {entry[0]: entry[1] for entry in entries}
    return found


async def _until_there(client: AIOKafkaClient, name: str) -> Cluster:
    for _ in range(50):
        cluster = await describe(client, name)
        if name in cluster.topics and all(part.leader >= 0 for part in cluster.topics[name].partitions.values()):
            return cluster
        await asyncio.sleep(0.1)
    raise KafkaUnavailable("the cluster", f"topic {name} was made, and does not appear")
