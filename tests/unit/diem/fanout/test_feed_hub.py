"""The hub as a state machine: clients come, go, block and read; the feed advances, repeats, is lost or wiped."""

from collections.abc import Iterable

import orjson
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from diem.fanout.data_budget import DataBudget
from diem.fanout.feed_hub import FeedHub
from diem.fanout.session import DeliveryStats, Session
from diem.protocol.feed import Batch, Resume
from diem.protocol.frames import payload_offset, text_frame
from diem.protocol.update import MAX_BYTES, Change, encode
from tests.walks import walk_settings

START = 1_700_000_000_000
NAMES = ["/a", "/b", "/c"]


class Client:
    """A client with the versions announced to it, and the endpoints that it must fetch again."""

    def __init__(self, hub: FeedHub) -> None:
        self.hub = hub
        self.announced: dict[str, int] = {}
        self.resynced: set[str] = set()
        self.subscribed: set[str] = set()
        self.wants_data: set[str] = set()
        self.with_data = 0
        self.frames = 0
        self.session = Session(self.receive, self.receive_many, hub.fanout.stats)
        hub.fanout.join(self.session)

    def receive(self, frame: bytes) -> None:
        self.frames += 1
        message = orjson.loads(frame[payload_offset(frame) :])
        if message["type"] == "resync":
            assert set(message["endpoints"]) <= self.subscribed
            self.resynced |= set(message["endpoints"])
            return
        name = message["endpoint"]
        assert name in self.subscribed, "an update of an endpoint without a subscription"
        if "data" in message:
            assert name in self.wants_data, "data that nobody asked for"
            assert message["data"]["version"] == message["version"], "the data of another version"
            self.with_data += 1
        self.announced[name] = max(self.announced.get(name, 0), message["version"])

    def receive_many(self, frames: Iterable[bytes]) -> None:
        for frame in frames:
            self.receive(frame)

    def subscribe(self, name: str, *, data: bool = False) -> None:
        self.subscribed.add(name)
        (self.wants_data.add if data else self.wants_data.discard)(name)
        known = {name: self.announced.get(name, 0)}
        self.receive_many(self.hub.subscribe(self.session, known, with_data=data).replay)


class Store:
    """A store with one feed link to the hub."""

    def __init__(self, number: int, clock: int) -> None:
        self.id = f"store-{number}"
        self.clock = clock
        self.latest: dict[str, Change] = {}
        self.sequence = 0

    def put(self, name: str) -> None:
        self.clock += 1
        self.sequence += 1
        # None, short enough not to count for the budget, and twice longer.
        size = [None, 10, 700, 700][self.clock % 4]
        data = None if size is None else b'{"version":%d,"rest":"%b"}' % (self.clock, b"x" * size)
        value = encode(name, self.clock, self.clock, data=data)
        self.latest[name] = Change(self.sequence, name.encode(), self.clock, 0, value)

    def after(self, sequence: int) -> list[Change]:
        return sorted(change for change in self.latest.values() if change.sequence > sequence)


class HubMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.budget = DataBudget(1500)
        self.hub = FeedHub(limit=3, budget=self.budget)
        self.clients: list[Client] = []
        self.stores = 1
        self.store = Store(1, START)
        self.cursor: int | None = None
        self.saw_caught_up = False

    @initialize(live=st.booleans(), clients=st.integers(0, 2))
    def begin(self, live: bool, clients: int) -> None:
        """Start in the middle of a working system, where most faults are found."""
        for _ in range(clients):
            self.connect()
            self.clients[-1].subscribe("/a")
        if live:
            for _ in range(4):
                self.store.put("/a")
            self.follow()

    def follow(self) -> None:
        if self.cursor is None:
            self.dial()
        while not self.saw_caught_up or self.store.after(self.cursor or 0):
            self.read(limit=3, repeat=False)

    @rule(name=st.sampled_from(NAMES), followed=st.booleans())
    def put(self, name: str, followed: bool) -> None:
        self.store.put(name)
        if followed:
            self.follow()

    @rule(redialled=st.booleans(), lost=st.booleans())
    def wipe(self, redialled: bool, lost: bool) -> None:
        self.stores += 1
        self.store = Store(self.stores, self.store.clock)
        self.cursor = None
        if redialled:
            self.dial()
        if lost:
            self.cursor = None

    @rule()
    def lose_link(self) -> None:
        self.cursor = None

    @precondition(lambda self: self.cursor is None)
    @rule()
    def dial(self) -> None:
        resume: Resume = self.hub.state.resume()
        self.cursor = resume.positions.get("store", 1) - 1 if resume.source == self.store.id else 0
        self.saw_caught_up = False
        self.hub.hello(self.store.id, ["store"])

    @precondition(lambda self: self.cursor is not None)
    @rule(limit=st.integers(1, 3), repeat=st.booleans())
    def read(self, limit: int, repeat: bool) -> None:
        assert self.cursor is not None
        found = self.store.after(self.cursor)[:limit]
        if found:
            self.cursor = found[-1].sequence
            for _ in range(1 + repeat):
                self.hub.batch(Batch("store", self.cursor + 1, iter(found)))
        elif not self.saw_caught_up:
            self.saw_caught_up = True
            self.hub.caught_up("store")

    @precondition(lambda self: len(self.clients) < 3)
    @rule()
    def connect(self) -> None:
        self.clients.append(Client(self.hub))

    @precondition(lambda self: self.clients)
    @rule(data=st.data(), name=st.sampled_from(NAMES))
    def subscribe(self, data: st.DataObject, name: str) -> None:
        client = data.draw(st.sampled_from(self.clients))
        if not client.session.blocked:
            client.subscribe(name, data=data.draw(st.booleans()))

    @precondition(lambda self: self.clients)
    @rule(data=st.data(), name=st.sampled_from(NAMES))
    def unsubscribe(self, data: st.DataObject, name: str) -> None:
        client = data.draw(st.sampled_from(self.clients))
        self.hub.fanout.unsubscribe(client.session, [name])
        client.subscribed.discard(name)

    @precondition(lambda self: self.clients)
    @rule(data=st.data(), block=st.booleans())
    def block_or_unblock(self, data: st.DataObject, block: bool) -> None:
        session = data.draw(st.sampled_from(self.clients)).session
        session.block() if block else session.unblock()

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def disconnect(self, data: st.DataObject) -> None:
        client = data.draw(st.sampled_from(self.clients))
        self.clients.remove(client)
        self.hub.fanout.leave(client.session)
        client.subscribed.clear()

    @invariant()
    def nobody_misses_an_update_once_the_feed_is_read(self) -> None:
        if self.cursor is None or not self.saw_caught_up or self.store.after(self.cursor):
            return
        for client in self.clients:
            if client.session.blocked:
                assert client.session.held <= 2 * len(client.subscribed), "an update and a resync of each"
                continue
            for name in client.subscribed:
                change = self.store.latest.get(name)
                if change is not None:
                    assert client.announced.get(name, 0) >= change.version, (name, client.announced)

    @invariant()
    def retained_data_is_within_the_budget(self) -> None:
        retained = self.hub.state.retained.values()
        longest = [len(value) for _, value in retained if len(value) > MAX_BYTES]
        assert sum(longest) == self.budget.bytes <= self.budget.max_bytes

    @invariant()
    def every_frame_is_accounted_for(self) -> None:
        accounts = self.hub.fanout.stats
        assert accounts.sent >= sum(client.frames for client in self.clients)
        assert accounts.held == sum(client.session.held for client in self.clients)

    @invariant()
    def registry_holds_what_the_clients_hold(self) -> None:
        assert self.hub.fanout.registry.entries == sum(len(client.subscribed) for client in self.clients)

    def teardown(self) -> None:
        for client in self.clients:
            self.hub.fanout.leave(client.session)
        assert (self.hub.fanout.registry.entries, len(self.hub.fanout.registry), len(self.hub.fanout.sessions)) == (
            0,
            0,
            0,
        )
        assert self.hub.fanout.stats.held == 0


HubMachine.TestCase.settings = walk_settings(examples=150, steps=40)
TestHub = HubMachine.TestCase


def test_a_wiped_store_without_the_endpoint_is_announced_by_resync() -> None:
    hub = FeedHub()
    client = Client(hub)
    client.subscribe("/a")
    hub.hello("one", ["store"])
    hub.batch(Batch("store", 2, iter([Change(1, b"/a", START, 0, encode("/a", START, START))])))
    hub.caught_up("store")
    assert client.announced == {"/a": START}
    hub.state.resume()
    hub.hello("two", ["store"])
    hub.caught_up("store")
    assert client.resynced == {"/a"}
    assert not hub.state.retained


