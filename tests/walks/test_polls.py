"""Clients that poll at any of two servers, through lags, lost feeds, restarts, and endpoints that become suspect.

Edges, hubs and requests are the real ones; a connection is a transport of the walk, and the loop has its own clock. An
answer has a reply for each name, each retained version that is newer than the known one, no older one where the server
does not lag, and the status that holds. At rest, whoever polls has the latest versions, wherever it asks.
"""

import asyncio
from typing import Any, Final

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from diem.fanout.feed_hub import FeedHub
from diem.links.edge import Admission, AdmissionRules, Edge, EdgeRules, HubService
from diem.links.http_updates import UpdatesConnection
from diem.protocol.feed import Batch
from diem.protocol.update import Change, encode
from tests.walks import walk_settings

pytestmark = pytest.mark.usefixtures("silent_log")

NAMES: Final = ("/a", "/b", "/c")
GATHERED_S: Final = 0.03
"""Time after which news has been gathered, and is answered."""
START: Final = 1_700_000_000_000


class Loop(asyncio.SelectorEventLoop):
    """A loop whose time the walk sets."""

    now = 0.0

    def time(self) -> float:
        return self.now


class Transport(asyncio.Transport):
    """Keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.closed = False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("127.0.0.1", 1) if name == "peername" else default

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0

    def write(self, data: Any) -> None:
        self.written += data

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    abort = close


class Server:
    """An edge that is at some position of the log."""

    def __init__(self, log: list[tuple[str, int]]) -> None:
        self.log = log
        self.start()

    def start(self) -> None:
        """Begin with nothing, and read the whole log."""
        self.hub, self.position, self.live = FeedHub(), 0, True
        rules = AdmissionRules(page_port=8000, limit_loopback=False)
        self.edge = Edge(self.hub.fanout, Admission(rules), EdgeRules("test", "x"), HubService(self.hub))
        self.hub.hello("store", ["store"])
        self.read(len(self.log))
        self.hub.caught_up("store")
        self.edge.ready = True
        self.edge.publish_status(live=True, since="-")

    def read(self, records: int) -> None:
        for name, version in self.log[self.position : self.position + records]:
            self.position += 1
            change = Change(self.position, name.encode(), version, 0, encode(name, version, version))
            self.hub.batch(Batch("store", self.position + 1, iter([change])))

    def set_live(self, *, live: bool) -> None:
        if live != self.live:
            self.live = live
            self.edge.publish_status(live=live, since="-")

    def version(self, name: str) -> int:
        return max((version for each, version in self.log[: self.position] if each == name), default=0)


class Client:
    """A client with one poll at a time."""

    def __init__(self) -> None:
        self.known = dict.fromkeys(NAMES, 0)
        self.resynced: set[str] = set()
        self.live = True
        """What it was told last, by whichever server."""
        self.poll: tuple[Server, UpdatesConnection, Transport, dict[str, int], dict[str, int]] | None = None

    def leave(self) -> None:
        if self.poll is not None:
            self.poll[1].connection_lost(None)
            self.poll = None

    def start(self, server: Server, wait: int) -> None:
        self.leave()
        connection, transport = UpdatesConnection(server.edge, None), Transport()
        connection.connection_made(transport)
        retained = {name: server.version(name) for name in NAMES}
        self.poll = server, connection, transport, dict(self.known), retained
        told = {"resynced": sorted(self.resynced), "live": self.live}
        body = orjson.dumps({"endpoints": self.known, "wait": wait, **told})
        connection.data_received(
            b"POST /v1/updates HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body
        )

    def receive(self) -> None:
        """Apply and check the answer, if there is one."""
        if self.poll is None or not self.poll[2].written:
            return
        server, _, transport, known, retained = self.poll
        head, _, body = transport.written.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 "), transport.written
        messages = orjson.loads(body)["messages"]
        (stated,) = (message["endpoints"] for message in messages if message["type"] == "subscribed")
        assert stated == {name: retained[name] or None for name in NAMES}
        self.live = [message["live"] for message in messages if message["type"] == "status"][-1]
        assert self.live == server.live
        updates = [(message["endpoint"], message["version"]) for message in messages if message["type"] == "update"]
        newest = {name: max((version for each, version in updates if each == name), default=0) for name in NAMES}
        for name in NAMES:
            assert retained[name] <= max(known[name], newest[name]), "a retained version that is newer is in the answer"
        assert all(version > min(known[name], retained[name]) for name, version in updates)
        for message in messages:
            if message["type"] == "resync":
                self.resynced.update(message["endpoints"])
        for name, version in updates:
            self.known[name] = max(self.known[name], version)
            self.resynced.discard(name)
        self.leave()


class World:
    """Servers and clients over one log."""

    def __init__(self, loop: Loop) -> None:
        self.loop = loop
        self.log: list[tuple[str, int]] = []
        self.servers = [Server(self.log) for _ in range(2)]
        self.clients = [Client() for _ in range(2)]

    def step(self, action: str, number: int, name: str, amount: int) -> None:
        server, client = self.servers[number % 2], self.clients[number // 2]
        match action:
            case "publish":
                self.log.append((name, START + len(self.log)))
                # The other server lags.
                if server.live:
                    server.read(len(self.log))
            case "read" if server.live:
                server.read(amount)
            case "resync":
                server.hub.resync([name.encode()])
            case "lose" | "regain":
                server.set_live(live=action == "regain")
            case "restart":
                for each in self.clients:
                    if each.poll is not None and each.poll[0] is server:
                        each.leave()
                server.start()
            case "poll":
                client.start(server, 25 * (amount % 2))

    async def run(self, seconds: float) -> None:
        """Let time pass."""
        self.loop.now += seconds
        for _ in range(4):
            await asyncio.sleep(0)
        for client in self.clients:
            client.receive()
            if client.poll is not None and seconds >= GATHERED_S:
                server, _, _, _, retained = client.poll
                assert retained == {name: server.version(name) for name in NAMES}, "it has nothing to wait for"
                assert server.live == client.live, "it has been told, perhaps by the other server"

    async def rest(self) -> None:
        """End all trouble: everybody who polls has everything."""
        latest = {name: max((version for each, version in self.log if each == name), default=0) for name in NAMES}
        for server in self.servers:
            server.set_live(live=True)
            server.read(len(self.log))
        await self.run(30)
        for client in self.clients:
            for server in self.servers:
                client.start(server, 0)
                await self.run(0.1)
                assert client.poll is None
                assert client.known == latest


ACTIONS: Final = ("publish", "read", "poll", "wait", "resync", "lose", "regain", "restart")
STEPS = st.lists(
    st.tuples(st.sampled_from((*ACTIONS, *ACTIONS[:4])), st.integers(0, 3), st.sampled_from(NAMES), st.integers(1, 4)),
    min_size=30,
    max_size=60,
)


@walk_settings(examples=100)
@given(STEPS)
def test_whoever_polls_has_what_its_servers_have(steps: list[tuple[str, int, str, int]]) -> None:
    async def walk(loop: Loop) -> None:
        world = World(loop)
        for action, number, name, amount in steps:
            world.step(action, number, name, amount)
            await world.run(26 if action == "wait" and amount == 1 else GATHERED_S if action == "wait" else 0)
        await world.rest()

    loop = Loop()
    try:
        loop.run_until_complete(walk(loop))
    finally:
        loop.close()
