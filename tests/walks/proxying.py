"""A group of real servers, and a real proxy before them, without sockets: feeds, links and clocks are moved by hand.

Everything that is on its way waits in a queue: records in logs, feeds behind them, snapshots, requests and frames on
links.
"""

import logging
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from itertools import combinations, product
from typing import Any, cast

import structlog
from hypothesis import strategies as st

from diem.fanout.fanout import Fanout
from diem.fanout.feed_hub import FeedHub
from diem.fanout.ownership import Ownership
from diem.links.edge import Admission, Edge, EdgeRules, HubService
from diem.links.internal import InternalConnection
from diem.links.keepalive import LinkMonitor
from diem.links.proxy_port import ProxyPort
from diem.process.allow_list import AllowList
from diem.process.clock import ManualClock
from diem.protocol import feed, messages
from diem.protocol.assignment import STABLE, Clone, Owner, Snapshot
from diem.protocol.frames import FrameRun, Splitter, text_frame
from diem.protocol.partition_map import HEAD_KEY, HOT, Entry, Head, PartitionMap, Phase, encode_entry, encode_head
from diem.protocol.update import UPDATE, Change, encode
from proxy.routing import Router
from proxy.shared import SharedProxy
from proxy.upstream import UpstreamListener
from services.websocket.server import WebSocketServer
from tests.unit.proxy.world import START, Client, FakeLink, FakeTransport, FakeUpstream, Timers, name_of

PARTITIONS = 3
NAMES = [name_of(0, 0, PARTITIONS), name_of(0, 1, PARTITIONS), name_of(1, 0, PARTITIONS), name_of(2, 0, PARTITIONS)]
MAP = "diem.partition-map/0"
COMPOSITE = "ws://127.0.0.1:8601/ws"
MAX_WAITING = 30
"""Requests of a client that may wait; below the proxy's own limit, which is no part of this."""
HINTS = ["public", "internal", "composite"]
"""How servers name owners: by a URL of each, or, as composites once did, by one and the same."""
ROUNDS = 150
"""Half seconds after which everything must have come to rest: back-off, graces and patience are below 10 s each."""


