"""A proxy without sockets: servers, links and clients are FIFO queues that a test advances."""

from collections import deque
from collections.abc import Callable, Collection, Sequence
from typing import Any, Protocol, cast

import orjson

from diem.fanout.data_budget import DataBudget
from diem.fanout.fanout import Fanout
from diem.fanout.session import Session
from diem.links.edge_connection import EdgeConnection
from diem.process.allow_list import AllowList
from diem.process.clock import ManualClock
from diem.protocol import messages
from diem.protocol.assignment import STABLE, Clone, Owner, Snapshot
from diem.protocol.codes import ErrorCode
from diem.protocol.frames import BadFrame, FrameRun, Splitter, frames_of, text_frame
from diem.protocol.messages import Refusal, ServerMessage, Subscribe, Unsubscribe
from diem.protocol.partition_map import Head, PartitionMap
from diem.protocol.partitioners import partition_of
from diem.protocol.update import encode
from proxy.routing import Router
from proxy.shared import SharedProxy
from proxy.upstream import Upstream, UpstreamListener

START = 1_700_000_000_000
PARTITIONS = 2


class FakeTransport:
    """The transport of either end of a link; data waits in ``sent`` until the peer reads it."""

    def __init__(self, sent: deque[bytes] | None = None) -> None:
        self.sent: deque[bytes] = deque() if sent is None else sent
        self.write = self.sent.append
        self.writelines = self.sent.extend
        self.reading = True

    def get_extra_info(self, _name: str) -> "FakeTransport":
        return self

    def setsockopt(self, *_: object) -> None:
        """Do nothing: there is no socket."""

    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True


class FakeUpstream:
    """A fake ``Upstream``: an open connection; its requests wait in a queue for a server."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.transport = FakeTransport()
        self.requests: deque[tuple[str, int, dict[str, int | None]]] = deque()
        self.data = False
        """Updates with data were asked for."""

    @property
    def itself(self) -> Upstream:
        return cast("Upstream", self)

    @property
    def requested(self) -> list[tuple[str, dict[str, int | None]]]:
        return [(kind, known) for kind, _, known in self.requests]

    def send_text(self, payload: bytes) -> None:
        message = orjson.loads(payload)
        names = message["endpoints"]
        known = names if isinstance(names, dict) else dict.fromkeys(names)
        self.data |= message.get("data", False)
        self.requests.append((message["type"], message["id"], known))


class RecordingListener:
    """A fake ``UpstreamListener`` that records events and rejects updates."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def opened(self, _link: object) -> None:
        self.events.append("opened")

    def updates(self, url: str, data: bytes, frames: int) -> None:
        raise BadFrame("an update without a version")

    def message(self, url: str, message: ServerMessage) -> None:
        self.events.append("message")

    def lost(self, url: str) -> None:
        self.events.append("lost")


class FakeLink:
    """A fake ``UpstreamLink``, opened and lost by the test."""

    def __init__(self, url: str, listener: UpstreamListener) -> None:
        self.url = url
        self.listener = listener
        self.upstream: FakeUpstream | None = None
        self.stopped = False

    def start(self) -> None:
        """Do nothing: the test opens the link."""

    def stop(self) -> None:
        self.stopped = True
        self.upstream = None

    def open(self) -> FakeUpstream:
        upstream = self.upstream = FakeUpstream(self.url)
        self.listener.opened(upstream.itself)
        return upstream

    def lose(self) -> None:
        """Reset the link: data in transit is lost."""
        self.upstream = None
        self.listener.lost(self.url)


class Timers:
    """``call_later`` on a manual clock."""

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
        """Advance the clock, and run the timers that expire, in order."""
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


class Environment(Protocol):
    """Interfaces that a client depends on."""

    latest: dict[str, int]
    """Endpoint -> version at the source."""

    @property
    def fanout(self) -> Fanout: ...

    @property
    def shared(self) -> SharedProxy: ...


