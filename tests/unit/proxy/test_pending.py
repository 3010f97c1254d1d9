"""Subscribes that wait for servers are answered in as few parts as possible."""

from collections.abc import Iterable
from typing import cast

import pytest

from diem.links.edge_connection import EdgeConnection
from diem.process.clock import ManualClock
from diem.protocol.messages import BAD_NAME, FORBIDDEN
from proxy.pending import ANSWER_TIMEOUT_S, COALESCE_S, PendingSubscribe, PendingSubscribes
from tests.unit.proxy.world import Timers

CLIENT, OTHER = cast("EdgeConnection", "client"), cast("EdgeConnection", "other")


class Subscribes:
    """The pending subscribes, and the calls that they make."""

    def __init__(self) -> None:
        self.timers = Timers(ManualClock())
        self.calls: list[object] = []
        self.rejected: set[str] = set()
        self.pending = PendingSubscribes(self._answer, self._expired, self.timers.later)

    def add(self, request_id: int, *waiting: str, client: EdgeConnection = CLIENT) -> None:
        self.pending.add(PendingSubscribe(client, request_id, {}, waiting=set(waiting)))

    def _answer(self, request: PendingSubscribe) -> None:
        self.calls.append((request.id, request.ready))
        self.rejected |= request.rejected.keys()
        request.ready, request.rejected = {}, {}

    def _expired(self, names: Iterable[str]) -> None:
        self.calls.append(list(names))


@pytest.fixture
def subscribes() -> Subscribes:
    return Subscribes()


def test_request_with_nothing_to_wait_for_is_answered_at_once(subscribes: Subscribes) -> None:
    subscribes.pending.add(PendingSubscribe(CLIENT, 1, {}, rejected={"bad name": BAD_NAME}))
    assert subscribes.calls == [(1, {})]
    assert not subscribes.pending.by_client
    assert not subscribes.timers.waiting


def test_parts_are_coalesced_and_later_parts_are_answered_one_by_one(subscribes: Subscribes) -> None:
    subscribes.add(1, "/a", "/b", "/c", "/d")
    subscribes.pending.answered({"/a": 1})
    subscribes.pending.answered({"/b": None})
    assert subscribes.calls == []
    subscribes.timers.advance(COALESCE_S)
    subscribes.pending.answered({"/c": 3})
    assert subscribes.calls == [(1, {"/a": 1, "/b": None}), (1, {"/c": 3})]
    assert "/c" not in subscribes.pending
    assert "/d" in subscribes.pending


def test_answer_of_a_server_is_for_all_requests_for_its_endpoints(subscribes: Subscribes) -> None:
    subscribes.add(1, "/a")
    subscribes.add(1, "/a", client=OTHER)
    subscribes.pending.answered({"/a": 7, "/not/requested": 8})
    assert subscribes.calls == [(1, {"/a": 7}), (1, {"/a": 7})]
    assert not subscribes.timers.waiting


def test_unanswered_endpoints_expire_before_they_are_answered_with_none(subscribes: Subscribes) -> None:
    subscribes.add(1, "/b", "/a")
    subscribes.timers.advance(ANSWER_TIMEOUT_S)
    assert subscribes.calls == [["/a", "/b"], (1, {"/a": None, "/b": None})]
    assert not subscribes.pending.by_client


def test_cancelled_endpoint_is_answered_at_once_with_all_that_is_ready(subscribes: Subscribes) -> None:
    subscribes.add(1, "/a", "/b", "/c")
    subscribes.pending.answered({"/a": 1})
    subscribes.pending.cancel(CLIENT, ["/b", "/not/requested"])
    assert subscribes.calls == [(1, {"/a": 1, "/b": None})]
    assert subscribes.pending.names(CLIENT) == {"/c"}


def test_refused_endpoint_is_answered_at_once_and_never_with_a_version(subscribes: Subscribes) -> None:
    subscribes.add(1, "/a", "/b", "/c")
    subscribes.add(1, "/a", client=OTHER)
    subscribes.pending.answered({"/a": 1, "/c": 3})
    subscribes.calls.clear()
    subscribes.pending.reject(CLIENT, ["/a", "/b", "/not/requested"], FORBIDDEN)
    assert subscribes.calls == [(1, {"/c": 3})]
    assert subscribes.rejected == {"/a", "/b"}
    assert not subscribes.pending.by_client
    assert not subscribes.timers.waiting
    subscribes.pending.answered({"/a": 2, "/b": 2})
    assert len(subscribes.calls) == 1


def test_refused_endpoint_leaves_the_rest_of_its_request_waiting(subscribes: Subscribes) -> None:
    subscribes.add(1, "/a", "/b")
    subscribes.pending.reject(CLIENT, ["/a"], FORBIDDEN)
    assert subscribes.calls == [(1, {})]
    assert subscribes.pending.names(CLIENT) == {"/b"}
    assert "/a" not in subscribes.pending
    subscribes.pending.answered({"/b": 2})
    assert subscribes.calls == [(1, {}), (1, {"/b": 2})]


def test_requests_of_a_client_that_is_gone_are_dropped_unanswered(subscribes: Subscribes) -> None:
    subscribes.add(1, "/a", "/b")
    subscribes.add(2, "/b", "/c")
    subscribes.add(1, "/c", client=OTHER)
    subscribes.pending.answered({"/a": 1})
    assert subscribes.pending.drop(CLIENT) == {"/a", "/b", "/c"}
    assert ["/a" in subscribes.pending, "/b" in subscribes.pending, "/c" in subscribes.pending] == [False, False, True]
    subscribes.pending.drop(OTHER)
    assert subscribes.calls == []
    assert not subscribes.timers.waiting
