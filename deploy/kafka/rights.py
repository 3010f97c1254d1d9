"""Rights of each role in a cluster: one list for ``diem topics --print`` and for the users of a local Kafka; pure."""

from collections.abc import Iterator
from typing import Final, NamedTuple

from deploy.topology.kafka_users import KafkaUser
from diem.kafka.config import Names
from diem.kafka.topic_config import INTERNAL

ROLES: Final = (
    KafkaUser.DATA,
    KafkaUser.BRIDGE,
    KafkaUser.METADATA,
    KafkaUser.EDGE,
    KafkaUser.PIPELINE,
    KafkaUser.CHECK,
)
"""Roles with distinct rights; a composite has those of all its children."""
COMPOSITE: Final = (KafkaUser.BRIDGE, KafkaUser.METADATA, KafkaUser.EDGE)


CLUSTER: Final = "kafka-cluster"
"""Name of the only ``cluster`` resource."""


class Right(NamedTuple):
    """Operations of a role on a resource."""

    role: KafkaUser
    operations: tuple[str, ...]
    resource: str
    """``topic``, ``group``, ``transactional-id`` or ``cluster``."""
    name: str
    prefixed: bool = False
    """True if the name is a prefix."""


class Purpose(NamedTuple):
    """Rights that serve one purpose."""

    why: tuple[str, ...]
    rights: tuple[Right, ...]
    outdated: bool = False
    """True if only brokers that nobody should run need them."""


def purposes(names: Names) -> Iterator[Purpose]:
    """Yield the rights used by roles if the topics exist.

    ``Read`` and ``Write`` imply ``Describe``, listed for clarity.
    """
    data, bridge, metadata, edge, pipeline, check = ROLES
    prefix = names.prefix
    if names.served:
        yield from _purposes_of_served(names)
        return
    yield Purpose(
        ("The Data Service writes updates, and reads the topics' settings and latest updates first.",),
        tuple(Right(data, ("Read", "Write", "Describe", "DescribeConfigs"), "topic", topic) for topic in names.log),
    )
    yield Purpose(
        ("It creates the first partition map in one transaction, and reads later ones.",),
        (
            Right(data, ("Read", "Write", "Describe", "DescribeConfigs"), "topic", names.partition_map),
            Right(data, ("Write", "Describe"), "transactional-id", names.map_writer),
        ),
    )
    yield Purpose(
        ("Only for brokers older than 3.0, which require it of an idempotent producer:",),
        (Right(data, ("IdempotentWrite",), "cluster", CLUSTER),),
        outdated=True,
    )
    yield Purpose(
        ("Bridges read and commit offsets: on the X axis in groups of their own, on the Z axis in shared groups.",),
        (
            *(Right(bridge, ("Read", "Describe"), "topic", topic) for topic in names.topics),
            *(Right(bridge, ("Read", "Describe"), "group", prefix + axis, prefixed=True) for axis in ("x-", "z-")),
        ),
    )
    yield Purpose(
        (
            "Only for partitioned modes: the metadata service reads the map and the owners of partitions.",
            "To apply plans, it writes the map, and adds the partitions that a plan needs to the topic (Alter).",
        ),
        (
            Right(metadata, ("Describe", "Alter"), "topic", names.updates),
            Right(metadata, ("Read", "Write", "Describe"), "topic", names.partition_map),
            Right(metadata, ("Write", "Describe"), "transactional-id", names.map_writer),
            Right(metadata, ("Describe",), "group", f"{prefix}z-", prefixed=True),
        ),
    )
    yield Purpose(
        ("Where traffic is recorded in Kafka: `diem pipeline` reads what servers, proxies and Data Service write.",),
        (
            *(Right(role, ("Write", "Describe"), "topic", names.traffic) for role in (edge, data)),
            Right(pipeline, ("Read", "Describe"), "topic", names.traffic),
            Right(pipeline, ("Read", "Describe"), "group", names.pipeline, prefixed=True),
        ),
    )
    yield Purpose(
        ("`diem check` reads settings.",),
        (
            *(Right(check, ("Describe", "DescribeConfigs"), "topic", topic) for topic in (*names.topics, *INTERNAL)),
            Right(check, ("Describe", "DescribeConfigs"), "cluster", CLUSTER),
        ),
    )


def _purposes_of_served(names: Names) -> Iterator[Purpose]:
    groups = tuple(names.prefix + axis for axis in ("x-", "z-"))
    yield Purpose(
        ("Bridges read the topic that is served as it is, and commit offsets.",),
        (
            Right(KafkaUser.BRIDGE, ("Read", "Describe", "DescribeConfigs"), "topic", names.served),
            *(Right(KafkaUser.BRIDGE, ("Read", "Describe"), "group", group, prefixed=True) for group in groups),
        ),
    )
    yield Purpose(
        ("They agree on versions in a topic of their own, which the first one makes.",),
        (Right(KafkaUser.BRIDGE, ("Create", "Read", "Write", "Describe", "DescribeConfigs"), "topic", names.epochs),),
    )
    yield Purpose(
        ("Only for partitioned modes: the metadata service reads these, and the owners of partitions.",),
        (
            Right(KafkaUser.METADATA, ("Read", "Describe"), "topic", names.epochs),
            Right(KafkaUser.METADATA, ("Describe",), "group", groups[1], prefixed=True),
        ),
    )


def of_local_users(names: Names) -> Iterator[Right]:
    """Yield the rights of a local Kafka's users, without an administrator to create the topics."""
    needed = [right for purpose in purposes(names) if not purpose.outdated for right in purpose.rights]
    needed += [Right(KafkaUser.DATA, ("Create",), "topic", topic) for topic in (*names.topics, names.traffic)]
    needed.append(Right(KafkaUser.EDGE, ("Create",), "topic", names.traffic))
    yield from needed
    yield from (right._replace(role=KafkaUser.COMPOSITE) for right in needed if right.role in COMPOSITE)
