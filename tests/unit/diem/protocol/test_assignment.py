"""Snapshots of owners: routing, their JSON, and the URLs in a member's client id."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diem.protocol.assignment import (
    BadSnapshot,
    Clone,
    Owner,
    Snapshot,
    client_id,
    decode,
    encode,
    member_id,
    parse_client_id,
)
from diem.protocol.partition_map import HOT, Entry, Head, PartitionMap, Phase

FIRST = Owner("b001", "ws://127.0.0.1:9101/ws", "ws://127.0.0.1:8101/ws")
SECOND = Owner("b002", "ws://127.0.0.1:9102/ws", "ws://127.0.0.1:8102/ws")
MAP = PartitionMap(Head(2, 7, Phase.MOVE), {b"/a": Entry(0), b"/b": Entry(0, 1), b"/h": Entry(HOT)})
CLONE = Clone("stable", {"b001": FIRST, "b002": SECOND}, {0: "b001", 1: "b002"})


def test_a_request_goes_to_the_owner_of_where_the_map_sends_clients() -> None:
    snapshot = Snapshot(MAP, {1: CLONE})
    assert snapshot.owner(b"/a", 1) == FIRST
    assert snapshot.owner(b"/b", 1) == SECOND
    assert snapshot.owner(b"/h", 1) is None
    assert snapshot.is_hot(b"/h")
    assert not snapshot.is_hot(b"/a")


def test_nobody_owns_what_has_no_owner_or_an_owner_that_left() -> None:
    left = Clone("rebalancing", {"b002": SECOND}, {0: "b001"})
    snapshot = Snapshot(MAP, {1: left})
    assert snapshot.owner(b"/a", 1) is None
    assert snapshot.owner(b"/b", 1) is None
    assert snapshot.owner(b"/a", 2) is None


def test_what_is_encoded_is_what_is_read() -> None:
    snapshot = Snapshot(MAP, {1: CLONE, 2: Clone("unknown", {}, {})})
    assert decode(encode(snapshot)) == snapshot


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"{}",
        b'{"partitions":1,"epoch":0,"phase":"none","entries":{},"clones":{}}',
        b'{"partitions":1,"epoch":0,"phase":"stable","entries":{"/a":[1,2,3]},"clones":{}}',
        b'{"partitions":1,"epoch":0,"phase":"stable","entries":{},"clones":{"1":{"members":[]}}}',
    ],
)
def test_what_is_no_snapshot_is_refused(data: bytes) -> None:
    with pytest.raises(BadSnapshot):
        decode(data)


def test_a_members_client_id_has_its_urls() -> None:
    assert client_id(FIRST) == "b001|ws://127.0.0.1:9101/ws|ws://127.0.0.1:8101/ws"
    assert parse_client_id(client_id(FIRST)) == FIRST
    assert parse_client_id("rdkafka") is None
    assert parse_client_id("b001||ws://x") is None


@given(st.lists(st.integers(1, 999), min_size=2, max_size=2, unique=True))
def test_names_of_members_have_the_order_of_their_numbers(numbers: list[int]) -> None:
    low, high = sorted(numbers)
    assert member_id(low) < member_id(high)


def test_fields_of_a_snapshot_that_a_later_release_adds_are_ignored() -> None:
    later = (
        b'{"type":"partitions","later":1,"epoch":3,"phase":"stable","partitions":2,"entries":{},'
        b'"clones":{"1":{"state":"stable","later":[],"owners":{"0":"b001"},'
        b'"members":{"b001":{"internal":"ws://i","public":"ws://p","later":{}}}}}}'
    )
    snapshot = decode(later)
    assert snapshot.map.head.epoch == 3
    assert snapshot.clones[1].owners == {0: "b001"}
