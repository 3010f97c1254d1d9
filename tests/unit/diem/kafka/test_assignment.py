"""Parsing of a coordinator's description of a group."""

import pytest
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment

from diem.kafka.assignment import GroupDescription, _description
from diem.protocol.assignment import REBALANCING, STABLE, UNKNOWN, Clone, Owner, client_id

ONE = Owner("b001", "ws://i:1/ws", "ws://p:1/ws")
TWO = Owner("b002", "ws://i:2/ws", "ws://p:2/ws")


def member(name: str, **topics: list[int]) -> tuple[str, str, str, bytes, bytes]:
    assigned = ConsumerProtocolMemberAssignment(0, list(topics.items()), b"").encode()
    return "member-id", name, "/127.0.0.1", b"", assigned


def test_each_partition_of_the_topic_has_the_server_of_its_member() -> None:
    found = _description("Stable", [member(client_id(ONE), t=[0, 2], other=[7]), member(client_id(TWO), t=[1])], "t")
    assert found == GroupDescription(Clone(STABLE, {"b001": ONE, "b002": TWO}, {0: "b001", 2: "b001", 1: "b002"}), 0)


def test_a_member_without_partitions_is_a_member() -> None:
    bare = ("member-id", client_id(ONE), "/127.0.0.1", b"", b"")
    assert _description("Stable", [bare], "t") == GroupDescription(Clone(STABLE, {"b001": ONE}, {}), 0)


@pytest.mark.parametrize("state", ["PreparingRebalance", "CompletingRebalance"])
def test_a_rebalancing_group_has_no_owners(state: str) -> None:
    assert _description(state, [member(client_id(ONE), t=[0])], "t") == GroupDescription(
        Clone(REBALANCING, {"b001": ONE}, {}), 0
    )


@pytest.mark.parametrize("state", ["Empty", "Dead", ""])
def test_a_group_without_members_is_unknown(state: str) -> None:
    assert _description(state, [], "t") == GroupDescription(Clone(UNKNOWN, {}, {}), 0)


@pytest.mark.parametrize("name", ["", "aiokafka-0.14.0", "b001", "b001|one", "b001|one|two|three", "b001||ws://p"])
def test_members_that_are_no_servers_are_counted_and_own_nothing(name: str) -> None:
    found = _description("Stable", [member(name, t=[0]), member(client_id(TWO), t=[1])], "t")
    assert found == GroupDescription(Clone(STABLE, {"b002": TWO}, {1: "b002"}), 1)


@pytest.mark.parametrize("assigned", [b"x", b"\0\0\0\0\0\5", b"\0\0\0\0\0\1\0\1t\0\0\0\x09\0\0\0\0"])
def test_bytes_that_are_no_assignment_make_the_member_none_of_ours(assigned: bytes) -> None:
    broken = ("member-id", client_id(ONE), "/127.0.0.1", b"", assigned)
    assert _description("Stable", [broken], "t") == GroupDescription(Clone(STABLE, {}, {}), 1)
