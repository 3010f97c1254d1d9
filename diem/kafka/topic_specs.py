"""How our topics must be, and what is wrong with one that is otherwise (docs/protocol.md section 3). No I/O."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from diem.kafka.errors import WrongTopic
from diem.kafka.metadata import Topic
from diem.kafka.options import PARTITIONS, KafkaOptions
from diem.protocol.partition_map import PartitionMap

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
"""Settings of each of our topics (docs/protocol.md section 3); ``min.insync.replicas`` follows the replication."""
TRAFFIC_PARTITIONS: Final = 12
TRAFFIC_BATCH_BYTES: Final = 256 * 1024
TRAFFIC_CONFIG: Final[Mapping[str, str]] = {
    "cleanup.policy": "delete",
    "retention.ms": str(7 * 24 * 3600 * 1000),
    # A segment that is written to is not deleted.
    "segment.ms": str(24 * 3600 * 1000),
    "max.message.bytes": str(2 * TRAFFIC_BATCH_BYTES),
    "min.insync.replicas": "1",
    "unclean.leader.election.enable": "true",
    "compression.type": "producer",
}
"""Settings of the topic of recorded traffic (docs/traffic.md section 1), which may be altered as one likes."""
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


def specs(options: KafkaOptions, brokers: int, partitions: int | None = None) -> list[TopicSpec]:
    """The topics of updates, of hot updates and of the partition map, for a cluster of that many ``brokers``.

    With three replicas two must have a record before it counts: one broker may be lost, with nothing that was
    acknowledged (N = 1 in the thesis' guideline 7.2: min.insync.replicas N + 1, replication 2 N + 1).

    Args:
        options: their names, and what is configured of their sizes.
        brokers: there are no more replicas than these.
        partitions: of the updates topic, where the partition map already says so.
    """
    replication = options.replication or min(DEFAULT_REPLICATION, brokers)
    config = {**UPDATES_CONFIG, "min.insync.replicas": str(min_insync(replication))}
    names, count = options.names, partitions or options.partitions or PARTITIONS
    sizes = {names.updates: count, names.hot: 1, names.partition_map: 1}
    return [TopicSpec(name, size, replication, config) for name, size in sizes.items()]


def updates_spec(options: KafkaOptions, brokers: int) -> TopicSpec:
    """The updates topic alone."""
    return specs(options, brokers)[0]


def traffic_spec(options: KafkaOptions, brokers: int) -> TopicSpec:
    """The topic of recorded traffic, which exists only where traffic is recorded in Kafka."""
    replication = options.replication or min(DEFAULT_REPLICATION, brokers)
    return TopicSpec(options.names.traffic, TRAFFIC_PARTITIONS, replication, TRAFFIC_CONFIG)


def min_insync(replication: int) -> int:
    """Replicas that must have a record before it is acknowledged: a majority."""
    return replication // 2 + 1


def differences(spec: TopicSpec, options: KafkaOptions, topic: Topic, config: Mapping[str, str]) -> Iterator[str]:
    """What is wrong with an existing topic: one line each, with what to do about it."""
    count, replicas = len(topic.partitions), min(len(part.replicas) for part in topic.partitions.values())
    if topic.name != options.names.updates and count != spec.partitions:
        yield f"it has {count} partitions, it must have 1: delete it, and it is made again"
    elif topic.name == options.names.updates and options.partitions not in {None, count}:
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


def used_partitions(map_: PartitionMap) -> int:
    """Partitions of the updates topic that a map has a use for."""
    places = (place for entry in map_.entries.values() for place in entry if place is not None)
    return max(map_.head.partitions, 1 + max(places, default=0))


def check_room(updates: str, partitions: int, map_: PartitionMap) -> None:
    """See that the topic ``updates`` has every partition that the map uses; it may have more.

    Raises:
        WrongTopic: it has fewer.
    """
    needed = used_partitions(map_)
    if needed > partitions:
        line = f"kafka-topics.sh --alter --topic {updates} --partitions {needed}"
        raise WrongTopic(updates, [f"it has {partitions} partitions, the partition map uses {needed}: {line}"])
