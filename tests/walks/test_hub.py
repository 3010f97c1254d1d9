"""A server of a group between its log and its clients: two partitions and the hot topic, moves, rebalances, lost links.
It may be about to stop: then others own its partitions, and it sends its clients there, and delivers as before.

The publisher's backlog, the steps of a move, the server with its hub, and the sessions are the real ones; the log is a
list of records for each partition, and the bridge is what docs/internals.md section 2 says of one. Nobody may miss an
update: once all was read, every subscriber that can be written to has the latest version, or was sent a ``resync``. And
no connection sees an older version of an endpoint after a newer one.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from diem.fanout.feed_hub import FeedHub
from diem.fanout.ownership import Ownership
from diem.fanout.session import Session
from diem.links.edge import Admission, AdmissionRules, Edge, EdgeRules, HubService
from diem.protocol import feed
from diem.protocol.partition_map import HOT, Entry, Head, PartitionMap, Phase, Role
from diem.protocol.update import GONE, UPDATE, Change, encode
from metadata.plans.steps import begin, proceed, reverse
from services.data.publisher.backlog import Backlog
from services.websocket.server import WebSocketServer
from tests.support.maps import changes_of
from tests.walks import walk_settings

pytestmark = pytest.mark.usefixtures("silent_log")

START = 1_700_000_000_000
ENDPOINTS = (b"/a", b"/b")
PARTITIONS = 2
LANES = (0, 1, HOT)
MAP = "diem.partition-map/0"
HOT_NAME = "diem.updates.hot/0"
BAD = -1


def name_of(place: int) -> str:
    return HOT_NAME if place == HOT else f"diem.updates/{place}"


class Clock:
    """The walk's own time: each step takes a moment, in which no beat is missed."""

    def __init__(self) -> None:
        self.ms = START

    def monotonic(self) -> float:
        return self.ms / 1000

    def wall_ms(self) -> int:
        return self.ms


@dataclass
class Record:
    offset: int
    endpoint: bytes
    version: int
    """0: a tombstone, or the publisher's mark. :data:`BAD`: no update, in the place of one."""


@dataclass
class Log:
    """One partition."""

    records: list[Record] = field(default_factory=list)
    end: int = 0

    def append(self, endpoint: bytes, version: int) -> None:
        self.records.append(Record(self.end, endpoint, version))
        self.end += 1

    def compact(self) -> None:
        """Keep the last record of each endpoint."""
        last = {record.endpoint: record for record in self.records}
        self.records = [record for record in self.records if last[record.endpoint] is record]


class Publisher:
    """The backlog, with requests that always arrive; a walk of its own has the others."""

    def __init__(self, map_: PartitionMap) -> None:
        self.latest: dict[bytes, int] = {}
        self.gone: set[bytes] = set()
        self.bad: set[bytes] = set()
        """Endpoints whose current update is written as a record that nobody can read."""
        self.logs = {place: Log() for place in LANES}
        self.backlog = Backlog(PARTITIONS, 0, map_)
        self._sequence = 0
        self._version = START
        self.acknowledged = -1

    def put(self, endpoint: bytes, *, gone: bool, bad: bool = False) -> None:
        (self.bad.add if bad else self.bad.discard)(endpoint)
        self._sequence += 1
        self._version += 1
        self.latest[endpoint] = self._version
        (self.gone.add if gone else self.gone.discard)(endpoint)
        self.backlog.ingest([Change(self._sequence, endpoint, self._version, 0, b"")])

    def write(self, place: int) -> None:
        """One request of one lane."""
        lane = self.backlog.queues[place]
        for endpoint in lane.dequeue(10):
            self.logs[place].append(endpoint, BAD if endpoint in self.bad else self.latest[endpoint])
        for endpoint in self.backlog.dequeue_tombstones(LANES.index(place), 10):
            self.logs[place].append(endpoint, 0)
        lane.acknowledged()

    def write_all(self) -> None:
        for place in (*LANES, *LANES):
            self.write(place)

    def mark(self) -> None:
        for log in self.logs.values():
            log.append(b"", 0)

    def follow(self, map_: PartitionMap) -> None:
        self.backlog.switch_map(map_, list(self.latest))

    def acknowledge(self) -> None:
        if self.backlog.stable:
            self.acknowledged = self.backlog.map.head.epoch

    @property
    def has_written_all(self) -> bool:
        return not len(self.backlog) and not any(lane.tombstones for lane in self.backlog.queues)

    def value(self, endpoint: bytes, version: int) -> bytes:
        gone = version == self.latest[endpoint] and endpoint in self.gone
        return encode(endpoint.decode(), version, version, gone=gone)


