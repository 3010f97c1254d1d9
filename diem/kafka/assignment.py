"""Partition assignment of a group, as described by its coordinator."""

import asyncio
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment
from aiokafka.errors import KafkaError, for_code

from diem.kafka.config import Names
from diem.kafka.errors import KafkaUnavailable
from diem.protocol.assignment import REBALANCING, STABLE, UNKNOWN, Clone, Owner, parse_client_id

_STATES: Final = {"Stable": STABLE, "PreparingRebalance": REBALANCING, "CompletingRebalance": REBALANCING}
"""Kafka's other states, ``Empty`` and ``Dead``, mean a group without members, or none."""
DESCRIBE_TIMEOUT_S: Final = 3.0
"""Timeout of the two requests of one description."""


class GroupDescription(NamedTuple):
    """Description of a group by its coordinator."""

    clone: Clone
    foreign: int
    """Number of members with a foreign client id: their partitions have no owner."""


async def read_assignment(admin: AIOKafkaAdminClient, group: str, topic: str) -> Clone:
    """Return the current members and owners of a group: see :func:`read_group`."""
    return (await read_group(admin, group, topic)).clone


async def read_group(admin: AIOKafkaAdminClient, group: str, topic: str) -> GroupDescription:
    """Return the members of a group, and the owner of each partition of ``topic`` in the current generation.

    Only a stable group has owners. A group without members is ``unknown``. The coordinator is looked up each time,
    because it may have moved. Takes at most 3 s.

    Raises:
        KafkaUnavailable: no answer in time, or the group has no coordinator now.
    """
    try:
        async with asyncio.timeout(DESCRIBE_TIMEOUT_S):
            answers = await admin.describe_consumer_groups([group])
    except (KafkaError, OSError, TimeoutError) as error:
        raise KafkaUnavailable("the cluster", f"group {group} cannot be read: {_reason(error)}") from error
    error_code, _group, state, _type, _protocol, members, *_ = answers[0].groups[0]
    if error_code:
        raise KafkaUnavailable("the cluster", f"group {group} cannot be read: {for_code(error_code).__name__}")
    return _description(state, members, topic)


async def list_clones(admin: AIOKafkaAdminClient, names: Names) -> set[int]:
    """Return the clones with a group, even an empty one, that this user may describe.

    Every broker lists the groups that it coordinates. Takes at most 3 s.

    Raises:
        KafkaUnavailable: a broker does not answer in time, or cannot now.
    """
    try:
        async with asyncio.timeout(DESCRIBE_TIMEOUT_S):
            groups = await admin.list_consumer_groups()
    except (KafkaError, OSError, TimeoutError) as error:
        raise KafkaUnavailable("the cluster", f"the groups cannot be listed: {_reason(error)}") from error
    return {number for group, *_ in groups if (number := names.clone_of(group)) is not None}


def _description(state: str, members: Iterable[Any], topic: str) -> GroupDescription:
    ours: dict[str, Owner] = {}
    owners: dict[int, str] = {}
    foreign = 0
    for _member_id, client_id, _host, _metadata, assignment in members:
        owner = parse_client_id(client_id)
        partitions = _partitions(assignment, topic)
        if owner is None or partitions is None:
            foreign += 1
            continue
        ours[owner.server] = owner
        owners |= dict.fromkeys(partitions, owner.server)
    known = _STATES.get(state, UNKNOWN)
    # During a rebalance, the coordinator reports members with their former partitions, or none.
    return GroupDescription(Clone(known, ours, owners if known == STABLE else {}), foreign)


def _partitions(assignment: bytes, topic: str) -> list[int] | None:
    """Return a member's partitions of ``topic``; None if the bytes are not an assignment."""
    if not assignment:
        return []
    try:
        decoded = ConsumerProtocolMemberAssignment.decode(assignment)
    except (ValueError, TypeError):
        return None
    return [partition for name, partitions in decoded.assignment or () if name == topic for partition in partitions]


def _reason(error: Exception) -> str:
    return "no answer in time" if isinstance(error, TimeoutError) else f"{type(error).__name__} {error}".strip()
