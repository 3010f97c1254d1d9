"""A proxy in shared mode without sockets: servers, their links and clients as FIFO queues, moved on step by step."""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, cast

import orjson

from diem.fanout.fanout import Fanout
from diem.fanout.session import Session
from diem.links.edge_connection import EdgeConnection
from diem.process.clock import ManualClock
from diem.protocol import messages
from diem.protocol.assignment import STABLE, Clone, Owner, Snapshot
from diem.protocol.codes import ErrorCode
from diem.protocol.frames import FrameRun, Splitter, frames_of, text_frame
from diem.protocol.messages import Refusal, Subscribe, Unsubscribe
from diem.protocol.partition_map import Head, PartitionMap, partition_of
from diem.protocol.update import encode
from proxy.passthrough import PassthroughProxy
from proxy.routing import Router
from proxy.settings import Allowed
from proxy.shared import SharedProxy
from proxy.upstream import Upstream, UpstreamListener
from proxy.upstream_pool import UpstreamDialer

START = 1_700_000_000_000
PARTITIONS = 2


class FakeTransport:
    """Of either end of a link; what was sent waits in ``sent`` while it is not read."""

    def __init__(self, sent: deque[bytes] | None = None) -> None:
        self.sent: deque[bytes] = deque() if sent is None else sent
        self.write = self.sent.append
        self.writelines = self.sent.extend
        self.reading = True

    def get_extra_info(self, _name: str) -> "FakeTransport":
        return self

    def setsockopt(self, *_: object) -> None:
        """As a socket."""

    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True


class FakeUpstream:
    """As ``Upstream``: an open connection, whose requests wait for a server."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.transport = FakeTransport()
        self.requests: deque[tuple[str, int, dict[str, int | None]]] = deque()

    @property
    def itself(self) -> Upstream:
        return cast("Upstream", self)

    @property
    def asked(self) -> list[tuple[str, dict[str, int | None]]]:
        return [(kind, known) for kind, _, known in self.requests]

    def subscribe(self, request_id: int, known: Mapping[str, int | None]) -> None:
        self.requests.append(("subscribe", request_id, dict(known)))

    def unsubscribe(self, request_id: int, names: Sequence[str]) -> None:
        self.requests.append(("unsubscribe", request_id, dict.fromkeys(names)))


class FakeLink:
    """As ``UpstreamLink``: opened and lost by hand."""

    def __init__(self, url: str, listener: UpstreamListener) -> None:
        self.url = url
        self.listener = listener
        self.upstream: FakeUpstream | None = None
        self.stopped = False

    def start(self) -> None:
        """Nothing is dialled."""

    def stop(self) -> None:
        self.stopped = True
        self.upstream = None

    def open(self) -> FakeUpstream:
        upstream = self.upstream = FakeUpstream(self.url)
        self.listener.opened(upstream.itself)
        return upstream

    def lose(self) -> None:
        """The link is reset: what is on its way is gone."""
        self.upstream = None
        self.listener.lost(self.url)


class FakeDialer:
    """As ``UpstreamDialer``: makes links of clients."""

    def __init__(self, make: Callable[[str, UpstreamListener], FakeLink] = FakeLink) -> None:
        self.links: dict[str, FakeLink] = {}
        """Server -> the last link that was made."""
        self._make = make

    @property
    def itself(self) -> UpstreamDialer:
        return cast("UpstreamDialer", self)

    def client_link(self, url: str, listener: UpstreamListener, *_: object) -> FakeLink:
        self.links[url] = self._make(url, listener)
        return self.links[url]


class Timers:
    """``call_later`` by hand."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self._due: list[tuple[float, int, Callable[[], None], list[bool]]] = []
        self._count = 0

    def later(self, seconds: float, call: Callable[[], None]) -> "Timer":
        self._count += 1
        cancelled: list[bool] = []
        self._due.append((self._clock.monotonic() + seconds, self._count, call, cancelled))
        return Timer(cancelled)

    @property
    def waiting(self) -> int:
        return sum(not cancelled for *_, cancelled in self._due)

    def advance(self, seconds: float) -> None:
        """Let time pass, and call what is due, in order."""
        end = self._clock.monotonic() + seconds
        while due := sorted(entry for entry in self._due if entry[0] <= end):
            entry = due[0]
            self._due.remove(entry)
            self._clock.advance(max(0.0, entry[0] - self._clock.monotonic()))
            if not entry[3]:
                entry[2]()
        self._clock.advance(max(0.0, end - self._clock.monotonic()))


class Timer:
    def __init__(self, cancelled: list[bool]) -> None:
        self._cancelled = cancelled

    def cancel(self) -> None:
        self._cancelled.append(True)


