"""Specifications of the topics, comparison with existing topics, and creation."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from aiokafka.admin import NewTopic
from aiokafka.admin.config_resource import ConfigResourceType
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import KafkaError, TopicAlreadyExistsError, UnknownTopicOrPartitionError, for_code
from aiokafka.protocol.admin import DescribeConfigsRequest

from diem.kafka.client import REQUEST_TIMEOUT_MS, admin_client, connected_client, require_controller
from diem.kafka.config import PARTITIONS, KafkaOptions
from diem.kafka.errors import KafkaUnavailable, WrongTopic
from diem.kafka.map_reader import read_map
from diem.kafka.metadata import Cluster, Topic, describe
from diem.kafka.topic_config import TIMESTAMP_TYPE, TRAFFIC_CONFIG, TRAFFIC_PARTITIONS, UPDATES_CONFIG
from diem.protocol.partition_map import PartitionMap

# Wrong values of these lose or stop updates.
_MUST_HOLD: Final = ("cleanup.policy", "unclean.leader.election.enable", "compression.type", "min.insync.replicas")
# With wrong values of these, brokers may refuse records, which are then sent without data (or wait). The rest affects
# performance only, and is reported by ``diem check``.
_SHOULD_HOLD: Final = ("max.message.bytes", TIMESTAMP_TYPE)
_AT_LEAST: Final = frozenset({"min.insync.replicas", "max.message.bytes"})
DEFAULT_REPLICATION: Final = 3


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """Specification of a topic."""

    name: str
    partitions: int
    replication: int
    config: Mapping[str, str]


def specs(options: KafkaOptions, brokers: int, partitions: int | None = None) -> list[TopicSpec]:
    """Return the specifications of the topics of updates, of hot updates and of the partition map.

    With three replicas, two must store a record before its acknowledgement: losing one broker loses no acknowledged
    record (N = 1 in the thesis' guideline 7.2: min.insync.replicas N + 1, replication 2 N + 1).

    Args:
        options: names and configured sizes.
        brokers: number of brokers, a bound of the replication.
        partitions: of the updates topic, if the partition map determines it.
    """
    replication = options.replication or min(DEFAULT_REPLICATION, brokers)
    config = {**UPDATES_CONFIG, "min.insync.replicas": str(min_insync(replication))}
    names, count = options.names, partitions or options.partitions or PARTITIONS
    sizes = {names.updates: count, names.hot: 1, names.partition_map: 1}
    return [TopicSpec(name, size, replication, config) for name, size in sizes.items()]


def updates_spec(options: KafkaOptions, brokers: int) -> TopicSpec:
    """Return the specification of the updates topic."""
    return specs(options, brokers)[0]


def traffic_spec(options: KafkaOptions, brokers: int) -> TopicSpec:
    """Return the specification of the topic of recorded traffic."""
    replication = options.replication or min(DEFAULT_REPLICATION, brokers)
    return TopicSpec(options.names.traffic, TRAFFIC_PARTITIONS, replication, TRAFFIC_CONFIG)


def min_insync(replication: int) -> int:
    """Return the number of replicas that must store a record before its acknowledgement: a majority."""
    return replication // 2 + 1


def differences(spec: TopicSpec, options: KafkaOptions, topic: Topic, config: Mapping[str, str]) -> Iterator[str]:
    """Yield the faults of an existing topic, one line each, with the remedy."""
    count, replicas = len(topic.partitions), min(len(part.replicas) for part in topic.partitions.values())
    if topic.name != options.names.updates and count != spec.partitions:
        yield f"it has {count} partitions, it must have 1: delete it, and it is recreated"
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
    yield from _other_values(topic.name, config, needed, "it must be")


def lesser_differences(spec: TopicSpec, config: Mapping[str, str]) -> Iterator[str]:
    """Yield the wrong but harmless settings of an existing topic, with the remedy."""
    for line in _other_values(spec.name, config, {name: spec.config[name] for name in _SHOULD_HOLD}, "it should be"):
        yield f"topic {spec.name}: {line}"


def _other_values(topic: str, config: Mapping[str, str], needed: Mapping[str, str], what: str) -> Iterator[str]:
    for name, wanted in needed.items():
        if config.get(name) != wanted and not _is_more(name, config.get(name), wanted):
            yield (
                f"{name} is {config.get(name)}, {what} {wanted}: "
                f"kafka-configs.sh --alter --topic {topic} --add-config {name}={wanted}"
            )


def _is_more(name: str, value: str | None, wanted: str) -> bool:
    return name in _AT_LEAST and value is not None and value.isdigit() and int(value) > int(wanted)


def used_partitions(map_: PartitionMap) -> int:
    """Return the number of partitions of the updates topic that a map uses."""
    places = (place for entry in map_.entries.values() for place in entry if place is not None)
    return max(map_.head.partitions, 1 + max(places, default=0))


def check_room(updates: str, partitions: int, map_: PartitionMap) -> None:
    """Check that the topic ``updates`` has every partition used by the map.

    Raises:
        WrongTopic: it has fewer.
    """
    needed = used_partitions(map_)
    if needed > partitions:
        line = f"kafka-topics.sh --alter --topic {updates} --partitions {needed}"
        raise WrongTopic(updates, [f"it has {partitions} partitions, the partition map uses {needed}: {line}"])


async def ensure(options: KafkaOptions, partitions: int | None = None) -> Cluster:
    """Create missing topics, and compare existing ones with their specifications; return the cluster with all.

    Args:
        options: the cluster, and the configured sizes.
        partitions: of a new updates topic; by default those used by an existing partition map.

    Raises:
        KafkaUnavailable: the cluster does not answer, or refuses.
        WrongTopic: an existing topic has wrong settings.
    """
    names = options.names.topics
    async with connected_client(options) as client:
        cluster = await describe(client, *names)
        if missing := [name for name in names if name not in cluster.topics]:
            if options.names.updates in missing and options.names.partition_map not in missing and partitions is None:
                # Any other number would rehome every endpoint, and leave entries without a partition.
                map_ = await read_map(options)
                partitions = used_partitions(map_) if map_ else None
            wanted = specs(options, len(cluster.brokers), partitions)
            await create(options, *(spec for spec in wanted if spec.name in missing))
            cluster = await _until_there(client, names)
        if await _has_grown(options, len(cluster.topics[options.names.updates].partitions)):
            options = replace(options, partitions=None)
        await compare(client, options, cluster)
        return cluster


async def _has_grown(options: KafkaOptions, count: int) -> bool:
    """Return whether plans have grown the updates topic beyond the configured partitions, still used by the hash."""
    if options.partitions is None or count <= options.partitions:
        return False
    map_ = await read_map(options)
    return map_ is not None and map_.head.partitions == options.partitions


async def ensure_traffic(options: KafkaOptions) -> list[int]:
    """Create the topic of recorded traffic if missing; return its partitions. Any settings are accepted.

    Raises:
        KafkaUnavailable: the cluster does not answer, or refuses.
    """
    name = options.names.traffic
    async with connected_client(options) as client:
        cluster = await describe(client, name)
        if name not in cluster.topics:
            await create(options, traffic_spec(options, len(cluster.brokers)))
            cluster = await _until_there(client, [name])
        return sorted(cluster.topics[name].partitions)


async def create(options: KafkaOptions, *wanted: TopicSpec) -> None:
    """Create topics; topics already existing are accepted.

    Raises:
        KafkaUnavailable: one could not be created.
    """
    new = [NewTopic(spec.name, spec.partitions, spec.replication, topic_configs=dict(spec.config)) for spec in wanted]
    async with admin_client(options) as admin:
        await require_controller(admin, options)
        answer = await admin.create_topics(new)
    outcomes = {topic: (code, rest[0] if rest else "") for topic, code, *rest in answer.topic_errors}
    for spec in wanted:
        code, reason = outcomes[spec.name]
        kind = for_code(code)
        if code and kind is not TopicAlreadyExistsError:
            why = f"topic {spec.name} was not made: {reason or kind.__name__}"
            raise KafkaUnavailable(options.bootstrap_servers, why)


async def _until_there(client: AIOKafkaClient, names: Sequence[str]) -> Cluster:
    for _ in range(50):
        cluster = await describe(client, *names)
        there = [cluster.topics[name] for name in names if name in cluster.topics]
        if len(there) == len(names) and all(part.leader >= 0 for topic in there for part in topic.partitions.values()):
            return cluster
        await asyncio.sleep(0.1)
    raise KafkaUnavailable("the cluster", f"the topics {', '.join(names)} were created, and not all of them appear")


Settings = dict[str, dict[str, str]]
"""Topic -> name of a setting -> its value."""
ATTEMPTS: Final = 10
PAUSE_S: Final = 0.5
"""Brokers learn of a change one by one, usually within milliseconds; they have 5 s to agree."""


class UnknownToBroker(KafkaUnavailable):
    """A broker does not know a topic created a moment ago."""


async def compare(client: AIOKafkaClient, options: KafkaOptions, cluster: Cluster) -> list[str]:
    """Compare our topics, all of which are in ``cluster``, with their specifications; return the lesser differences.

    A single broker proves nothing: it may not yet know of a topic's creation or change. All brokers describe the
    topics, repeatedly while they differ; any fault in the last answers counts.

    Raises:
        KafkaUnavailable: no broker answers, or one refuses.
        WrongTopic: a topic has wrong settings.
    """
    for left in reversed(range(ATTEMPTS)):
        try:
            outcomes = await settings_in_force(client, *cluster.topics)
        except UnknownToBroker:
            if not left:
                raise
        else:
            found = [_faults(options, cluster, settings) for settings in outcomes]
            if not left or all(each == found[0] for each in found):
                break
        await asyncio.sleep(PAUSE_S)
    ours = specs(options, len(cluster.brokers))
    for spec in ours:
        if lines := dict.fromkeys(line for each in found for line in each[spec.name]):
            raise WrongTopic(spec.name, lines)
    return [line for spec in ours for line in lesser_differences(spec, outcomes[0][spec.name])]


def _faults(options: KafkaOptions, cluster: Cluster, settings: Settings) -> dict[str, list[str]]:
    """Return the faults of each topic by one broker's description."""
    return {
        spec.name: list(differences(spec, options, cluster.topics[spec.name], settings[spec.name]))
        for spec in specs(options, len(cluster.brokers))
    }


async def settings_in_force(client: AIOKafkaClient, *topics: str) -> list[Settings]:
    """Return the settings of topics, from each broker that answers. Takes at most 3 s.

    Raises:
        UnknownToBroker: one does not know a topic.
        KafkaUnavailable: no broker answers, or one refuses.
    """
    nodes = [broker.nodeId for broker in client.cluster.brokers()]
    answers = await asyncio.gather(
        *(_describe_settings(client, node, topics) for node in nodes), return_exceptions=True
    )
    found: list[Settings] = []
    fault: BaseException = KafkaUnavailable("the cluster", "no broker is known")
    for answer in answers:
        if isinstance(answer, dict):
            found.append(answer)
        elif isinstance(answer, (KafkaError, OSError, TimeoutError)):
            # An unavailable or hung broker is retried at the next call.
            fault = answer
        else:
            raise answer
    if not found:
        outcomes = f"its topics cannot be described: {type(fault).__name__} {fault}".strip()
        raise KafkaUnavailable("the cluster", outcomes) from fault
    return found


async def _describe_settings(client: AIOKafkaClient, node: int, topics: tuple[str, ...]) -> Settings:
    request = DescribeConfigsRequest([(ConfigResourceType.TOPIC, name, None) for name in topics])
    async with asyncio.timeout(REQUEST_TIMEOUT_MS / 1000):
        answer = await client.send(node, request)
    found: Settings = {}
    for code, outcomes, _kind, name, entries in answer.resources:
        if code:
            kind = UnknownToBroker if code == UnknownTopicOrPartitionError.errno else KafkaUnavailable
            reason = f"{name} cannot be described: {outcomes or for_code(code).__name__}"
            raise kind(f"broker {node}", reason)
        found[name] = {entry[0]: entry[1] for entry in entries}
    return found