class Client:
    """An unmodified client: a fake ``EdgeConnection`` that follows the rules of the SDK."""

    def __init__(self, world: Environment) -> None:
        self.world = world
        self.session = Session(self._write, self._writelines, world.fanout.stats)
        self.held: dict[str, int] = {}
        """Endpoint -> version of its data; it fetches each announced version at once, and no later one."""
        self.wanted: set[str] = set()
        self.confirmed: set[str] = set()
        self.affected: set[str] = set()
        self.received: list[dict[str, Any]] = []
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

    def subscribe(self, *names: str, data: bool = False) -> int:
        self.ids += 1
        self.wanted |= set(names)
        self.unanswered[self.ids] = set(names)
        known = {name: self.held.get(name, 0) for name in names}
        self.world.shared.subscribe(self.edge, Subscribe(self.ids, known, data=data))
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

    def of_type(self, kind: str) -> list[dict[str, Any]]:
        return [message for message in self.received if message["type"] == kind]

    def _writelines(self, frames: Any) -> None:
        for frame in frames:
            self._write(frame)

    def _write(self, frame: bytes) -> None:
        payload = frame[{126: 4, 127: 10}.get(frame[1], 2) :]
        message = orjson.loads(payload)
        self.received.append(message)
        match message["type"]:
            case "update":
                name = message["endpoint"]
                assert name in self.confirmed, f"an update of {name} before subscribed, or after unsubscribed"
                self.held[name] = max(message["version"], self.held.get(name, 0))
            case "subscribed":
                names = {*message["endpoints"], *message.get("rejected", {})}
                assert names <= self.unanswered[message["id"]], "answered twice, or not requested"
                self.unanswered[message["id"]] -= names
                self.confirmed |= message["endpoints"].keys()
            case "unsubscribed":
                self.confirmed -= set(message["endpoints"])
                self.affected -= set(message["endpoints"])
            case "status":
                (self.affected.difference_update if message["live"] else self.affected.update)(message["endpoints"])


class RecordingTrace:
    """A fake ``ClientTrace``: the endpoints of each request, and those of them without a known version."""

    def __init__(self) -> None:
        self.requests: list[tuple[list[bytes], list[bytes]]] = []

    def identified(self, client: str) -> None:
        """Do nothing: the id is not recorded."""

    def subscribed(self, endpoints: Sequence[bytes], unknown: Collection[bytes] = ()) -> None:
        self.requests.append((sorted(endpoints), sorted(unknown)))

    def unsubscribed(self, endpoints: Sequence[bytes]) -> None:
        self.requests.append((sorted(endpoints), []))

    def ended(self) -> None:
        """Do nothing: the end is not recorded."""


class Server:
    """A server and its end of the one link; its state outlives the link."""

    def __init__(self, world: "World", owner: Owner) -> None:
        self.world = world
        self.owner = owner
        self.url = owner.internal
        self.retained: dict[str, int] = {}
        self.partitions: set[int] = set()
        self.subscribed: set[str] = set()
        self.link: FakeUpstream | None = None
        self.hint: str | None = None
        """URL to redirect to, instead of that of the real owner."""
        self.sent: deque[bytes] = deque()
        self.known: list[dict[str, int | None]] = []
        """Known versions of each subscribe request."""

    @property
    def requests(self) -> deque[tuple[str, int, dict[str, int | None]]]:
        """Unanswered requests."""
        return deque() if self.link is None else self.link.requests

    def owns(self, name: str) -> bool:
        return partition_of(name.encode(), PARTITIONS) in self.partitions

    def apply_update(self, name: str, version: int) -> None:
        """Apply an update of the feed."""
        if self.owns(name) and version > self.retained.get(name, 0):
            self.retained[name] = version
            if name in self.subscribed:
                self.sent.append(self._frame(name, version))

    def _frame(self, name: str, version: int) -> bytes:
        data = b'{"version":%d,"points":[]}' % version if self.link is not None and self.link.data else None
        return text_frame(encode(name, version, version, data=data))

    def answer_next(self) -> None:
        """Answer the oldest request."""
        kind, request_id, known = self.requests.popleft()
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
                self.sent.append(self._frame(name, version or 0))

    def revoke(self, partition: int) -> None:
        """Lose a partition to another server of the group."""
        self.partitions.discard(partition)
        gone = sorted(name for name in self.subscribed if not self.owns(name))
        self.subscribed -= set(gone)
        self.retained = {name: version for name, version in self.retained.items() if self.owns(name)}
        if gone:
            self.sent.append(text_frame(messages.moved(gone, None)))

    def deliver(self, frames: int = 1) -> None:
        """Deliver sent frames to the proxy, in one chunk."""
        chunk = b"".join(self.sent.popleft() for _ in range(min(frames, len(self.sent))))
        for piece in Splitter().feed(chunk):
            if isinstance(piece, FrameRun):
                assert len(list(frames_of(piece.data))) == piece.frames
                self.world.shared.updates(self.url, piece.data, piece.frames)
            else:
                self.world.shared.message(self.url, messages.parse_server(piece.payload))  # type: ignore[union-attr]