def test_conflation_keeps_the_latest_frame_of_each_endpoint_and_counts_the_rest() -> None:
    hub = FeedHub()
    client = Client(hub)
    for name in NAMES:
        client.subscribe(name)
    hub.hello("s", ["store"])
    hub.caught_up("store")
    client.session.block()
    for n in range(1, 301):
        name = NAMES[n % 3]
        hub.batch(
            Batch("store", n + 1, iter([Change(n, name.encode(), START + n, 0, encode(name, START + n, START + n))]))
        )
    assert client.frames == 0
    assert client.session.held == 3
    assert hub.fanout.stats.conflated == 297
    client.session.unblock()
    assert client.announced == {"/b": START + 298, "/c": START + 299, "/a": START + 300}


def test_everyone_mode_sends_every_update_to_every_session() -> None:
    hub = FeedHub(everyone=True)
    frames: list[bytes] = []
    hub.fanout.join(Session(frames.append, frames.extend, hub.fanout.stats))
    hub.hello("s", ["store"])
    hub.caught_up("store")
    hub.batch(Batch("store", 2, iter([Change(1, b"/a", START, 0, encode("/a", START, START))])))
    assert len(frames) == 1


def test_names_beyond_the_limit_are_rejected_one_by_one_and_the_rest_registered() -> None:
    hub = FeedHub(limit=2)
    client = Client(hub)
    answer = hub.subscribe(client.session, {"/a": 0, "bad": 0, "/b": 0, "/c": 0})
    assert set(answer.endpoints) == {"/a", "/b"}
    assert {name: refusal.code for name, refusal in answer.rejected.items()} == {"bad": "bad_name", "/c": "limit"}


def test_what_is_unsubscribed_while_held_back_is_not_sent_later() -> None:
    hub = FeedHub()
    client = Client(hub)
    client.subscribe("/a")
    client.subscribe("/b")
    hub.hello("s", ["store"])
    hub.caught_up("store")
    client.session.block()
    for n, name in enumerate(("/a", "/b"), 1):
        hub.batch(Batch("store", n + 1, iter([Change(n, name.encode(), START, 0, encode(name, START, START))])))
    hub.fanout.unsubscribe(client.session, ["/a"])
    client.subscribed.discard("/a")
    client.session.unblock()
    assert client.announced == {"/b": START}
    assert (hub.fanout.stats.dropped, hub.fanout.stats.sent) == (1, 1)


def test_resync_of_the_feed_reaches_subscribers_alone() -> None:
    hub = FeedHub()
    looking, elsewhere = Client(hub), Client(hub)
    looking.subscribe("/a")
    elsewhere.subscribe("/b")
    hub.fanout.resync([b"/a", b"/c"])
    assert (looking.resynced, elsewhere.frames) == ({"/a"}, 0)


def test_new_subscribers_of_a_suspect_endpoint_are_sent_resync_until_its_next_update() -> None:
    hub = FeedHub()
    hub.hello("s", ["p0"])
    hub.caught_up("p0")
    hub.batch(Batch("p0", 2, iter([change(START + 1)])))
    hub.resync([b"/a", b"/unknown"])
    clients = [Client(hub) for _ in range(4)]
    for client, known in zip(clients, (0, START + 1), strict=False):
        client.announced["/a"] = known
        client.subscribe("/a")
        assert (client.announced["/a"], client.resynced) == (START + 1, {"/a"}), "what is retained may be outdated"
    clients[2].subscribe("/unknown")
    assert clients[2].resynced == {"/unknown"}, "its only record may have been an update"
    hub.batch(Batch("p0", 4, iter([change(START + 2)])))
    clients[3].subscribe("/a")
    assert (clients[3].announced["/a"], clients[3].resynced) == (START + 2, set())
    assert hub.fanout.stats.offered == sum(client.frames for client in clients)


def test_an_update_of_a_catch_up_is_followed_by_the_resync_of_a_later_record() -> None:
    hub = FeedHub()
    hub.hello("s", ["p0"])
    client = Client(hub)
    client.subscribe("/a")
    hub.batch(Batch("p0", 2, iter([change(START + 1), change(START + 1, "/b")])))
    hub.resync([b"/a"])
    client.resynced.clear()
    before = client.frames
    hub.caught_up("p0")
    assert (client.announced["/a"], client.resynced, client.frames - before) == (START + 1, {"/a"}, 2)
    hub.batch(Batch("p0", 3, iter([change(START + 2)])))
    assert not hub.state.suspect


def change(version: int, name: str = "/a") -> Change:
    return Change(version - START, name.encode(), version, 0, encode(name, version, version))


def catching_up(hub: FeedHub, *names: str) -> None:
    hub.state.resume()
    hub.hello("s", list(names))


