"""The relocator: the actions that follow from each event."""

from collections.abc import Iterable

import pytest

from diem.process.allow_list import AllowList
from diem.process.clock import ManualClock
from diem.protocol.assignment import STABLE, Clone, Owner, Snapshot
from diem.protocol.messages import StatusMessage, SubscribedReply
from diem.protocol.partition_map import Head, PartitionMap
from proxy.relocation import (
    FAILOVER_AFTER_S,
    MAX_NAMES,
    STALE_AFTER_S,
    TICK_S,
    BecameStale,
    Recovered,
    Relocator,
    SendSubscribe,
    SendUnsubscribe,
)
from proxy.routing import Router
from tests.unit.proxy.world import name_of

FIRST, SECOND = (Owner(f"b00{n}", f"ws://127.0.0.1:910{n}/ws", f"ws://127.0.0.1:810{n}/ws") for n in (1, 2))
A = name_of(0)


class World:
    """A relocator between two servers; the first owns partition 0."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.open = {FIRST.internal, SECOND.internal}
        self.router = Router(1, AllowList(["127.0.0.0/8"]))
        self.relocator = Relocator(self.router, self.open, self.clock.monotonic)
        self.assign(FIRST, SECOND)

    def assign(self, *owners: Owner) -> None:
        members = {owner.server: owner for owner in (FIRST, SECOND)}
        assigned = {number: owner.server for number, owner in enumerate(owners)}
        self.router.apply(Snapshot(PartitionMap(Head(2, 0)), {1: Clone(STABLE, members, assigned)}))

    def registered(self, names: Iterable[str], owner: Owner = FIRST) -> None:
        """Subscribe, and apply the server's answer."""
        for action in self.relocator.subscribe(names):
            assert isinstance(action, SendSubscribe)
            self.relocator.subscribed(owner.internal, reply(action))


def reply(request: SendSubscribe) -> SubscribedReply:
    return SubscribedReply(request.request_id, dict.fromkeys(request.names), {})


@pytest.fixture
def world() -> World:
    return World()


def test_requests_to_a_server_are_split_at_the_maximum_of_names(world: World) -> None:
    names = [f"/many/{n}" for n in range(3 * MAX_NAMES)]
    world.assign(FIRST, FIRST)
    world.registered(names)
    world.assign(SECOND, SECOND)
    requests = world.relocator.rerouted()
    assert [(type(action), action.url, len(action.names)) for action in requests if isinstance(action, SendSubscribe)]
    assert [len(action.names) for action in requests] == [MAX_NAMES] * 3
    # Back before the new home has answered.
    world.assign(FIRST, FIRST)
    dropped = world.relocator.rerouted()
    assert all(isinstance(action, SendUnsubscribe) and action.url == SECOND.internal for action in dropped)
    assert [len(action.names) for action in dropped] == [MAX_NAMES] * 3
    dropped = world.relocator.unsubscribe(names)
    assert all(isinstance(action, SendUnsubscribe) and action.url == FIRST.internal for action in dropped)
    assert [len(action.names) for action in dropped] == [MAX_NAMES] * 3
    assert not world.relocator.used


def test_request_is_sent_when_the_link_opens(world: World) -> None:
    world.open.clear()
    assert world.relocator.subscribe([A]) == []
    world.open.add(FIRST.internal)
    (request,) = world.relocator.opened(FIRST.internal)
    assert isinstance(request, SendSubscribe)
    assert world.relocator.subscribed(FIRST.internal, reply(request)) == ({A: None}, [])


def test_old_server_is_unsubscribed_once_the_new_one_has_answered(world: World) -> None:
    world.registered([A])
    world.assign(SECOND, FIRST)
    (request,) = world.relocator.rerouted()
    assert isinstance(request, SendSubscribe)
    registered, (unsubscribe,) = world.relocator.subscribed(SECOND.internal, reply(request))
    assert registered == {A: None}
    assert isinstance(unsubscribe, SendUnsubscribe)
    assert unsubscribe.url == FIRST.internal


def test_unanswered_endpoint_is_stale_after_three_seconds(world: World) -> None:
    world.relocator.subscribe([A])
    for _ in range(int(STALE_AFTER_S / TICK_S) - 1):
        world.clock.advance(TICK_S)
        assert world.relocator.tick() == []
    world.clock.advance(TICK_S)
    assert world.relocator.tick() == [BecameStale([A])]
    assert world.relocator.is_stale(A)


def test_answered_endpoint_needs_no_further_tick(world: World) -> None:
    world.registered([A])
    assert world.relocator.tick_after_s == TICK_S
    assert world.relocator.tick() == []
    assert world.relocator.tick_after_s is None


def test_status_of_a_server_makes_its_endpoints_stale_and_recovered(world: World) -> None:
    world.registered([A])
    url = FIRST.internal
    assert world.relocator.handle(url, StatusMessage(live=False, endpoints=None)) == [BecameStale([A])]
    assert world.relocator.handle(url, StatusMessage(live=False, endpoints=None)) == []
    assert world.relocator.handle(url, StatusMessage(live=True, endpoints=None)) == [Recovered([A])]
    assert world.relocator.handle(url, StatusMessage(live=False, endpoints=[A, "/other"])) == [BecameStale([A])]
    assert world.relocator.handle(url, StatusMessage(live=True, endpoints=[A])) == [Recovered([A])]


def test_endpoints_of_a_lost_server_move_to_their_new_owner_after_a_random_wait(world: World) -> None:
    world.registered([A])
    world.open.discard(FIRST.internal)
    assert world.relocator.lost(FIRST.internal) == [BecameStale([A])]
    # A snapshot without rerouted(): its owner is used only after the wait.
    world.assign(SECOND, FIRST)
    waited = 0.0
    while not (actions := world.relocator.tick()):
        after = world.relocator.tick_after_s
        assert after is not None
        world.clock.advance(after)
        waited += after
    assert FAILOVER_AFTER_S <= waited <= 2 * FAILOVER_AFTER_S + TICK_S
    assert [(type(action), action.names) for action in actions] == [(SendSubscribe, [A])]


def test_dead_server_is_forgotten_when_it_is_no_longer_a_member(world: World) -> None:
    gone = "ws://127.0.0.1:9199/ws"
    for url in (gone, SECOND.internal):
        world.relocator.lost(url)
    world.relocator.rerouted()
    assert world.relocator._dead == {SECOND.internal}