class Surroundings(Protocol):
    """What a client has to do with."""

    latest: dict[str, int]
    """Endpoint -> its version at the source."""

    @property
    def fanout(self) -> Fanout: ...

    @property
    def shared(self) -> SharedProxy | PassthroughProxy: ...


class Client:
    """An unmodified client: as ``EdgeConnection`` as far as a service sees of it, and the SDK's rules."""

    def __init__(self, world: Surroundings) -> None:
        self.world = world
        self.session = Session(self._write, self._writelines, world.fanout.stats)
        self.held: dict[str, int] = {}
        """The version of the data that it holds: it fetches what it is told of at once."""
        self.wanted: set[str] = set()
        self.confirmed: set[str] = set()
        self.affected: set[str] = set()
        self.heard: list[dict[str, Any]] = []
        self.ids = 0
        self.unanswered: dict[int, set[str]] = {}
        world.fanout.join(self.session)
        world.shared.joined(self.edge)

    @property
    def edge(self) -> EdgeConnection:
        return cast("EdgeConnection", self)

    def respond(self, reply: bytes, replay: Sequence[bytes] = ()) -> None:
        self._write(text_frame(reply))
        self.session.send_many(replay)

    def subscribe(self, *names: str) -> int:
        self.ids += 1
        self.wanted |= set(names)
        self.unanswered[self.ids] = set(names)
        known = {name: self.held.get(name, 0) for name in names}
        self.world.shared.subscribe(self.edge, Subscribe(self.ids, known))
        return self.ids

    def unsubscribe(self, *names: str) -> None:
        self.ids += 1
        self.wanted -= set(names)
        self.world.shared.unsubscribe(self.edge, Unsubscribe(self.ids, list(names)))

    def leave(self) -> None:
        self.world.shared.left(self.edge)
        self.world.fanout.leave(self.session)
        self.wanted.clear()
        self.confirmed.clear()

    def said(self, kind: str) -> list[dict[str, Any]]:
        return [message for message in self.heard if message["type"] == kind]

    def _writelines(self, frames: Any) -> None:
        for frame in frames:
            self._write(frame)

    def _write(self, frame: bytes) -> None:
        payload = frame[{126: 4, 127: 10}.get(frame[1], 2) :]
        message = orjson.loads(payload)
        self.heard.append(message)
        match message["type"]:
            case "update":
                name = message["endpoint"]
                assert name in self.confirmed, f"an update of {name} before subscribed, or after unsubscribed"
                if message["version"] > self.held.get(name, 0):
                    self.held[name] = self.world.latest[name]
            case "subscribed":
                names = {*message["endpoints"], *message.get("rejected", {})}
                assert names <= self.unanswered[message["id"]], "answered twice, or what nobody asked"
                self.unanswered[message["id"]] -= names
                self.confirmed |= message["endpoints"].keys()
            case "unsubscribed":
                self.confirmed -= set(message["endpoints"])
                self.affected -= set(message["endpoints"])
            case "status":
                (self.affected.difference_update if message["live"] else self.affected.update)(message["endpoints"])


class Server:
    """A server with its end of the one link: what it holds outlives the link."""

    def __init__(self, world: "World", owner: Owner) -> None:
        self.world = world
        self.owner = owner
        self.url = owner.internal
        self.retained: dict[str, int] = {}
        self.partitions: set[int] = set()
        self.subscribed: set[str] = set()
        self.link: FakeUpstream | None = None
        self.hint: str | None = None
        """Where it sends everybody, instead of where an endpoint really is."""
        self.sent: deque[bytes] = deque()
        self.known: list[dict[str, int | None]] = []
        """All known versions that it was asked with."""

    @property
    def asked(self) -> deque[tuple[str, int, dict[str, int | None]]]:
        """Requests that it has not answered yet."""
        return deque() if self.link is None else self.link.requests

    def owns(self, name: str) -> bool:
        return partition_of(name.encode(), PARTITIONS) in self.partitions

    def take(self, name: str, version: int) -> None:
        """An update has come down to this server."""
        if self.owns(name) and version > self.retained.get(name, 0):
            self.retained[name] = version
            if name in self.subscribed:
                self.sent.append(text_frame(encode(name, version, version)))

    def serve(self) -> None:
        """Answer the oldest request."""
        kind, request_id, known = self.asked.popleft()
        if kind == "unsubscribe":
            self.subscribed -= known.keys()
            self.sent.append(text_frame(messages.unsubscribed(request_id, known)))
            return
        self.known.append(known)
        mine = {name: self.retained.get(name) for name in known if self.owns(name)}
        self.subscribed |= mine.keys()
        elsewhere = {name: self.hint or self.world.public(name) for name in known if name not in mine}
        refused = {name: Refusal(ErrorCode.NOT_OWNER, "-", hint) for name, hint in elsewhere.items()}
        self.sent.append(text_frame(messages.subscribed(request_id, mine, refused)))
        for name, version in mine.items():
            if (version or 0) > (known[name] or 0):
                self.sent.append(text_frame(encode(name, version or 0, version or 0)))

    def lose(self, partition: int) -> None:
        """The group has given a partition to another server."""
        self.partitions.discard(partition)
        gone = sorted(name for name in self.subscribed if not self.owns(name))
        self.subscribed -= set(gone)
        self.retained = {name: version for name, version in self.retained.items() if self.owns(name)}
        if gone:
            self.sent.append(text_frame(messages.moved(gone, None)))

    def deliver(self, frames: int = 1) -> None:
        """Some of what is on its way arrives at the proxy, in one chunk."""
        chunk = b"".join(self.sent.popleft() for _ in range(min(frames, len(self.sent))))
        for piece in Splitter().feed(chunk):
            if isinstance(piece, FrameRun):
                assert len(list(frames_of(piece.data))) == piece.frames
                self.world.shared.updates(self.url, piece.data, piece.frames)
            else:
                self.world.shared.message(self.url, messages.parse_server(piece.payload))  # type: ignore[union-attr]