def live(hub: FeedHub, *names: str) -> None:
    catching_up(hub, *names)
    for name in names:
        hub.caught_up(name)


def test_whoever_subscribes_is_sent_the_newer_update_with_data_or_without() -> None:
    hub = FeedHub()
    live(hub, "s")
    hub.batch(Batch("s", 2, iter([change(START + 1)])))
    for data in (False, True):
        client = Client(hub)
        client.subscribe("/a", data=data)
        assert client.announced == {"/a": START + 1}


def test_of_batches_that_arrive_together_a_client_gets_the_latest_update_of_each_endpoint_in_one_write() -> None:
    hub, writes = FeedHub(), []
    session = Session(lambda frame: writes.append([frame]), lambda frames: writes.append([*frames]), hub.fanout.stats)
    hub.fanout.join(session)
    live(hub, "one", "two")
    hub.subscribe(session, {"/a": 0, "/b": 0})
    hub.batch(Batch("one", 2, iter([change(START)])), Batch("two", 2, iter([change(START, "/b")])))
    assert [len(write) for write in writes] == [2]
    hub.batch(Batch("one", 3, iter([change(START + 1)])), Batch("one", 4, iter([change(START + 2)])))
    assert [len(write) for write in writes] == [2, 1]
    assert b'"version":%d' % (START + 2) in writes[-1][0]
    assert (hub.fanout.delivered, hub.state.counts.stale, hub.state.counts.consumed) == (3, 1, 4)


def test_what_a_lost_name_brought_while_it_caught_up_reaches_the_subscribers() -> None:
    hub = FeedHub()
    client = Client(hub)
    client.subscribe("/a")
    live(hub, "p", "q")
    hub.batch(Batch("p", 2, iter([change(START + 1)])))
    hub.batch(Batch("q", 2, iter([change(START + 1)])))
    catching_up(hub, "p", "q")
    hub.batch(Batch("p", 3, iter([change(START + 2)])))
    hub.hello("s", ["q"])
    hub.batch(Batch("q", 3, iter([change(START + 2)])))
    hub.caught_up("q")
    assert client.announced == {"/a": START + 2}


def test_an_older_version_is_not_delivered_after_a_newer_one_when_a_name_has_caught_up() -> None:
    hub = FeedHub()
    client = Client(hub)
    client.subscribe("/a")
    live(hub, "p", "q")
    catching_up(hub, "p", "q")
    hub.caught_up("q")
    hub.batch(Batch("p", 2, iter([change(START + 2)])))
    client.session.block()
    hub.batch(Batch("q", 2, iter([change(START + 3)])))
    hub.caught_up("p")
    hub.batch(Batch("p", 3, iter([change(START + 3)])))
    client.session.unblock()
    assert (client.announced, client.frames) == ({"/a": START + 3}, 1)


def test_a_resync_and_an_update_do_not_replace_each_other_while_they_are_held_back() -> None:
    hub = FeedHub()
    client = Client(hub)
    client.subscribe("/a")
    live(hub, "p")
    client.session.block()
    hub.batch(Batch("p", 2, iter([change(START + 5)])))
    hub.fanout.resync([b"/a"])
    hub.fanout.resync([b"/a"])
    assert (client.session.held, hub.fanout.stats.conflated) == (2, 1)
    client.session.unblock()
    assert (client.announced, client.resynced) == ({"/a": START + 5}, {"/a"})


def test_a_resync_that_is_held_back_is_dropped_with_the_subscription() -> None:
    hub = FeedHub()
    client = Client(hub)
    client.subscribe("/a")
    live(hub, "p")
    client.session.block()
    hub.fanout.resync([b"/a"])
    hub.batch(Batch("p", 2, iter([change(START + 5)])))
    hub.fanout.unsubscribe(client.session, ["/a"])
    assert (client.session.held, hub.fanout.stats.held, hub.fanout.stats.dropped) == (0, 0, 2)
    client.session.unblock()
    assert client.frames == 0


def test_an_older_update_does_not_replace_a_newer_one_that_is_held_back() -> None:
    frames: list[bytes] = []
    accounts = DeliveryStats()
    session = Session(frames.append, frames.extend, accounts)
    session.block()
    newer, older, other = (
        text_frame(encode(name, version, version))
        for name, version in (("/a", START + 3), ("/a", START + 2), ("/b", START + 1))
    )
    session.send_many([newer, other, older])
    assert (session.held, accounts.conflated) == (2, 1)
    session.unblock()
    assert frames == [newer, other]
