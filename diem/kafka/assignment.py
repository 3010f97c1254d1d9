"""Partition assignment of a group, read from its coordinator through Kafka's admin client."""

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
"""Kafka's other states, ``Empty`` and ``Dead``, say that nobody is in the group; so does a group that never was."""
WITHIN_S: Final = 3.0
"""Seconds for the two requests of one reading."""


class GroupDescription(NamedTuple):
    """One answer about a group."""

    clone: Clone
    foreign: int
    """Members whose client id is not one of ours: their partitions have no owner."""


async def read_assignment(admin: AIOKafkaAdminClient, group: str, topic: str) -> Clone:
    """The group as it is now: see :func:`read_group`."""
    return (await read_group(admin, group, topic)).clone


async def read_group(admin: AIOKafkaAdminClient, group: str, topic: str) -> GroupDescription:
    """The members of a group, and the owner of each partition of ``topic`` in this very generation.

    Owners are known of a stable group only. A group without members is ``unknown``. The coordinator is asked for each
    time, so that one that has moved is found. Takes up to 3 s.

    Raises:
        KafkaUnavailable: no answer in time, or no coordinator for the group now.
    """
    try:
        async with asyncio.timeout(WITHIN_S):
            answers = await admin.describe_consumer_groups([group])
    except (KafkaError, OSError, TimeoutError) as error:
        raise KafkaUnavailable("the cluster", f"group {group} cannot be read: {_text_of(error)}") from error
    error_code, _group, state, _type, _protocol, members, *_ = answers[0].groups[0]
    if error_code:
        raise KafkaUnavailable("the cluster", f"group {group} cannot be read: {for_code(error_code).__name__}")
    return _reading(state, members, topic)


async def list_clones(admin: AIOKafkaAdminClient, names: Names) -> set[int]:
    """The clones that have a group, also one without members; not those whose groups this user may not describe.

    Every broker is asked for the groups that it coordinates. Takes up to 3 s.

    Raises:
        KafkaUnavailable: a broker does not answer in time, or cannot say now.
    """
    try:
        async with asyncio.timeout(WITHIN_S):
            groups = await admin.list_consumer_groups()
    except (KafkaError, OSError, TimeoutError) as error:
        raise KafkaUnavailable("the cluster", f"the groups cannot be listed: {_text_of(error)}") from error
    return {number for group, *_ in groups if (number := names.clone_of(group)) is not None}


def _reading(state: str, members: Iterable[Any], topic: str) -> GroupDescription:
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
    # While it rebalances, the coordinator still shows members with what they had, or without anything.
    return GroupDescription(Clone(known, ours, owners if known == STABLE else {}), foreign)


def _partitions(assignment: bytes, topic: str) -> list[int] | None:
    """The member's partitions of ``topic``; None when these are not the bytes of an assignment."""
    if not assignment:
        return []
    try:
        decoded = ConsumerProtocolMemberAssignment.decode(assignment)
    except (ValueError, TypeError):
        return None
    return [partition for name, partitions in decoded.assignment or () if name == topic for partition in partitions]


def _text_of(error: Exception) -> str:
    return "no answer in time" if isinstance(error, TimeoutError) else f"{type(error).__name__} {error}".strip()