class Bridge:
    """One link: the names that it reads, how far it has read each, and what it must still say of them."""

    def __init__(self, server: WebSocketServer, publisher: Publisher) -> None:
        self._server = server
        self._publisher = publisher
        self.owned: tuple[int, ...] = (0, 1)
        self.up = False
        self.leaves = False
        """The server is about to stop: the bridge has left the group, and reads what it had for this link."""
        self.map_sent: PartitionMap | None = None
        self._next: dict[int, int] = {}
        self._targets: dict[int, int] = {}
        self._caught_up: set[int] = set()

    @property
    def places(self) -> tuple[int, ...]:
        return (*self.owned, HOT)

    def dial(self) -> None:
        resume = self._server.resume()
        known = resume.positions if resume.source == "s" else {}
        self.up, self.leaves = True, False
        self._next = {place: known.get(name_of(place), 0) for place in self.places}
        self._begin(self.places, forget=True)

    def lose(self) -> None:
        self.up = False

    def assign(self, owned: tuple[int, ...]) -> None:
        """The group has given out partitions: what is gained is read from its beginning."""
        if self.leaves:
            return
        gained = set(owned) - set(self.owned)
        self.owned = owned
        if self.up:
            self._next = {place: 0 if place in gained else self._next[place] for place in self.places}
            self._caught_up &= set(self.places)
            self._begin(gained)

    def _begin(self, places: Iterable[int], *, forget: bool = False) -> None:
        if forget:
            self._caught_up, self.map_sent = set(), None
        for place in places:
            self._targets[place] = self._publisher.logs[place].end
        self._server.hello(feed.Hello("s", [*map(name_of, self.places), MAP]))

    def read(self, place: int, limit: int) -> None:
        """One batch of one name, or what there is to say when there is nothing to read."""
        if not self.up or place not in self.places:
            return
        log, begin_ = self._publisher.logs[place], self._next[place]
        found = [record for record in log.records if record.offset >= begin_][:limit]
        more = len([record for record in log.records if record.offset >= begin_]) > limit
        next_ = found[-1].offset + 1 if more else log.end
        greatest: dict[bytes, Record] = {}
        bad = {record.endpoint: record.offset for record in found if record.version == BAD}
        for record in found:
            if record.version > 0 and (
                record.endpoint not in greatest or record.version > greatest[record.endpoint].version
            ):
                greatest[record.endpoint] = record
        if next_ > begin_:
            self._next[place] = next_
            self._server.batch(feed.Batch(name_of(place), begin_, self._changes(greatest.values())))
            for endpoint, offset in bad.items():
                if endpoint not in greatest or greatest[endpoint].offset < offset:
                    self._server.resync(feed.Resync([endpoint.decode()]))
            self._server.batch(feed.Batch(name_of(place), next_, iter(())))
        if place not in self._caught_up and next_ >= self._targets[place]:
            self._caught_up.add(place)
            self._server.caught_up(name_of(place))

    def _changes(self, records: Iterable[Record]) -> Iterator[Change]:
        for record in records:
            value = self._publisher.value(record.endpoint, record.version)
            kind = GONE if value.endswith(b'"gone":true}') else UPDATE
            yield Change(record.offset, record.endpoint, record.version, kind, value)

    def send_map(self, map_: PartitionMap) -> None:
        if not self.up or self.map_sent == map_:
            return
        changes = changes_of(map_)
        self._server.batch(feed.Batch(MAP, len(changes), iter(changes)))
        if self.map_sent is None:
            self._server.caught_up(MAP)
        self.map_sent = map_

    def has_read_all(self, map_: PartitionMap) -> bool:
        return (
            self.up
            and self.map_sent == map_
            and self._caught_up >= set(self.places)
            and all(self._next[place] == self._publisher.logs[place].end for place in self.places)
        )

    def leave(self) -> None:
        self.leaves = self.up

    def hand_over(self, url: str | None) -> None:
        """The server's partitions are those of the server at ``url`` now, or there is no other one."""
        if self.leaves:
            owners = {} if url is None else {name_of(place): url for place in LANES if place != HOT}
            self._server.owners(feed.Owners(owners, left=True))


