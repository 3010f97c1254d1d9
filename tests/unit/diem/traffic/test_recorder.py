"""The recorder: recorded subscriptions, pseudonyms, bounds, and the account of every event."""

from collections.abc import Sequence
from typing import Any

import pytest

from diem.fanout.fanout import UpdateCounter
from diem.fanout.feed_hub import FeedHub
from diem.fanout.ownership import Ownership
from diem.fanout.session import Session
from diem.process.clock import ManualClock
from diem.protocol.feed import Batch
from diem.protocol.partition_map import Head, PartitionMap
from diem.protocol.traffic import MAX_ACCESSED, MAX_EVENT_BYTES, Accessed, Counted, TrafficEvent, Type, decode
from diem.protocol.update import Change, encode
from diem.traffic.recorder import AccessCounter, Recorder
from diem.traffic.salt import DAY_MS, DailySalt

START = 1_700_000_000_000


class World:
    def __init__(self, hub: FeedHub | None = None, *, salt: DailySalt | None = None, **bounds: Any) -> None:
        self.clock = ManualClock(wall_ms=START)
        self.hub = hub or FeedHub()
        self.hub.fanout.update_counter = UpdateCounter()
        salt = salt or DailySalt(b"salt", START // DAY_MS)
        self.recorder = Recorder("websocket-1", salt, self.clock.wall_ms, self.hub.fanout.update_counter, **bounds)

    def session(self, client: str | None = "client-0", number: int = 1, address: str = "") -> Session:
        session = Session(lambda _: None, lambda _: None, self.hub.fanout.stats)
        session.trace = self.recorder.connected(session, bytes([number]) * 8, address)
        if client is not None:
            session.trace.identified(client)
        self.hub.fanout.join(session)
        return session

    def subscribed(self, client: str | None = "client-0", number: int = 1) -> Session:
        """Return a session with one subscription, with which its recording begins."""
        session = self.session(client, number)
        self.hub.subscribe(session, {"/a": 0})
        return session

    def clients(self) -> list[TrafficEvent]:
        """Return the beginnings of connections."""
        return [event for event in self.events() if event.type is Type.CONNECT]

    def events(self) -> list[TrafficEvent]:
        found = []
        while (line := self.recorder.next()) is not None:
            found.append(decode(line))
        return found

    def types_and_names(self) -> list[tuple[str, tuple[str, ...]]]:
        return [(event.type, event.endpoints) for event in self.events()]

    def update(self, *names: str, version: int = START) -> None:
        records = [Change(n, name.encode(), version, 0, encode(name, version, version)) for n, name in enumerate(names)]
        self.hub.batch(Batch("store", 1, iter(records)))


@pytest.fixture
def world() -> World:
    return World()


def test_only_what_changes_subscriptions_is_recorded(world: World) -> None:
    session = world.session()
    world.hub.subscribe(session, {"/a": 0, "bad": 0, "/b": 0})
    world.hub.subscribe(session, {"/b": 0, "/c": 0})
    world.hub.subscribe(session, {"/a": 0})
    world.hub.fanout.unsubscribe(session, ["/nobody", "/a", "/a", "\udc80"])
    world.hub.fanout.unsubscribe(session, ["/a"])
    assert world.types_and_names() == [
        ("connect", ()),
        ("subscribe", ("/a", "/b")),
        ("subscribe", ("/c",)),
        ("unsubscribe", ("/a",)),
    ]


def test_endpoints_of_canaries_are_not_recorded(world: World) -> None:
    canary, user = world.session(), world.session()
    world.hub.subscribe(canary, {"/canary/p0": 0, "/canary/": 0})
    world.hub.fanout.unsubscribe(canary, ["/canary/p0", "/canary/"])
    world.hub.subscribe(user, {"/canary/p0": 0, "/a": 0})
    world.hub.fanout.unsubscribe(user, ["/canary/p0", "/a"])
    assert world.types_and_names() == [("connect", ()), ("subscribe", ("/a",)), ("unsubscribe", ("/a",))]


def test_sessions_of_proxies_are_not_recorded(world: World) -> None:
    proxy = Session(lambda _: None, lambda _: None, world.hub.fanout.stats, exempt=True)
    world.hub.fanout.join(proxy)
    world.hub.subscribe(proxy, {"/a": 0})
    world.hub.fanout.unsubscribe(proxy, ["/a"])
    assert world.types_and_names() == []


def test_endpoints_that_a_server_loses_are_unsubscribed() -> None:
    ownership = Ownership()
    ownership.set_map(PartitionMap(Head(1, 0), {}))
    ownership.set_names(["diem.updates/0"])
    world = World(FeedHub(ownership=ownership))
    session = world.session()
    world.hub.subscribe(session, {"/a": 0, "/b": 0})
    world.hub.reconcile()
    ownership.set_names([])
    world.hub.reconcile()
    assert [(type_, sorted(names)) for type_, names in world.types_and_names()] == [
        ("connect", []),
        ("subscribe", ["/a", "/b"]),
        ("unsubscribe", ["/a", "/b"]),
    ]


def test_more_names_than_fit_become_several_events(world: World) -> None:
    session = world.session()
    names = tuple(f"/{n}" for n in range(250))
    assert session.trace is not None
    session.trace.subscribed([name.encode() for name in names])
    parts = [each.endpoints for each in world.events()[1:]]
    assert [len(part) for part in parts] == [100, 100, 50]
    assert sum(parts, ()) == names


def test_ids_are_unique_within_a_life_and_between_lives(world: World) -> None:
    other = World()
    for each in (world, other):
        each.subscribed()
        each.subscribed()
    events = world.events() + other.events()
    assert len({event.id for event in events}) == 8
    assert [event.incarnation for event in events] == [world.recorder.incarnation] * 4 + [
        other.recorder.incarnation
    ] * 4


def test_a_client_has_one_pseudonym_on_all_servers_and_no_name(world: World) -> None:
    other = World()
    world.subscribed("the-client-of-one-page", 1)
    other.subscribed("the-client-of-one-page", 2)
    other.subscribed("the-client-of-another-page", 3)
    (first,), (second, third) = world.clients(), other.clients()
    assert first.client == second.client != third.client
    assert first.connection == "01" * 8
    assert second.connection == "02" * 8


def test_with_another_salt_it_is_another_pseudonym(world: World) -> None:
    other = World(salt=DailySalt(b"another", START // DAY_MS))
    world.subscribed()
    other.subscribed()
    assert world.events()[0].client != other.events()[0].client


def test_a_client_sends_its_id_with_its_first_subscription(world: World) -> None:
    session, old = world.session(None, 1), world.subscribed("the-client-of-one-page", 2)
    assert session.trace is not None
    assert old.trace is not None
    session.trace.identified("the-client-of-one-page")
    world.hub.subscribe(session, {"/a": 0})
    session.trace.identified("another-id-of-this-client")
    old.trace.identified("another-id-of-this-client")
    world.hub.subscribe(session, {"/b": 0})
    world.hub.subscribe(old, {"/b": 0})
    assert len({event.client for event in world.events()}) == 1


def test_a_connection_without_subscriptions_is_not_recorded(world: World) -> None:
    session = world.session()
    assert session.trace is not None
    session.trace.identified("the-client-of-one-page")
    assert world.recorder.connections == 1
    session.trace.ended()
    assert (world.events(), world.recorder.connections) == ([], 0)


def test_at_midnight_connections_end_and_begin_again_as_those_of_other_clients(world: World) -> None:
    world.hub.hello("s", ["store"])
    world.update("/a")
    first, second = world.session("one-page", 1), world.session("one-page", 2)
    ended, waiting = world.session("other-page", 3), world.session("third-page", 4)
    for session in (first, second, ended):
        world.hub.subscribe(session, {"/a": 0, "/b": 0})
    assert ended.trace is not None
    ended.trace.ended()
    ended.trace = None
    before = world.clients()
    world.recorder.renew()
    assert world.events() == []
    world.clock.advance((DAY_MS - START % DAY_MS) / 1000)
    world.recorder.renew()
    events = world.events()
    assert [(event.type, event.endpoints, event.unknown) for event in events] == [
        ("disconnect", (), ()), ("connect", (), ()), ("subscribe", ("/a", "/b"), ("/a", "/b"))
    ] * 2  # fmt: skip
    assert [event.connection for event in events[::3]] == ["01" * 8, "02" * 8]
    assert events[0].client == events[3].client == before[0].client
    assert len({event.client for event in events[1:3] + events[4:]}) == 1
    assert events[1].client != before[0].client
    assert len({event.connection for event in events}) == 4
    # What follows belongs to the new ones, and another day has other pseudonyms again.
    world.hub.fanout.unsubscribe(first, ["/a"])
    world.hub.subscribe(waiting, {"/a": 0})
    (unsubscribed, *_) = world.events()
    assert (unsubscribed.client, unsubscribed.connection) == (events[1].client, events[1].connection)
    world.clock.advance(DAY_MS / 1000)
    world.recorder.renew()
    again = world.events()
    assert [event.type for event in again].count(Type.CONNECT) == 3
    assert [event.endpoints for event in again if event.type is Type.SUBSCRIBE] == [("/b",), ("/a", "/b"), ("/a",)]
    assert {event.client for event in again if event.type is Type.CONNECT}.isdisjoint({each.client for each in events})


def test_few_connections_are_renewed_at_a_time_and_none_while_the_queue_is_half_full() -> None:
    world = World(max_queued=300)
    sessions = [world.subscribed(f"client-{number}", number % 256) for number in range(60)]
    world.events()
    world.clock.advance(DAY_MS / 1000)
    world.recorder.renew()
    assert world.recorder.queued == 3 * 25
    for session in sessions[58:]:
        assert session.trace is not None
        session.trace.ended()
        session.trace = None
    world.recorder.renew()
    assert world.recorder.queued == 77 + 75, "half of the queue is left to others"
    world.recorder.renew()
    assert world.recorder.queued == 77 + 75
    world.events()
    for _ in range(2):
        world.recorder.renew()
    assert (len(world.events()), world.recorder.dropped) == (3 * (58 - 50), {})


def test_without_a_name_every_connection_is_another_client(world: World) -> None:
    world.subscribed(None, 1)
    world.subscribed(None, 2)
    first, second = world.clients()
    assert first.client != second.client
    assert first.client != first.connection


def test_updates_are_counted_with_who_got_them_and_not_in_a_catch_up(world: World) -> None:
    world.hub.hello("s", ["store"])
    session = world.session()
    world.hub.subscribe(session, {"/a": 0})
    world.update("/a", "/b")
    world.hub.caught_up("store")
    world.update("/a", "/b", "/canary/p0", version=START + 1)
    world.update("/a", version=START + 2)
    world.update("/a", version=START + 2)
    world.clock.advance(60)
    world.recorder.count()
    counts = world.events()[-1]
    assert (counts.since, counts.until, counts.time) == (START, START + 60_000, START + 60_000)
    assert counts.updates == {"/a": Counted(2, 2), "/b": Counted(1, 0)}
    world.clock.advance(60)
    world.recorder.count()
    (nothing,) = world.events()
    assert (nothing.since, nothing.updates) == (START + 60_000, {})


def test_an_idle_process_records_one_empty_count_and_then_nothing(world: World) -> None:
    def minute() -> int:
        world.clock.advance(60)
        world.recorder.count()
        return len(world.events())

    assert [minute(), minute(), minute()] == [1, 0, 0], (
        "a new incarnation is recorded, because it ends the earlier ones"
    )
    session = world.subscribed()
    assert session.trace is not None
    assert [minute(), minute(), minute()] == [3, 1, 1], "sessions last as long as signs of life come"
    session.trace.ended()
    assert [minute(), minute(), minute()] == [2, 0, 0]
    assert world.hub.fanout.update_counter is not None
    world.hub.fanout.update_counter.receive([b"/a"])
    assert [minute(), minute(), minute()] == [1, 1, 0]


def test_counts_after_a_silence_are_of_the_last_minute_only(world: World) -> None:
    for _ in range(3):
        world.clock.advance(60)
        world.recorder.count()
    assert world.hub.fanout.update_counter is not None
    world.hub.fanout.update_counter.receive([b"/a"])
    world.clock.advance(60)
    world.recorder.count()
    counts = world.events()[-1]
    assert (counts.since, counts.until) == (START + 180_000, START + 240_000)


def test_in_the_baseline_mode_every_session_counts() -> None:
    world = World(FeedHub(everyone=True))
    world.hub.hello("s", ["store"])
    world.hub.caught_up("store")
    world.session(number=1)
    world.session(number=2)
    world.update("/a")
    world.clock.advance(1)
    world.recorder.count()
    assert world.events()[-1].updates == {"/a": Counted(1, 2)}


def test_many_counted_endpoints_become_several_events(world: World) -> None:
    assert world.hub.fanout.update_counter is not None
    world.hub.fanout.update_counter.receive(f"/{n}".encode() for n in range(450))
    world.clock.advance(60)
    world.recorder.count()
    assert world.recorder.queued == 3
    parts = [event.updates for event in world.events()]
    assert [len(part) for part in parts] == [200, 200, 50]
    assert len(set().union(*parts)) == 450


def test_counts_wait_until_a_clock_that_was_set_back_goes_on(world: World) -> None:
    assert world.hub.fanout.update_counter is not None
    world.hub.fanout.update_counter.receive([b"/a"])
    world.clock.step_wall(-3600)
    world.recorder.count()
    assert world.events() == []
    world.clock.advance(1)
    world.recorder.count()
    (counts,) = world.events()
    assert (counts.until - counts.since, counts.updates) == (1000, {"/a": Counted(1, 0)})


def test_the_newest_are_lost_when_too_many_wait() -> None:
    world = World(max_queued=3)
    session = world.session()
    world.hub.subscribe(session, {"/a": 0})
    world.hub.subscribe(session, {"/b": 0})
    world.recorder.drop_reason = "disk"
    world.hub.subscribe(session, {"/c": 0})
    assert world.recorder.dropped == {"disk": 1}
    assert world.types_and_names() == [("connect", ()), ("subscribe", ("/a",)), ("subscribe", ("/b",))]
    world.hub.fanout.unsubscribe(session, ["/a"])
    assert world.types_and_names() == [("unsubscribe", ("/a",))]


def test_long_names_are_lost_before_there_are_too_many() -> None:
    world = World(max_bytes=10_000)
    session = world.session()
    assert session.trace is not None
    for number in range(100):
        session.trace.subscribed([f"/{number:0250}".encode()])
    kept = len(world.events())
    assert 10 < kept < 40
    assert world.recorder.dropped == {"queue": 101 - kept}


def test_counts_of_very_many_endpoints_are_queued_one_at_a_time() -> None:
    world = World(max_bytes=10_000)
    assert world.hub.fanout.update_counter is not None
    for _ in range(2):
        world.hub.fanout.update_counter.receive([b"/%d" % number for number in range(400)])
        world.clock.advance(60)
        world.recorder.count()
    assert (world.recorder.queued, world.recorder.dropped) == (2, {"queue": 2})
    assert sum(len(event.updates) for event in world.events()) == 400


def test_every_event_is_accounted_for() -> None:
    world = World(max_queued=5)
    session = world.session()
    assert session.trace is not None
    for number in range(6):
        session.trace.subscribed([f"/{number}".encode()])
    encoded = [world.recorder.next(), world.recorder.next()]
    session.trace.ended()
    recorder = world.recorder
    assert recorder.recorded == {Type.CONNECT: 1, Type.SUBSCRIBE: 6, Type.DISCONNECT: 1}
    assert recorder.recorded.total() == len(encoded) + recorder.dropped.total() + recorder.queued
    recorder.drop_all("end")
    assert (recorder.queued, recorder.next()) == (0, None)
    assert recorder.recorded.total() == len(encoded) + recorder.dropped.total()


def test_names_without_a_version_are_marked_as_unknown(world: World) -> None:
    world.hub.hello("s", ["store"])
    world.update("/a", "/gone")
    session = world.session()
    world.hub.subscribe(session, {"/a": 0, "/invented": 0, "/gone": 0})
    world.hub.subscribe(session, {"/b": 0})
    world.update("/b")
    world.hub.fanout.unsubscribe(session, ["/invented"])
    events = [(event.type, event.endpoints, event.unknown) for event in world.events()]
    assert events == [
        ("connect", (), ()),
        ("subscribe", ("/a", "/invented", "/gone"), ("/invented",)),
        ("subscribe", ("/b",), ("/b",)),
        ("unsubscribe", ("/invented",), ()),
    ]


def test_names_without_a_version_are_marked_in_each_of_several_events(world: World) -> None:
    session = world.session()
    assert session.trace is not None
    names = [f"/{n}".encode() for n in range(250)]
    session.trace.subscribed(names, names[150:])
    assert [len(event.unknown) for event in world.events()[1:]] == [0, 50, 50]


@pytest.mark.parametrize(
    ("address", "sharers"), [("192.0.2.1", 3), ("2001:db8::7", 3), ("127.0.0.1", 1), ("::1", 1), ("", 1)]
)
def test_event_has_the_number_of_sharers_and_not_the_address(address: str, sharers: int) -> None:
    world = World(count_open=lambda _address: 3)
    session = world.session(address=address)
    assert session.trace is not None
    session.trace.subscribed([b"/a"])
    session.trace.ended()
    lines = []
    while (line := world.recorder.next()) is not None:
        lines.append(line)
    assert [decode(line).sharers for line in lines] == [sharers] * 3
    assert not any(address and address.encode() in line for line in lines)
    assert all((b"sharers" in line) == (sharers > 1) for line in lines)


def test_one_address_leaves_half_of_the_queue_to_others() -> None:
    """A flood of one client used to cause drops of others' events."""
    world = World(max_queued=100)
    hog = [world.session(number=n, address=f"2001:db8::{n}") for n in range(3)]
    for number in range(100):
        world.hub.subscribe(hog[number % 3], {f"/{number}": 0})
    assert world.recorder.queued == 50
    quiet = [world.session("quiet", n, f"192.0.2.{n}") for n in range(10)]
    for session in quiet:
        world.hub.subscribe(session, {"/a": 0})
    assert world.recorder.dropped == {"queue": 53}
    assert [event.endpoints for event in world.events()].count(("/a",)) == 10
    # What was given out waits no more.
    world.hub.subscribe(hog[0], {"/again": 0})
    assert len(world.events()) == 1
    assert world.recorder._waiting == {}


def test_one_address_leaves_half_of_the_memory_to_others() -> None:
    world = World(max_bytes=100_000)
    names = [f"/{'x' * 200}/{n}".encode() for n in range(20)]
    for address, bound in (("192.0.2.1", 50_000), ("192.0.2.2", 75_000), ("192.0.2.3", 87_500)):
        session = world.session(address=address)
        assert session.trace is not None
        for _ in range(20):
            session.trace.subscribed(names)
        assert bound - 6000 < world.recorder._bytes <= bound


LONGEST = Accessed("a" * 8, "p" * 32, f"/{'e' * 255}", 10**15, 10**15)


class AccessWorld:
    def __init__(self, max_queued: int = 500) -> None:
        self.clock = ManualClock(wall_ms=START)
        self.counted: Sequence[Accessed] = ()
        self.accesses = AccessCounter("data", self.clock.wall_ms, self.take, max_queued=max_queued)

    def take(self) -> Sequence[Accessed]:
        counted, self.counted = self.counted, ()
        return counted


def test_counts_become_an_event_of_their_interval() -> None:
    world = AccessWorld()
    world.counted = (Accessed("abcd1234", "free", "/a", 3, 1), Accessed("", "anonymous", "", 2, 0))
    world.clock.advance(60)
    world.accesses.count()
    event = decode(world.accesses.next() or b"")
    assert event.id == f"{world.accesses.incarnation}-1"
    assert (event.type, event.edge, event.since, event.until) == (Type.ACCESS, "data", START, START + 60_000)
    assert event.requests == (Accessed("abcd1234", "free", "/a", 3, 1), Accessed("", "anonymous", "", 2, 0))
    assert world.accesses.next() is None


def test_no_requests_make_no_event() -> None:
    world = AccessWorld()
    world.clock.advance(60)
    world.accesses.count()
    assert (world.accesses.queued, dict(world.accesses.recorded)) == (0, {})


def test_very_many_counts_are_several_events_that_are_not_too_long() -> None:
    world = AccessWorld()
    world.counted = [LONGEST] * (2 * MAX_ACCESSED + 1)
    world.clock.advance(60)
    world.accesses.count()
    lines = [world.accesses.next() or b"" for _ in range(3)]
    assert [len(decode(line).requests) for line in lines] == [MAX_ACCESSED, MAX_ACCESSED, 1]
    assert len({decode(line).id for line in lines}) == 3
    assert max(map(len, lines)) <= MAX_EVENT_BYTES


def test_what_does_not_fit_is_lost_and_counted() -> None:
    world = AccessWorld(max_queued=2)
    for _ in range(4):
        world.counted = [LONGEST]
        world.clock.advance(60)
        world.accesses.count()
    assert (world.accesses.queued, dict(world.accesses.dropped)) == (2, {"queue": 2})
    assert world.accesses.next() is not None
    world.accesses.drop_all("end")
    assert (world.accesses.queued, dict(world.accesses.dropped)) == (0, {"queue": 2, "end": 1})
    assert world.accesses.recorded == {"access": 4}


def test_a_clock_that_is_set_back_loses_no_count() -> None:
    world = AccessWorld()
    world.counted = [LONGEST]
    world.clock.step_wall(-3600)
    world.accesses.count()
    assert world.accesses.queued == 0
    world.clock.advance(60)
    world.accesses.count()
    event = decode(world.accesses.next() or b"")
    assert (event.since, event.until, len(event.requests)) == (START - 3_600_000, START - 3_540_000, 1)
