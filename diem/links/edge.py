"""State that the client connections of one process share: fan-out, admission, timer wheel, status and drain."""

import asyncio
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from diem.fanout.fanout import Fanout
from diem.fanout.feed_hub import FeedHub
from diem.fanout.session import ClientTrace, Session
from diem.links.acceptor import ServerConnection
from diem.links.gate import Gate
from diem.links.timer_wheel import TimerWheel
from diem.protocol import messages
from diem.protocol.codes import Close
from diem.protocol.frames import text_frame

if TYPE_CHECKING:
    from diem.links.edge_connection import EdgeConnection


@dataclass(frozen=True, slots=True)
class EdgeRules:
    """What every client of a server is told, and its limits."""

    server: str
    mode: str
    subscriptions: int = 128
    drain_seconds: float = 30.0


class Service(Protocol):
    """What answers clients. A server does so from its hub; a proxy asks servers, so its answers may come later."""

    def joined(self, client: "EdgeConnection") -> None:
        """A client was welcomed."""
        ...

    def subscribe(self, client: "EdgeConnection", request: messages.Subscribe) -> None:
        """Answer with ``subscribed``; with several of them, if need be, that share out the names."""
        ...

    def unsubscribe(self, client: "EdgeConnection", request: messages.Unsubscribe) -> None:
        """Answer with ``unsubscribed``."""
        ...

    def blocked(self, client: "EdgeConnection") -> None:
        """The client takes no more: its session holds back, and its requests are not read."""
        ...

    def unblocked(self, client: "EdgeConnection") -> None:
        """The client takes data again."""
        ...

    def left(self, client: "EdgeConnection") -> None:
        """A client is going: called once, before the hub lets it go."""
        ...


class TraceSink(Protocol):
    """Who is told of every client that comes."""

    def came(self, client: str | None, connection: bytes, address: str) -> ClientTrace:
        """A client has connected from an address; ``client`` is what it says of itself."""
        ...


class HubService:
    """Answers from a hub, at once."""

    def __init__(self, hub: FeedHub) -> None:
        self._hub = hub

    def joined(self, client: "EdgeConnection") -> None:
        """Nothing."""

    def subscribe(self, client: "EdgeConnection", request: messages.Subscribe) -> None:
        """Register, and hand out what is retained and newer."""
        answer = self._hub.subscribe(client.session, request.endpoints)
        client.respond(messages.subscribed(request.id, answer.endpoints, answer.rejected), answer.replay)

    def unsubscribe(self, client: "EdgeConnection", request: messages.Unsubscribe) -> None:
        """Take the client off."""
        self._hub.fanout.unsubscribe(client.session, request.endpoints)
        client.respond(messages.unsubscribed(request.id, request.endpoints))

    def blocked(self, client: "EdgeConnection") -> None:
        """Nothing: the session conflates."""

    def unblocked(self, client: "EdgeConnection") -> None:
        """Nothing."""

    def left(self, client: "EdgeConnection") -> None:
        """Nothing."""


class Edge:
    """Everything that the client connections of one process share. It is called on the event loop only."""

    def __init__(self, fanout: Fanout, gate: Gate, rules: EdgeRules, service: Service) -> None:
        self.fanout = fanout
        self.gate = gate
        self.rules = rules
        self.service = service
        self.wheel: TimerWheel[EdgeConnection] = TimerWheel(_turn)
        self.connections: set[EdgeConnection] = set()
        self.status_frame = b""
        """The current ``status`` as one shared frame."""
        self.knocking: dict[ServerConnection, None] = {}
        """Connections whose request has not arrived yet, the oldest first."""
        self.ready = False
        self.draining = False
        self.received: Counter[str] = Counter()
        self.errors: Counter[str] = Counter()
        self.closes: Counter[int] = Counter()
        self.refused: Counter[int] = Counter()
        self.visitors: TraceSink | None = None
        """Where traffic is recorded."""

    def say_status(self, *, live: bool, since: str) -> None:
        """Tell every client that the server's state has changed."""
        self.status_frame = text_frame(messages.status(live=live, since=since))
        self.fanout.broadcast(self.status_frame)

    def send_away(self, sessions: Collection[Session]) -> None:
        """Close the clients that were told to leave and have not: they ask anew where their endpoints are."""
        if sessions:
            for connection in [each for each in self.connections if each.session in sessions]:
                connection.close(Close.MOVED, "retry=2000")

    async def drain(self, seconds: float) -> None:
        """Let every client go within ``seconds``: closes with 1012 and a window for the reconnect, in batches."""
        self.draining = True
        reason = f"retry={int(self.rules.drain_seconds * 1000)}"
        waiting = list(self.connections)
        steps = max(1, min(20, len(waiting) // 50))
        for step in range(steps):
            for connection in waiting[step::steps]:
                connection.close(Close.RESTART, reason)
            if step + 1 < steps:
                await asyncio.sleep(0.5 * seconds / steps)
        deadline = asyncio.get_running_loop().time() + 0.4 * seconds
        while self.gate.open and asyncio.get_running_loop().time() < deadline:  # noqa: ASYNC110 - once in a life
            await asyncio.sleep(0.05)


def _turn(connection: "EdgeConnection", *, due: bool) -> None:
    connection.turn(due=due)