class Client:
    """A browser: it holds what it was sent, and fetches at a ``resync``. Or a proxy, which passes a ``resync`` on."""

    def __init__(self, hub: FeedHub, latest: dict[bytes, int], *, fetches: bool) -> None:
        self.session = Session(self._take, self._take_many, hub.fanout.stats)
        self._hub = hub
        self._latest = latest
        self._fetches = fetches
        self.held: dict[bytes, int] = {}
        self.resynced: dict[bytes, int] = {}
        """Endpoint -> the version that a ``resync`` makes fetch, by whoever gets it in the end."""
        self.moved: set[bytes] = set()
        """Endpoints that others serve, as it was told since it has subscribed to them."""
        self._on_the_wire: dict[bytes, int] = {}
        self.frames = 0
        hub.fanout.join(self.session)

    def _take(self, frame: bytes) -> None:
        self.frames += 1
        message = orjson.loads(frame[2:] if frame[1] < 126 else frame[4:])
        match message["type"]:
            case "update":
                endpoint, version = message["endpoint"].encode(), message["version"]
                assert version >= self._on_the_wire.get(endpoint, 0), "an older version after a newer one"
                self._on_the_wire[endpoint] = version
                self.held[endpoint] = max(version, self.held.get(endpoint, 0))
            case "resync":
                for endpoint in map(str.encode, message["endpoints"]):
                    self.resynced[endpoint] = self._latest.get(endpoint, 0)
                    if self._fetches:
                        self.held[endpoint] = self.resynced[endpoint]
            case "moved":
                self.moved |= {name.encode() for name in message["endpoints"]}
            case kind:
                assert kind == "status"

    def _take_many(self, frames: Iterable[bytes]) -> None:
        for frame in frames:
            self._take(frame)

    def subscribe(self, endpoint: bytes) -> None:
        if not self.session.blocked:
            known = endpoint in self.session.endpoints
            answer = self._hub.subscribe(self.session, {endpoint.decode(): self.held.get(endpoint, 0)})
            if endpoint.decode() in answer.endpoints:
                # Refused by a server that is leaving, it keeps what it was told.
                self.resynced.pop(endpoint, None)
            if not known:
                self.moved.discard(endpoint)
            self._take_many(answer.replay)

    def unsubscribe(self, endpoint: bytes) -> None:
        if not self.session.blocked:
            self._hub.fanout.unsubscribe(self.session, [endpoint.decode()])