class World:
    """Two servers of one group, a proxy, and the versions at the source."""

    def __init__(self, *, limit: int = 128, budget: DataBudget | None = None) -> None:
        self.clock = ManualClock()
        self.timers = Timers(self.clock)
        self.fanout = Fanout(framed=True)
        owners = [Owner(f"b{n:03d}", f"ws://127.0.0.1:91{n:02d}/ws", f"ws://127.0.0.1:81{n:02d}/ws") for n in (1, 2)]
        self.servers = {owner.internal: Server(self, owner) for owner in owners}
        self.latest: dict[str, int] = {}
        self.version = START
        self.router = Router(1, AllowList(["127.0.0.0/8"]))
        self.shared = SharedProxy(self.fanout, self.router, self.clock, self.timers.later, limit=limit, budget=budget)
        self.assigned = dict(enumerate(self.servers))
        for partition, url in self.assigned.items():
            self.servers[url].partitions.add(partition)

    def client(self) -> Client:
        return Client(self)

    def server_of(self, name: str) -> Server:
        return self.servers[self.assigned[partition_of(name.encode(), PARTITIONS)]]

    def public(self, name: str) -> str:
        return self.server_of(name).owner.public

    def publish_snapshot(self) -> None:
        """Send the proxy a snapshot of the metadata service."""
        members = {server.owner.server: server.owner for server in self.servers.values()}
        owners = {number: self.servers[url].owner.server for number, url in self.assigned.items()}
        self.router.apply(Snapshot(PartitionMap(Head(PARTITIONS, 0)), {1: Clone(STABLE, members, owners)}))
        self.shared.rerouted()

    def put(self, name: str) -> None:
        """Publish a new version of an endpoint."""
        self.version += 1
        self.latest[name] = self.version
        for server in self.servers.values():
            server.apply_update(name, self.version)

    def assign(self, partition: int, url: str) -> None:
        """Assign a partition to another server, which reads it from the start."""
        before, self.assigned[partition] = self.assigned[partition], url
        if before != url:
            self.servers[before].revoke(partition)
            self.servers[url].partitions.add(partition)
            for name, version in self.latest.items():
                self.servers[url].apply_update(name, version)

    def open(self, url: str) -> None:
        server = self.servers[url]
        if server.link is None:
            server.link = FakeUpstream(url)
            self.shared.opened(server.link.itself)

    def lose(self, url: str) -> None:
        """Reset the link: data in transit and the subscriptions are lost."""
        server = self.servers[url]
        if server.link is not None:
            server.link = None
            server.sent.clear()
            server.subscribed.clear()
            self.shared.lost(url)

    def run_until_stable(self) -> None:
        """Open links, answer requests, deliver frames and let timers expire, for 30 s."""
        for _ in range(60):
            for url, server in self.servers.items():
                self.open(url)
                while server.requests or server.sent:
                    while server.requests:
                        server.answer_next()
                    server.deliver(3)
            self.timers.advance(0.5)

    def start(self) -> "World":
        self.publish_snapshot()
        for url in self.servers:
            self.open(url)
        return self


def name_of(partition: int, number: int = 0, partitions: int = PARTITIONS) -> str:
    """Return an endpoint of a partition."""
    found = [f"/e/{n}" for n in range(100) if partition_of(f"/e/{n}".encode(), partitions) == partition]
    return found[number]