class World:
    """Two servers of one group, a proxy, and the truth."""

    def __init__(self, *, limit: int = 128) -> None:
        self.clock = ManualClock()
        self.timers = Timers(self.clock)
        self.fanout = Fanout()
        owners = [Owner(f"b{n:03d}", f"ws://127.0.0.1:91{n:02d}/ws", f"ws://127.0.0.1:81{n:02d}/ws") for n in (1, 2)]
        self.servers = {owner.internal: Server(self, owner) for owner in owners}
        self.latest: dict[str, int] = {}
        self.version = START
        self.router = Router(1, Allowed(["127.0.0.0/8"]))
        self.shared = SharedProxy(self.fanout, self.router, self.clock, self.timers.later, limit=limit)
        self.assigned = dict(enumerate(self.servers))
        for partition, url in self.assigned.items():
            self.servers[url].partitions.add(partition)

    def client(self) -> Client:
        return Client(self)

    def server_of(self, name: str) -> Server:
        return self.servers[self.assigned[partition_of(name.encode(), PARTITIONS)]]

    def public(self, name: str) -> str:
        return self.server_of(name).owner.public

    def tell(self) -> None:
        """The metadata service tells who owns what."""
        members = {server.owner.server: server.owner for server in self.servers.values()}
        owners = {number: self.servers[url].owner.server for number, url in self.assigned.items()}
        self.router.apply(Snapshot(PartitionMap(Head(PARTITIONS, 0)), {1: Clone(STABLE, members, owners)}))
        self.shared.rerouted()

    def put(self, name: str) -> None:
        """The endpoint changes."""
        self.version += 1
        self.latest[name] = self.version
        for server in self.servers.values():
            server.take(name, self.version)

    def assign(self, partition: int, url: str) -> None:
        """The group gives a partition to another server, which reads it from its start."""
        before, self.assigned[partition] = self.assigned[partition], url
        if before != url:
            self.servers[before].lose(partition)
            self.servers[url].partitions.add(partition)
            for name, version in self.latest.items():
                self.servers[url].take(name, version)

    def open(self, url: str) -> None:
        server = self.servers[url]
        if server.link is None:
            server.link = FakeUpstream(url)
            self.shared.opened(server.link.itself)

    def lose(self, url: str) -> None:
        """The link is reset: what is on its way is gone, and so is what was subscribed."""
        server = self.servers[url]
        if server.link is not None:
            server.link = None
            server.sent.clear()
            server.subscribed.clear()
            self.shared.lost(url)

    def settle(self) -> None:
        """Everything that can happen by itself happens, until nothing does any more."""
        for _ in range(60):
            for url, server in self.servers.items():
                self.open(url)
                while server.asked or server.sent:
                    while server.asked:
                        server.serve()
                    server.deliver(3)
            self.timers.advance(0.5)

    def start(self) -> "World":
        self.tell()
        for url in self.servers:
            self.open(url)
        return self


def name_of(partition: int, number: int = 0, partitions: int = PARTITIONS) -> str:
    """An endpoint of a partition."""
    found = [f"/e/{n}" for n in range(100) if partition_of(f"/e/{n}".encode(), partitions) == partition]
    return found[number]