class World:
    """All of it, and the steps that a walk takes: each does something with a number from 0 to 255, or nothing."""

    def __init__(self, entries: dict[bytes, Entry], begun: Iterable[int]) -> None:
        self.clock = Clock()
        self.ownership = Ownership()
        self.hub = FeedHub(ownership=self.ownership)
        edge = Edge(
            self.hub.fanout, Admission(AdmissionRules()), EdgeRules("websocket-1", "z-client"), HubService(self.hub)
        )
        self.server = WebSocketServer(self.hub, edge, self.clock, self.ownership)
        self.map = PartitionMap(Head(PARTITIONS, 0), entries)
        self.publisher = Publisher(self.map)
        self.bridge = Bridge(self.server, self.publisher)
        self.clients = [Client(self.hub, self.publisher.latest, fetches=fetches) for fetches in (True, False)]
        for endpoint in ENDPOINTS:
            self.publisher.put(endpoint, gone=False)
        self.publisher.write_all()
        self.bridge.dial()
        self.read_all()
        for number in range(2):
            self.subscribe(number)
        for number in begun:
            self.move(number)
        self.read_all()

    # Steps

    def update(self, number: int) -> None:
        """A change, which is soon in the log, everywhere or in one place."""
        self.publisher.put(ENDPOINTS[number % 2], gone=number % 16 > 14)
        if number & 96:
            self.publisher.write_all()
        elif number & 128:
            self.publisher.write(LANES[number % 3])

    def write(self, number: int) -> None:
        self.publisher.write(LANES[number % 3])

    def read(self, number: int) -> None:
        places = self.bridge.places
        self.bridge.read(places[number % len(places)], 1 + number // 64)

    def read_most(self, number: int) -> None:
        """All but one name are read to their ends."""
        places = self.bridge.places
        for place in places:
            if place != places[number % len(places)]:
                self.bridge.read(place, 100)

    def read_all(self) -> None:
        self.bridge.send_map(self.map)
        for place in self.bridge.places:
            self.bridge.read(place, 100)
        if self.bridge.has_read_all(self.map) and self.publisher.has_written_all:
            self.server.heartbeat()

    def lose_link(self, number: int) -> None:
        """The link is lost; as a rule it is there again when all endpoints have changed, one after the other."""
        self.bridge.lose()
        if number % 8:
            for endpoint in ENDPOINTS if number & 16 else reversed(ENDPOINTS):
                self.publisher.put(endpoint, gone=False)
                self.publisher.write_all()
            self.publisher.mark()
            self.bridge.dial()
            self.bridge.send_map(self.map)
            # One name has read something, and has not caught up; perhaps it is given to another server at once.
            self.bridge.read(LANES[number % 3], 1)
            if number >= 192:
                self.rebalance(number)

    def rebalance(self, number: int) -> None:
        self.bridge.assign(((0, 1), (0,), (1,), (), (0, 1))[number % 5])

    def move(self, number: int) -> None:
        """The next step of a move, or a new one; now and then back."""
        head = self.map.head
        if head.phase is Phase.STABLE:
            endpoint = ENDPOINTS[number % 2]
            others = [place for place in LANES if place != self.map.home(endpoint)]
            step = begin(self.map, {endpoint: others[number // 2 % 2]}, f"plan-{head.epoch}")
        elif number % 8 == 7:
            step = reverse(self.map)
        else:
            self.publisher.write_all()
            self.publisher.acknowledge()
            following = proceed(self.map, self.publisher.acknowledged, 1.0, 1.0)
            if following is None:
                return
            step = following
        self._take_step(step.records, step.head)
        if number & 64:
            self.publisher.write_all()
        if number & 128:
            self.bridge.send_map(self.map)

    def _take_step(self, records: Mapping[bytes, bytes | None], head: Head) -> None:
        entries = dict(self.map.entries)
        for name, value in records.items():
            if value is None:
                entries.pop(name, None)
            else:
                entries[name] = Entry(**orjson.loads(value))
        self.map = PartitionMap(head, entries)
        self.publisher.follow(self.map)

    def hear_of_map(self, _number: int) -> None:
        self.bridge.send_map(self.map)

    def compact(self, number: int) -> None:
        self.publisher.logs[LANES[number % 3]].compact()

    def leave(self, number: int) -> None:
        """The server is about to stop; soon, or later, others own what it had."""
        self.bridge.leave()
        if number & 1:
            self.hand_over(number)

    def hand_over(self, number: int) -> None:
        self.bridge.hand_over(None if number % 8 == 7 else "ws://other/ws")

    def bad_record(self, number: int) -> None:
        """An update whose record cannot be read, perhaps the last of its endpoint; a client may have missed that."""
        endpoint, client = ENDPOINTS[number % 2], self.clients[number // 2 % 2]
        if number & 8:
            client.unsubscribe(endpoint)
        self.publisher.put(endpoint, gone=False, bad=True)
        if number & 96:
            self.publisher.write_all()
        if number & 128:
            self.publisher.logs[LANES[number % 3]].compact()
        if number & 8:
            self.read_all()
            client.subscribe(endpoint)

    def block(self, number: int) -> None:
        self.clients[number % 2].session.block()

    def unblock(self, number: int) -> None:
        self.clients[number % 2].session.unblock()

    def subscribe(self, number: int) -> None:
        for endpoint in ENDPOINTS:
            self.clients[number % 2].subscribe(endpoint)

    def unsubscribe(self, number: int) -> None:
        self.clients[number % 2].unsubscribe(ENDPOINTS[number // 2 % 2])

    def rest(self, _number: int = 0) -> None:
        """Everything is written and read; who is blocked stays so."""
        self.publisher.write_all()
        if not self.bridge.up:
            self.bridge.dial()
        self.read_all()

    # What must hold

    def check(self) -> None:
        hub = self.hub
        assert hub.fanout.stats.held == sum(client.session.held for client in self.clients)
        for client in self.clients:
            assert client.session.held <= 3 * len(ENDPOINTS)
        if self.bridge.has_read_all(self.map) and self.publisher.has_written_all:
            self.nobody_is_behind()
        if self.ownership.leaving:
            self.everybody_is_sent_away()

    def everybody_is_sent_away(self) -> None:
        """Whoever is still subscribed knows that others serve the endpoint; every server has hot ones."""
        assert self.server.handed_over.is_set()
        map_ = self.ownership.map
        assert map_ is not None
        hot = [endpoint for endpoint in ENDPOINTS if map_.written_to(endpoint) == (HOT,)]
        assert all(self.ownership.role(endpoint) is Role.SERVING for endpoint in hot)
        for client in self.clients:
            if not client.session.blocked:
                for endpoint in client.session.endpoints:
                    assert HOT in map_.written_to(endpoint) or endpoint in client.moved, f"{endpoint.decode()}: stays"

    def nobody_is_behind(self) -> None:
        for client in self.clients:
            if not client.session.blocked:
                for endpoint in client.session.endpoints:
                    held, latest = client.held.get(endpoint, 0), self.publisher.latest[endpoint]
                    held = max(held, client.resynced.get(endpoint, 0))
                    assert held == latest, f"{endpoint.decode()}: {latest - held} behind, and never told"

    def come_to_rest(self) -> None:
        self.rest()
        for client in self.clients:
            client.session.unblock()
        assert self.bridge.has_read_all(self.map)
        assert self.server.liveness.live
        self.nobody_is_behind()
        state = self.hub.state
        assert state.counts.consumed == state.counts.stale + self.hub.fanout.delivered + self.hub.fanout.not_subscribed


STEPS: Sequence[Callable[[World, int], None]] = (
    *[World.update] * 6,
    World.write,
    *[World.read] * 4,
    *[World.read_most] * 2,
    *[World.lose_link] * 4,
    *[World.rebalance] * 3,
    *[World.move] * 2,
    World.hear_of_map,
    World.compact,
    *[World.leave] * 2,
    World.hand_over,
    *[World.bad_record] * 2,
    *[World.block] * 2,
    World.unblock,
    *[World.subscribe] * 3,
    World.unsubscribe,
    *[World.rest] * 2,
)
"""Where it is steered: every link is lost in the middle of something, and comes back to more than one record."""


@walk_settings(examples=150)
@given(
    homes=st.lists(st.sampled_from(LANES), min_size=2, max_size=2),
    begun=st.lists(st.integers(0, 255), max_size=2),
    walk=st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 255)), min_size=10, max_size=50),
)
def test_every_subscriber_gets_the_latest_version_whatever_happens_to_names_links_and_maps(
    homes: list[int], begun: list[int], walk: list[tuple[Callable[[World, int], None], int]]
) -> None:
    world = World({endpoint: Entry(home) for endpoint, home in zip(ENDPOINTS, homes, strict=True)}, begun)
    for step, number in walk:
        world.clock.ms += 1
        step(world, number)
        world.check()
    world.come_to_rest()