_SILENT = structlog.wrap_logger(None, wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
"""Log lines took as long as all the rest."""


def log_name(number: int) -> str:
    return "diem.updates.hot/0" if number == HOT else f"diem.updates/{number}"


class Connection:
    """As ``InternalConnection``: a server's end of a link."""

    is_open = True

    def __init__(self, sent: deque[bytes]) -> None:
        self.transport = FakeTransport(sent)

    def send_text(self, payload: bytes) -> None:
        self.transport.write(text_frame(payload))

    @property
    def itself(self) -> InternalConnection:
        return cast("InternalConnection", self)


class Link(FakeUpstream):
    """The proxy's end of an open link, with both of its directions."""

    def __init__(self, member: "Member") -> None:
        super().__init__(member.url)
        self.frames: deque[bytes] = deque()
        self.connection = Connection(self.frames)
        self.full = False
        self._member = member

    def answer(self) -> None:
        """The server takes the oldest request, unless it waits for the proxy to read."""
        if self.requests and self.connection.transport.reading:
            kind, request_id, known = self.requests.popleft()
            if kind == "subscribe":
                data = messages.subscribe(request_id, known)
            else:
                data = messages.unsubscribe(request_id, list(known))
            self._member.end.received(self.connection.itself, data)

    def fill(self) -> None:
        """The proxy is slow: the server holds back what it has for it."""
        if not self.full:
            self.full = True
            self._member.end.blocked(self.connection.itself)

    def drain(self) -> None:
        """The proxy has read what it was sent."""
        if self.full:
            self.full = False
            self._member.end.resumed(self.connection.itself)

    @property
    def endpoints(self) -> list[str]:
        """What the server has registered for it."""
        return [name.decode() for name in self._member.end._sessions[self.connection.itself].endpoints]


class Line(FakeLink):
    """Dialled when the walk opens it, to a real server."""

    def __init__(self, member: "Member", listener: UpstreamListener, resync: Callable[[list[str]], None]) -> None:
        super().__init__(member.url, listener)
        self.link: Link | None = None
        self._member = member
        self._resync = resync

    def open(self) -> FakeUpstream:
        if self.link is None:
            self.link = self.upstream = Link(self._member)
            self._member.end.opened(self.link.connection.itself)
            self.listener.opened(self.link.itself)
        return self.link

    def lose(self) -> None:
        if self.link is not None:
            self._hang_up()
            super().lose()

    def stop(self) -> None:
        self._hang_up()
        super().stop()

    def _hang_up(self) -> None:
        link, self.link = self.link, None
        if link is not None:
            self._member.end.closed(link.connection.itself)

    def deliver(self, count: int) -> None:
        """So many frames arrive at the proxy, in one chunk."""
        link = self.link
        if link is None or not link.transport.reading:
            return
        chunk = b"".join(link.frames.popleft() for _ in range(min(count, len(link.frames))))
        for piece in Splitter().feed(chunk):
            if isinstance(piece, FrameRun):
                self.listener.updates(self.url, piece.data, piece.frames)
                continue
            message = messages.parse_server(piece.payload)  # type: ignore[union-attr]  # a server sends no control frames here
            if isinstance(message, messages.ResyncMessage):
                self._resync(list(message.endpoints))
            self.listener.message(self.url, message)


class NoKeeper:
    """Links are lost when the walk says so."""

    def add(self, connection: object) -> None: ...
    def discard(self, connection: object) -> None: ...


class Member:
    """A server of the group with its bridge, which reads what the group has assigned to it."""

    def __init__(self, cluster: "Cluster", number: int) -> None:
        self.owner = Owner(f"b{number:03d}", f"ws://127.0.0.1:91{number:02d}/ws", f"ws://127.0.0.1:81{number:02d}/ws")
        self.url = self.owner.internal
        self._cluster = cluster
        ownership = Ownership()
        self.hub = FeedHub(ownership=ownership)
        edge = Edge(
            self.hub.fanout, cast("Admission", None), EdgeRules(self.owner.server, "z-proxy"), HubService(self.hub)
        )
        edge.ready = True
        self.server = WebSocketServer(self.hub, edge, cluster.clock, ownership)
        self.server._log = _SILENT
        self.end = ProxyPort(edge, self.hub)
        self.end._monitor = cast("LinkMonitor", NoKeeper())
        self._positions: dict[str, int] = {}
        self._ends: dict[str, int] = {}
        """Names that are catching up -> the position at which they have."""

    def is_assigned(self, *, hinted: bool) -> None:
        """The bridge hears what the group has given to it, and perhaps who has the rest."""
        cluster = self._cluster
        names = [log_name(number) for number, member in cluster.assigned.items() if member is self]
        names += [log_name(HOT), MAP]
        gained = [name for name in names if name not in self._positions]
        self._positions = {name: self._positions.get(name, 0) for name in names}
        self._ends = {name: end for name, end in self._ends.items() if name in names}
        self._ends |= {name: len(cluster.log(name)) for name in gained}
        self.server.hello(feed.Hello("source", names))
        if hinted:
            owners = {log_name(number): cluster.hint(member.owner) for number, member in cluster.assigned.items()}
            self.server.owners(feed.Owners(owners))

    def is_dialled_anew(self) -> None:
        """The link between bridge and server was lost: it resumes where it was, and catches up."""
        self._positions = dict(self.server.resume().positions)
        self._ends = {name: len(self._cluster.log(name)) for name in self._positions}
        self.server.hello(feed.Hello("source", list(self._positions)))

    def read(self, count: int) -> None:
        """The bridge hands on so many records of each log, and beats."""
        for name in self._positions:
            if name != MAP:
                self._read(name, count)
        self.server.heartbeat()

    def read_map(self) -> None:
        """The bridge hands on one more epoch of the map."""
        if MAP in self._positions:
            self._read(MAP, 1)

    def _read(self, name: str, count: int) -> None:
        log, start = self._cluster.log(name), self._positions[name]
        end = min(len(log), start + count)
        # In the order of the log, as far as it matters: no update after a ``resync`` is from before the bad record.
        found = [change for record in log[start:end] for change in record]
        latest = {change.endpoint: change for change in found}
        self.server.batch(feed.Batch(name, start, iter([each for each in found if each.value or name == MAP])))
        if bad := [each.endpoint.decode() for each in latest.values() if not each.value and name != MAP]:
            self.server.resync(feed.Resync(bad))
        self.server.batch(feed.Batch(name, end, iter(())))
        self._positions[name] = end
        if name in self._ends and end >= self._ends[name]:
            del self._ends[name]
            self.server.caught_up(name)


Log = list[list[Change]]
"""Each record as the changes that it is: none where it is a mark, a tombstone or was compacted away. One without a
value is no update, in the place of one."""


class Cluster:
    """Three servers of one group, their logs, the map, what a metadata service says of them, and clients of a proxy.

    There is one line to each server for all clients.
    """

    def __init__(self, hints: str) -> None:
        self.clock = ManualClock()
        self.timers = Timers(self.clock)
        self.latest: dict[str, int] = {}
        self.clients: list[WalkClient] = []
        self._hints = hints
        self._version = START
        self._logs: dict[str, Log] = {log_name(number): [] for number in (HOT, *range(PARTITIONS))}
        self._logs[MAP] = []
        self.map = PartitionMap(Head(PARTITIONS, 0))
        self._write_map()
        self.members = [Member(self, number) for number in (1, 2, 3)]
        self.assigned = dict(enumerate(self.members))
        self.router = Router(1, AllowList(["127.0.0.0/8"]))
        self.fanout = Fanout(framed=True)
        self.shared = SharedProxy(self.fanout, self.router, self.clock, self.timers.later)
        self.lines = [Line(member, self.shared, self.announced) for member in self.members]
        for name in NAMES:
            self.put(name)
        for member in self.members:
            member.is_assigned(hinted=False)
            member.read_map()
            member.read(10)

    def log(self, name: str) -> Log:
        return self._logs[name]

    def hint(self, owner: Owner) -> str:
        return {"public": owner.public, "internal": owner.internal, "composite": COMPOSITE}[self._hints]

    # The source and the map

    def put(self, name: str, *, bad: bool = False) -> None:
        """The endpoint changes; if ``bad``, nobody can read the record of it."""
        self._version += 1
        self.latest[name] = self._version
        for number in self.map.written_to(name.encode()):
            self._publish(name, number, bad=bad)

    def _publish(self, name: str, number: int, *, bad: bool = False) -> None:
        log, version = self._logs[log_name(number)], self.latest[name]
        value = b"" if bad else encode(name, version, version)
        log.append([Change(len(log), name.encode(), version, UPDATE, value)])

    def _withdraw(self, name: str, number: int) -> None:
        """Write a tombstone, which takes the earlier records out when the log is compacted."""
        log = self._logs[log_name(number)]
        log[:] = [[change for change in record if change.endpoint != name.encode()] for record in log]
        log.append([])

    def move(self, name: str, target: int) -> None:
        """Begin to move an endpoint, or go on with what is moving."""
        phase = self.map.head.phase
        if phase is Phase.STABLE:
            home = self.map.home(name.encode())
            if home != target:
                self._set_phase(Phase.PREPARE, name.encode(), home, target)
            return
        endpoint, home, to = self._moving()
        if phase is Phase.RETIRE:
            self._set_phase(Phase.STABLE, endpoint, to, None)
        else:
            self._set_phase(Phase.MOVE if phase is Phase.PREPARE else Phase.RETIRE, endpoint, home, to)

    def take_back(self) -> None:
        """Exchange the roles of both places."""
        phase = self.map.head.phase
        if phase is not Phase.STABLE:
            endpoint, home, target = self._moving()
            reverse = {Phase.PREPARE: Phase.RETIRE, Phase.MOVE: Phase.MOVE, Phase.RETIRE: Phase.PREPARE}
            self._set_phase(reverse[phase], endpoint, target, home)

    def _moving(self) -> tuple[bytes, int, int]:
        return next((e, home, to) for e, (home, to) in self.map.entries.items() if to is not None)

    def _set_phase(self, phase: Phase, endpoint: bytes, home: int, target: int | None) -> None:
        head = Head(PARTITIONS, self.map.head.epoch + 1, phase)
        self.map = PartitionMap(head, {**self.map.entries, endpoint: Entry(home, target)})
        name = endpoint.decode()
        if phase is Phase.PREPARE and target is not None:
            self._publish(name, target)
        if phase is Phase.RETIRE:
            self._withdraw(name, home)
        self._write_map()

    def _write_map(self) -> None:
        records = [(endpoint, encode_entry(entry)) for endpoint, entry in self.map.entries.items()]
        log = self._logs[MAP]
        log.append([Change(0, key, 0, 0, value) for key, value in [*records, (HEAD_KEY, encode_head(self.map.head))]])

    # The group

    def tell(self) -> None:
        """The metadata service says who has what."""
        members = {member.owner.server: member.owner for member in self.members}
        owners = {number: member.owner.server for number, member in self.assigned.items()}
        self.router.apply(Snapshot(self.map, {1: Clone(STABLE, members, owners)}))
        self.shared.rerouted()

    def member(self, url: str) -> Member:
        return next(member for member in self.members if member.url == url)

    def waits(self, client: "WalkClient") -> int:
        """Requests of a client that wait."""
        return len(self.shared._pending.by_client.get(client.edge, ()))

    def announced(self, names: list[str]) -> None:
        """A ``resync`` arrives at the proxy: who has asked for these must hear of it, or of a later update."""
        for client in self.clients:
            client.void |= client.wanted.intersection(names)

    # Time

    def advance(self, seconds: float) -> None:
        self.timers.advance(seconds)
        for member in self.members:
            member.server.check_liveness()

    def settle(self) -> bool:
        """Everything that can happen by itself happens; returns whether it ends."""
        for member in self.members:
            member.is_assigned(hinted=True)
        self.tell()
        for _ in range(ROUNDS):
            for member in self.members:
                for _ in range(len(self._logs[MAP])):
                    member.read_map()
                member.read(1000)
            self._flush()
            if not self.timers.waiting and all(line.link is not None for line in self.lines):
                return True
            self.advance(0.5)
        return False

    def _flush(self) -> None:
        busy = True
        while busy:
            busy = False
            for line in self.lines:
                line.open()
                if (link := line.link) is None:
                    continue
                link.drain()
                while link.requests:
                    link.answer()
                busy = busy or bool(link.frames)
                line.deliver(5)


class WalkClient(Client):
    """A client that may be slow, and fetches what it is told to fetch."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.void: set[str] = set()
        """Endpoints of which a ``resync`` is due."""
        self._newest: dict[str, int] = {}
        """Endpoint -> the last version that came since it was answered."""
        super().__init__(cluster)

    def _write(self, frame: bytes) -> None:
        """Nothing comes before its answer, and versions only grow."""
        super()._write(frame)
        message = self.received[-1]
        match message["type"]:
            case "subscribed":
                for name in message["endpoints"]:
                    self._newest.pop(name, None)
            case "update":
                name, version = message["endpoint"], message["version"]
                assert version > self._newest.get(name, 0), "an older version after a newer one"
                self._newest[name] = version
                self.take(message)
            case "resync":
                assert set(message["endpoints"]) <= self.confirmed, "a resync before subscribed, or after unsubscribed"
                self.take(message)

    def unsubscribe(self, *names: str) -> None:
        self.void -= set(names)
        super().unsubscribe(*names)

    def restrict(self, names: set[str]) -> None:
        """Present a token that does not cover these; later ones cover them again."""
        ended = self.cluster.shared.restrict(self.edge, lambda name: name not in names)
        assert set(ended) == names & self.wanted
        # From here on, an update of them is one of endpoints that are not subscribed.
        for known in (self.wanted, self.confirmed, self.affected, self.void):
            known.difference_update(names)

    def stop_reading(self) -> None:
        if not self.session.blocked:
            self.session.block()

    def read_on(self) -> None:
        if self.session.blocked:
            self.session.unblock()
            # The status that it is given speaks for all.
            self.affected.clear()
            self.cluster.shared.unblocked(self.edge)

    def take(self, message: dict[str, Any]) -> None:
        """Fetch what a ``resync`` or an update names: from then on it holds what is current."""
        names = [message["endpoint"]] if message["type"] == "update" else message["endpoints"]
        self.void -= set(names)
        if message["type"] == "resync":
            self.held |= {name: self.cluster.latest[name] for name in names if name in self.wanted}


class Walk:
    """The steps, each a method; what they are called with comes from :func:`walks`."""

    def __init__(self, cluster: Cluster, clients: int) -> None:
        self.cluster = cluster
        cluster.tell()
        self.clients = cluster.clients
        self.clients += [WalkClient(cluster) for _ in range(clients)]

    def run(self, walk: Iterable[tuple[Any, ...]]) -> None:
        for kind, *arguments in walk:
            getattr(self, kind)(*arguments)
        self.end()

    # The source, the map and the group

    def put(self, name: str) -> None:
        self.cluster.put(name)

    def move(self, name: str, target: int) -> None:
        self.cluster.move(name, target)

    def take_back(self) -> None:
        self.cluster.take_back()

    def rebalance(self, partition: int, number: int) -> None:
        self.cluster.assigned[partition] = self.cluster.members[number]

    def tell(self) -> None:
        self.cluster.tell()

    def assign(self, number: int, hinted: bool) -> None:
        self.cluster.members[number].is_assigned(hinted=hinted)

    def read(self, number: int, count: int) -> None:
        self.cluster.members[number].read(count)

    def read_map(self, number: int) -> None:
        self.cluster.members[number].read_map()

    def redial(self, number: int) -> None:
        self.cluster.members[number].is_dialled_anew()

    def spoil(self, name: str) -> None:
        self.cluster.put(name, bad=True)

    # Links

    def open(self, number: int) -> None:
        self.cluster.lines[number].open()

    def lose(self, number: int) -> None:
        self.cluster.lines[number].lose()

    def answer(self, number: int) -> None:
        if (link := self.cluster.lines[number].link) is not None:
            link.answer()

    def deliver(self, number: int, count: int) -> None:
        self.cluster.lines[number].deliver(count)

    def serve(self, number: int) -> None:
        """The server answers all that it was asked, and everything arrives."""
        line = self.cluster.lines[number]
        if (link := line.link) is not None:
            for _ in range(len(link.requests)):
                link.answer()
            line.deliver(len(link.frames))

    def fill(self, number: int) -> None:
        if (link := self.cluster.lines[number].link) is not None:
            link.fill()

    def drain(self, number: int) -> None:
        if (link := self.cluster.lines[number].link) is not None:
            link.drain()

    # Clients

    def _client(self, number: int) -> WalkClient | None:
        """A client whose request would be read, and not refused because too many wait."""
        client = self.clients[number % len(self.clients)]
        return None if client.session.blocked or self.cluster.waits(client) >= MAX_WAITING else client

    def subscribe(self, number: int, names: set[str]) -> None:
        if (client := self._client(number)) is not None:
            client.subscribe(*sorted(names))

    def unsubscribe(self, number: int, names: set[str]) -> None:
        if (client := self._client(number)) is not None:
            client.unsubscribe(*sorted(names))

    def restrict(self, number: int, names: set[str]) -> None:
        if (client := self._client(number)) is not None:
            client.restrict(names)

    def fetch(self, number: int, name: str) -> None:
        client = self.clients[number % len(self.clients)]
        client.held[name] = self.cluster.latest[name]

    def come_back(self, number: int) -> None:
        """A client leaves, and comes back with what it holds."""
        number %= len(self.clients)
        before = self.clients[number]
        before.leave()
        self.clients[number] = WalkClient(self.cluster)
        self.clients[number].held = before.held

    def stop_reading(self, number: int) -> None:
        self.clients[number % len(self.clients)].stop_reading()

    def read_on(self, number: int) -> None:
        self.clients[number % len(self.clients)].read_on()

    def wait(self, seconds: float) -> None:
        self.cluster.advance(seconds)

    # What must be true in the end

    def end(self) -> None:
        assert len(self.cluster.shared.relay.retained) <= len(self.cluster.shared.relocator.routes)
        for client in self.clients:
            client.read_on()
        self._settle()
        for name in NAMES:
            self.cluster.put(name)
        self._settle()
        self.nothing_is_asked_for_in_vain()
        for client in self.clients:
            client.leave()
        self._settle()
        self.nothing_is_left()

    def _settle(self) -> None:
        rests = self.cluster.settle()
        self._nobody_is_behind()
        assert rests, "never at rest"

    def _nobody_is_behind(self) -> None:
        for client in self.clients:
            assert not any(client.unanswered.values()), "a client waits for its reply for ever"
            assert client.wanted <= client.confirmed
            for name in client.wanted:
                assert client.held.get(name, 0) == self.cluster.latest[name], "behind, and never told"
            assert not client.affected & client.wanted, "stale for ever"
            assert not client.void, "a resync was not passed on"

    def nothing_is_asked_for_in_vain(self) -> None:
        wanted = {name for client in self.clients for name in client.wanted}
        assert set(self.cluster.shared.relocator.routes) == wanted
        assert self.registered() == dict.fromkeys(wanted, 1)

    def nothing_is_left(self) -> None:
        shared = self.cluster.shared
        assert not shared.relay.retained
        assert not self.cluster.fanout.registry.entries
        assert not shared.relocator.routes
        assert not shared.load
        assert not self.registered()

    def registered(self) -> Counter[str]:
        """Endpoint -> servers that have registered it, each where the router would send it."""
        found: Counter[str] = Counter()
        for line in self.cluster.lines:
            assert line.link is not None
            for name in line.link.endpoints:
                owner = self.cluster.router.owner(name, current=line.url)
                assert owner == line.url, "subscribed where it does not belong"
                found[name] += 1
        return found


_SOME_NAMES = [set(some) for size in range(1, len(NAMES) + 1) for some in combinations(NAMES, size)]
_THREE = range(3)
_STEPS: dict[str, list[Sequence[Any]]] = {
    "put": [NAMES],
    "move": [NAMES, range(HOT, PARTITIONS)],
    "take_back": [],
    "rebalance": [range(PARTITIONS), _THREE],
    "tell": [],
    "assign": [_THREE, [False, True]],
    "read": [_THREE, [1, 100]],
    "read_map": [_THREE],
    "redial": [_THREE],
    "spoil": [NAMES],
    "open": [_THREE],
    "lose": [_THREE],
    "answer": [_THREE],
    "deliver": [_THREE, [1, 2, 50]],
    "serve": [_THREE],
    "fill": [_THREE],
    "drain": [_THREE],
    "subscribe": [_THREE, _SOME_NAMES],
    "unsubscribe": [_THREE, _SOME_NAMES],
    "restrict": [_THREE, _SOME_NAMES],
    "fetch": [_THREE, NAMES],
    "come_back": [_THREE],
    "stop_reading": [_THREE],
    "read_on": [_THREE],
    "wait": [[0.05, 0.2, 1.0, 4.0, 12.0]],
}
"""Each kind of step with what it may be called with."""
_ALWAYS = ["open", "subscribe", "answer", "deliver", "serve", "rebalance", "tell", "assign"]
_calls = {kind: st.sampled_from([(kind, *each) for each in product(*values)]) for kind, values in _STEPS.items()}


@st.composite
def walks(draw: st.DrawFn) -> list[tuple[Any, ...]]:
    """Steps of a few kinds: walks that do everything do nothing often enough in a row to get far with it."""
    kinds = draw(st.lists(st.sampled_from([kind for kind in _STEPS if kind not in _ALWAYS]), max_size=9, unique=True))
    return draw(st.lists(st.one_of([_calls[kind] for kind in 2 * _ALWAYS + kinds]), min_size=25, max_size=70))


hints = st.sampled_from(HINTS)
