"""Description of the cluster: its id, its brokers, and topics with their ids.

The id distinguishes a topic from its replacement of the same name, in which old positions are meaningless. The
addresses of a client are internals of aiokafka (0.14).
"""

import asyncio
import random
import uuid
from collections.abc import Collection, Mapping
from io import BytesIO
from types import MappingProxyType
from typing import Any, ClassVar, Final, NamedTuple

from aiokafka.client import AIOKafkaClient
from aiokafka.errors import KafkaError, NodeNotReadyError
from aiokafka.protocol.abstract import AbstractType
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import (
    Boolean,
    CompactArray,
    CompactString,
    Int16,
    Int32,
    Schema,
    TaggedFields,
)

from diem.kafka.client import REQUEST_TIMEOUT_MS, diagnose
from diem.kafka.errors import NO_BROKER, KafkaUnavailable

METADATA: Final = 3


class _Uuid(AbstractType[uuid.UUID]):
    """A UUID as its 16 bytes."""

    @classmethod
    def encode(cls, value: uuid.UUID) -> bytes:
        return value.bytes

    @classmethod
    def decode(cls, data: BytesIO) -> uuid.UUID:
        return uuid.UUID(bytes=data.read(16))


NO_ID: Final = uuid.UUID(int=0)


class _Answer(Response):
    API_KEY = METADATA
    API_VERSION = 12
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "brokers",
            CompactArray(
                ("node_id", Int32),
                ("host", CompactString()),
                ("port", Int32),
                ("rack", CompactString()),
                ("tags", TaggedFields),
            ),
        ),
        ("cluster_id", CompactString()),
        ("controller_id", Int32),
        (
            "topics",
            CompactArray(
                ("error_code", Int16),
                ("name", CompactString()),
                ("topic_id", _Uuid),
                ("is_internal", Boolean),
                (
                    "partitions",
                    CompactArray(
                        ("error_code", Int16),
                        ("partition_index", Int32),
                        ("leader_id", Int32),
                        ("leader_epoch", Int32),
                        ("replica_nodes", CompactArray(Int32)),
                        ("isr_nodes", CompactArray(Int32)),
                        ("offline_replicas", CompactArray(Int32)),
                        ("tags", TaggedFields),
                    ),
                ),
                ("authorized_operations", Int32),
                ("tags", TaggedFields),
            ),
        ),
        ("tags", TaggedFields),
    )


class _Structure(RequestStruct):
    FLEXIBLE_VERSION: ClassVar[bool] = True
    API_KEY = METADATA
    API_VERSION = 12
    RESPONSE_TYPE = _Answer
    SCHEMA = Schema(
        (
            "topics",
            CompactArray(("topic_id", _Uuid), ("name", CompactString()), ("tags", TaggedFields)),
        ),
        ("allow_auto_topic_creation", Boolean),
        ("include_topic_authorized_operations", Boolean),
        ("tags", TaggedFields),
    )


class MetadataRequest(Request[_Structure]):
    """Metadata request for topics (None: all), each as id, name and tagged fields."""

    API_KEY = METADATA

    def __init__(self, topics: list[tuple[uuid.UUID, str, dict[int, bytes]]] | None) -> None:
        self._topics = topics

    def build(self, request_struct_class: type[_Structure]) -> _Structure:
        """Return the structure for the library's connections."""
        # Never creates topics: :mod:`diem.kafka.topics` does, with their configuration.
        return request_struct_class(self._topics, False, False, {})


MAX_BROKERS: Final = 3
"""Maximum number of brokers tried in sequence."""
_UNKNOWN_TOPIC: Final = 3
_NO_LEADER: Final = 5
_NOT_ALLOWED: Final = 29


class Partition(NamedTuple):
    """Replicas of one partition; ``leader`` is -1 while it has none."""

    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


class Topic(NamedTuple):
    """One topic."""

    name: str
    id: str
    partitions: Mapping[int, Partition]


