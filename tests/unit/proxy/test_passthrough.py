"""One client in passthrough mode: its own links, and nothing but bytes from them."""

from typing import Any, cast

import orjson
import pytest

from diem.fanout.session import DeliveryStats, Session
from diem.links.edge_connection import EdgeConnection
from diem.process.clock import ManualClock
from diem.protocol import messages
from diem.protocol.frames import text_frame
from diem.protocol.messages import Subscribe, Unsubscribe
from diem.protocol.update import encode
from proxy.passthrough import UNUSED_LINK_S, PassthroughClient, PassthroughProxy
from tests.unit.proxy.world import START, FakeDialer, FakeUpstream, Timers, World, name_of

A, A2, B = name_of(0), name_of(0, 1), name_of(1)


class Ride:
    """A passenger, its client and its lines."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.timers = Timers(self.clock)
        self.accounts = DeliveryStats()
        self.written: list[bytes] = []
        self.session = Session(self.written.append, self.written.extend, self.accounts)
        self.dialer = FakeDialer()
        self.lines = self.dialer.links
        world = self.world = World().start()
        self.urls = {name: world.server_of(name).url for name in (A, A2, B)}
        self.proxy = PassthroughProxy(
            self.accounts, world.router, self.dialer.itself, self.clock, self.timers.later, upstreams=10
        )

    @property
    def edge(self) -> EdgeConnection:
        return cast("EdgeConnection", self)

    @property
    def passenger(self) -> PassthroughClient:
        return self.proxy.clients[self.edge]

    def respond(self, reply: bytes) -> None:
        self.written.append(text_frame(reply))

    def subscribe(self, request_id: int, **known: int) -> None:
        names = {"A": A, "A2": A2, "B": B}
        self.proxy.subscribe(self.edge, Subscribe(request_id, {names[n]: v for n, v in known.items()}))

    def unsubscribe(self, request_id: int, *names: str) -> None:
        self.proxy.unsubscribe(self.edge, Unsubscribe(request_id, list(names)))

    def open(self, name: str) -> FakeUpstream:
        return self.lines[self.urls[name]].open()

    def lose(self, name: str) -> None:
        self.lines[self.urls[name]].lose()

    def hears(self, name: str, payload: bytes) -> None:
        """The ids of answers are numbers of requests on this link, from 1."""
        message, upstream = orjson.loads(payload), self.lines[self.urls[name]].upstream
        if "id" in message and upstream is not None:
            message["id"] = upstream.requests[message["id"] - 1][1]
        self.passenger.message(self.urls[name], messages.parse_server(orjson.dumps(message)))

    @property
    def told(self) -> list[dict[str, Any]]:
        return [orjson.loads(frame[frame.index(b"{") :]) for frame in self.written]


@pytest.fixture
def ride() -> Ride:
    return Ride()


def test_links_are_opened_at_the_first_subscription_and_known_versions_passed_on(ride: Ride) -> None:
    assert not ride.lines
    ride.subscribe(7, A=START, B=0)
    assert set(ride.lines) == {ride.urls[A], ride.urls[B]}
    assert ride.open(A).asked == [("subscribe", {A: START})]
    assert ride.open(B).asked == [("subscribe", {B: None})]


def test_each_server_answers_its_part_with_the_clients_id(ride: Ride) -> None:
    ride.subscribe(7, A=0, B=0)
    ride.open(A)
    ride.open(B)
    ride.hears(A, messages.subscribed(1, {A: START}, {}))
    ride.hears(B, messages.subscribed(1, {B: None}, {}))
    assert [(m["type"], m["id"], m["endpoints"]) for m in ride.told] == [
        ("subscribed", 7, {A: START}),
        ("subscribed", 7, {B: None}),
    ]


def test_what_servers_say_to_the_proxy_alone_is_swallowed(ride: Ride) -> None:
    ride.subscribe(7, A=START)
    ride.open(A)
    ride.hears(A, messages.welcome(session="-", server="-", mode="-", authenticated=True, subscriptions=0))
    ride.hears(A, messages.subscribed(1, {A: START}, {}))
    ride.written.clear()
    ride.lose(A)
    link = ride.open(A)
    assert link.asked == [("subscribe", {A: START})]
    ride.hears(A, messages.subscribed(1, {A: START + 1}, {}))
    assert [(m["type"], m["live"]) for m in ride.told] == [("status", False), ("status", True)]


def test_a_run_of_updates_is_one_write_of_the_very_bytes(ride: Ride) -> None:
    ride.subscribe(7, A=0)
    ride.open(A)
    chunk = b"".join(text_frame(encode(A, START + n, START)) for n in range(3))
    ride.passenger.updates(ride.urls[A], chunk, 3)
    assert len(ride.written) == 1
    assert ride.written[0] is chunk
    assert ride.accounts.sent == 3


def test_a_blocked_client_conflates_what_was_read_and_its_servers_are_not_read(ride: Ride) -> None:
    ride.subscribe(7, A=0)
    link = ride.open(A)
    ride.session.block()
    ride.proxy.blocked(ride.edge)
    assert not link.transport.reading
    frames = [text_frame(encode(A, START + n, START)) for n in range(3)]
    ride.passenger.updates(ride.urls[A], b"".join(frames), 3)
    assert not ride.written
    assert (ride.accounts.held, ride.accounts.conflated) == (1, 2)
    ride.session.unblock()
    ride.proxy.unblocked(ride.edge)
    assert link.transport.reading
    assert ride.written == frames[-1:]


def test_unsubscribed_is_said_once_when_every_server_has_confirmed(ride: Ride) -> None:
    ride.subscribe(7, A=0, B=0)
    ride.open(A)
    ride.open(B)
    ride.hears(A, messages.subscribed(1, {A: None}, {}))
    ride.hears(B, messages.subscribed(1, {B: None}, {}))
    ride.written.clear()
    ride.unsubscribe(8, A, B, "/never/subscribed")
    ride.hears(A, messages.unsubscribed(2, [A]))
    assert not ride.written
    ride.hears(B, messages.unsubscribed(2, [B]))
    assert ride.told == [{"type": "unsubscribed", "id": 8, "endpoints": [A, B, "/never/subscribed"]}]


def test_unsubscribed_twice_is_confirmed_when_nothing_can_follow_any_more(ride: Ride) -> None:
    ride.subscribe(7, A=0)
    ride.open(A)
    ride.hears(A, messages.subscribed(1, {A: None}, {}))
    ride.written.clear()
    ride.unsubscribe(8, A)
    ride.unsubscribe(9, A)
    assert not ride.written
    ride.hears(A, messages.unsubscribed(2, [A]))
    assert [(message["type"], message["id"]) for message in ride.told] == [("unsubscribed", 8), ("unsubscribed", 9)]


def test_unsubscribed_waits_for_a_server_that_the_endpoint_had_left_before(ride: Ride) -> None:
    """Its answer may still be on its way, and an update behind it."""
    ride.subscribe(7, A=0)
    old = ride.open(A)
    ride.world.assigned[0] = ride.urls[B]
    ride.world.tell()
    ride.proxy.rerouted()
    new = ride.open(B)
    ride.hears(B, messages.subscribed(1, {A: START}, {}))
    assert old.asked[-1] == ("unsubscribe", {A: None})
    ride.unsubscribe(8, A)
    assert new.asked[-1] == ("unsubscribe", {A: None})
    ride.hears(B, messages.unsubscribed(2, [A]))
    assert [m["type"] for m in ride.told] == ["subscribed"]
    ride.hears(A, messages.subscribed(1, {A: START}, {}))
    ride.hears(A, messages.unsubscribed(2, [A]))
    assert [m["type"] for m in ride.told] == ["subscribed", "unsubscribed"]


def test_unsubscribed_does_not_wait_for_a_link_that_nothing_needs_any_more(ride: Ride) -> None:
    """A server that the endpoint had left does not confirm; its link is closed after the grace."""
    ride.subscribe(7, A=0)
    ride.open(A)
    ride.world.assigned[0] = ride.urls[B]
    ride.world.tell()
    ride.proxy.rerouted()
    ride.open(B)
    ride.hears(B, messages.subscribed(1, {A: START}, {}))
    ride.timers.advance(UNUSED_LINK_S + 1)
    assert ride.lines[ride.urls[A]].stopped
    ride.unsubscribe(8, A)
    ride.hears(B, messages.unsubscribed(2, [A]))
    assert [m["type"] for m in ride.told] == ["subscribed", "unsubscribed"]


def test_what_is_fresh_again_is_told_also_while_the_client_has_asked_for_it_again(ride: Ride) -> None:
    ride.subscribe(7, A=0)
    ride.open(A)
    ride.hears(A, messages.subscribed(1, {A: None}, {}))
    ride.world.assigned[0] = ride.urls[B]
    ride.world.tell()
    ride.proxy.rerouted()
    ride.hears(A, messages.status(live=False, since="-"))
    ride.subscribe(8, A=0)
    # The new home has not answered; the old server is current again meanwhile.
    ride.hears(A, messages.status(live=True, since="-"))
    ride.open(B)
    ride.hears(B, messages.subscribed(1, {A: None}, {}))
    assert [(m["type"], m.get("live")) for m in ride.told] == [
        ("subscribed", None),
        ("status", False),
        ("status", True),
        ("subscribed", None),
    ]


def test_a_link_is_closed_also_when_its_server_was_slow_to_confirm(ride: Ride) -> None:
    ride.subscribe(7, A=0)
    ride.open(A)
    ride.hears(A, messages.subscribed(1, {A: None}, {}))
    ride.unsubscribe(8, A)
    ride.timers.advance(UNUSED_LINK_S + 1)
    assert not ride.lines[ride.urls[A]].stopped
    ride.hears(A, messages.unsubscribed(2, [A]))
    ride.timers.advance(UNUSED_LINK_S + 1)
    assert ride.lines[ride.urls[A]].stopped


def test_a_lost_link_confirms_too(ride: Ride) -> None:
    ride.subscribe(7, A=0)
    ride.open(A)
    ride.unsubscribe(8, A)
    assert [m["type"] for m in ride.told] == ["subscribed"]
    ride.lose(A)
    assert [m["type"] for m in ride.told] == ["subscribed", "unsubscribed"]


def test_a_link_without_subscriptions_is_closed_after_a_grace(ride: Ride) -> None:
    ride.subscribe(7, A=0)
    ride.open(A)
    ride.unsubscribe(8, A)
    ride.hears(A, messages.unsubscribed(2, [A]))
    ride.timers.advance(UNUSED_LINK_S - 0.1)
    assert not ride.lines[ride.urls[A]].stopped
    ride.timers.advance(0.2)
    assert ride.lines[ride.urls[A]].stopped
    assert not ride.passenger.links


def test_a_link_that_is_needed_again_stays(ride: Ride) -> None:
    ride.subscribe(7, A=0)
    ride.open(A)
    ride.unsubscribe(8, A)
    ride.subscribe(9, A2=0)
    ride.timers.advance(2 * UNUSED_LINK_S)
    assert not ride.lines[ride.urls[A]].stopped


def test_the_link_to_a_server_that_died_is_not_dialled_for_ever_once_another_one_has_answered(ride: Ride) -> None:
    ride.subscribe(7, A=0, B=0)
    ride.open(A)
    other = ride.open(B)
    ride.hears(A, messages.subscribed(1, {A: None}, {}))
    ride.hears(B, messages.subscribed(1, {B: None}, {}))
    ride.lose(A)
    ride.world.assigned[0] = ride.urls[B]
    ride.world.tell()
    ride.proxy.rerouted()
    assert other.asked[-1] == ("subscribe", {A: None})
    ride.hears(B, messages.subscribed(2, {A: None}, {}))
    ride.timers.advance(2 * UNUSED_LINK_S)
    assert ride.lines[ride.urls[A]].stopped
    assert set(ride.passenger.links) == {ride.urls[B]}


def test_resync_is_relayed_for_what_is_wanted(ride: Ride) -> None:
    ride.subscribe(7, A=0)
    ride.open(A)
    ride.hears(A, messages.resync([A, A2]))
    assert ride.told == [{"type": "resync", "endpoints": [A]}]


def test_who_leaves_leaves_nothing(ride: Ride) -> None:
    ride.subscribe(7, A=0, B=0)
    ride.open(A)
    ride.proxy.left(ride.edge)
    assert all(line.stopped for line in ride.lines.values())
    ride.timers.advance(60)
    assert not ride.written
    assert ride.timers.waiting == 0
