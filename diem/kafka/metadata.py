"""The cluster as it is: its id, its brokers, and topics with their ids.

A topic's id is what tells a topic from another one of the same name that replaced it: positions in the one mean nothing
in the other.
"""

import asyncio
import random
from collections.abc import Collection, Mapping
from typing import Any, Final, NamedTuple

from aiokafka.client import AIOKafkaClient
from aiokafka.errors import KafkaError, NodeNotReadyError

from diem.kafka.connecting import REQUEST_TIMEOUT_MS
from diem.kafka.errors import KafkaUnavailable
from diem.kafka.refusal import why
from diem.kafka.wire import NO_ID, MetadataRequest

ASKED: Final = 3
"""Brokers that are asked one after the other."""
_UNKNOWN_TOPIC: Final = 3
_NO_LEADER: Final = 5
_NOT_ALLOWED: Final = 29


class Partition(NamedTuple):
    """Where one partition is; ``leader`` is -1 while it has none."""

    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


class Topic(NamedTuple):
    """One topic."""

    name: str
    id: str
    partitions: Mapping[int, Partition]


class Cluster(NamedTuple):
    """What a broker says of its cluster."""

    id: str
    controller: int
    brokers: Mapping[int, tuple[str, int]]
    topics: Mapping[str, Topic]

    def source(self, *topics: str) -> str | None:
        """What positions in ``topics`` belong to: the cluster and these very topics; None when one is not there."""
        found = [self.topics[name].id for name in topics if name in self.topics]
        return "/".join((self.id, *found)) if len(found) == len(topics) else None


async def describe(client: AIOKafkaClient, *topics: str, avoid: Collection[int] = ()) -> Cluster:
    """The cluster with ``topics`` (all, when none is named), as one broker knows it now.

    Brokers to ``avoid`` are asked last: they may take connections, and never answer.

    Raises:
        KafkaUnavailable: no broker answers, or the topics are just being made.
    """
    request = MetadataRequest([(NO_ID, name, {}) for name in topics] if topics else None)
    known = [broker.nodeId for broker in client.cluster.brokers()]
    random.shuffle(known)
    # One that has died, or hangs, is known for minutes: the others are asked, too.
    for node in sorted(known, key=lambda number: number in avoid)[:ASKED]:
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_MS / 1000):
                return _cluster(client, await client.send(node, request))
        except (KafkaError, OSError, TimeoutError) as error:
            failed, fault = node, error
    if not known:
        raise KafkaUnavailable(_servers(client), "no broker is known")
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
    return Cluster(answer.cluster_id or "", answer.controller_id, brokers, found)


def _servers(client: AIOKafkaClient) -> str:
    servers = client._bootstrap_servers  # noqa: SLF001  # it has no public name
    return servers if isinstance(servers, str) else ",".join(servers)


async def _why(client: AIOKafkaClient, node: int) -> str:
    broker = client.cluster.broker_metadata(node)
    return "" if broker is None else await why(client, [(broker.host, broker.port)])


def _partition(part: tuple[Any, ...]) -> Partition:
    return Partition(part[2], tuple(part[4]), tuple(part[5]))