class ReplicaFaults(NamedTuple):
    """Numbers of partitions that lack a replica."""

    leaderless: int = 0
    """Partitions without a leader, neither writable nor readable."""
    under_replicated: int = 0
    """Partitions with out-of-sync replicas, including those without a leader."""


class Cluster(NamedTuple):
    """Description of a cluster by one broker."""

    id: str
    controller: int
    brokers: Mapping[int, tuple[str, int]]
    topics: Mapping[str, Topic]
    racks: Mapping[int, str] = MappingProxyType({})
    """``broker.rack`` of the brokers with one."""

    def source(self, *topics: str) -> str | None:
        """Return the identity of the cluster and ``topics`` that positions belong to; None when a topic is missing."""
        found = [self.topics[name].id for name in topics if name in self.topics]
        return "/".join((self.id, *found)) if len(found) == len(topics) else None

    def replica_faults(self) -> ReplicaFaults:
        """Count the partitions of the described topics that lack a replica."""
        found = [part for topic in self.topics.values() for part in topic.partitions.values()]
        return ReplicaFaults(
            sum(part.leader < 0 for part in found), sum(len(part.isr) < len(part.replicas) for part in found)
        )


async def describe(client: AIOKafkaClient, *topics: str, avoid: Collection[int] = ()) -> Cluster:
    """Return the cluster with ``topics`` (default: all), by one broker's metadata.

    Brokers to ``avoid`` are tried last: they may accept connections and never answer.

    Raises:
        KafkaUnavailable: no broker answers or is active, or the topics are just being created.
    """
    request = MetadataRequest([(NO_ID, name, {}) for name in topics] if topics else None)
    known = [broker.nodeId for broker in client.cluster.brokers()]
    random.shuffle(known)
    alone = False
    # A dead or hung broker stays listed for minutes, so several are tried.
    for node in sorted(known, key=lambda number: number in avoid)[:MAX_BROKERS]:
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_MS / 1000):
                answer = await client.send(node, request)
        except (KafkaError, OSError, TimeoutError) as error:
            failed, fault = node, error
        else:
            if answer.brokers:
                return _cluster(client, answer)
            alone = True
    if not known:
        raise KafkaUnavailable(_servers(client), "no broker is known")
    if alone:
        raise KafkaUnavailable(_servers(client), NO_BROKER)
    reason = await _why(client, failed) if isinstance(fault, NodeNotReadyError) else ""
    raise KafkaUnavailable(_servers(client), reason or f"{type(fault).__name__} {fault}".strip()) from fault


def _cluster(client: AIOKafkaClient, answer: Any) -> Cluster:  # noqa: ANN401  # a structure of the library
    found = {}
    for code, name, topic_id, _internal, partitions, _operations, _tags in answer.topics:
        if code == _UNKNOWN_TOPIC:
            continue
        if code == _NOT_ALLOWED:
            raise KafkaUnavailable(_servers(client), f"this user has no rights to topic {name}")
        if code not in (0, _NO_LEADER):
            raise KafkaUnavailable(_servers(client), f"topic {name} cannot be described now (error {code})")
        found[name] = Topic(name, str(topic_id), {part[1]: _partition(part) for part in partitions})
    brokers = {node_id: (host, port) for node_id, host, port, _rack, _tags in answer.brokers}
    racks = {node_id: rack for node_id, _host, _port, rack, _tags in answer.brokers if rack}
    return Cluster(answer.cluster_id or "", answer.controller_id, brokers, found, racks)


def _servers(client: AIOKafkaClient) -> str:
    servers = client._bootstrap_servers  # noqa: SLF001  # it has no public name
    return servers if isinstance(servers, str) else ",".join(servers)


async def _why(client: AIOKafkaClient, node: int) -> str:
    broker = client.cluster.broker_metadata(node)
    return "" if broker is None else await diagnose(client, [(broker.host, broker.port)])


def _partition(part: tuple[Any, ...]) -> Partition:
    return Partition(part[2], tuple(part[4]), tuple(part[5]))
