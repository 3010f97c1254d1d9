"""Passthrough mode: answers clients, each of which has links of its own, and gives up servers that are silent."""

from collections import Counter

from diem.fanout.session import DeliveryStats, Session
from diem.links.edge_connection import EdgeConnection
from diem.links.timer_wheel import TimerWheel
from diem.process.clock import Clock
from diem.protocol import messages
from diem.protocol.codes import ErrorCode
from proxy import upstream_messages
from proxy.checks import refusal
from proxy.passthrough_client import PassthroughClient
from proxy.relocation import Later
from proxy.requests import MAX_PENDING, Request
from proxy.routing import Router
from proxy.status_messages import too_many
from proxy.upstream import Receiver
from proxy.upstream_pool import ClientUpstreamLink, Dialler, UpstreamLink


class PassthroughProxy:
    """A ``Service`` for clients, and the ``Receiver`` of the standing links, which only show who is alive.

    Args:
        upstreams: links of all clients together; a request that needs more is refused with ``limit``. Endpoints that
            move may exceed it by what is closed within the grace.
    """

    def __init__(
        self,
        accounts: DeliveryStats,
        router: Router,
        dialler: Dialler,
        clock: Clock,
        later: Later,
        *,
        upstreams: int,
        limit: int = 128,
    ) -> None:
        self._accounts = accounts
        self._router = router
        self._dialler = dialler
        self._clock = clock
        self._later = later
        self._upstreams = upstreams
        self._limit = limit
        self.passengers: dict[EdgeConnection, PassthroughClient] = {}
        self.load: Counter[str] = Counter()
        """Server -> lines of clients."""
        self.wheel: TimerWheel[UpstreamLink] = TimerWheel(_turn)
        self._slots: dict[UpstreamLink, int] = {}

    # Service

    def joined(self, client: EdgeConnection) -> None:
        """Nothing: links come with the first subscription."""

    def subscribe(self, client: EdgeConnection, request: messages.Subscribe) -> None:
        """Ask the servers concerned."""
        passenger = self.passengers.get(client)
        if passenger is None:
            passenger = self.passengers[client] = PassthroughClient(
                client,
                accounts=self._accounts,
                router=self._router,
                clock=self._clock,
                later=self._later,
                make_line=self._make_line,
                drop_line=self._drop_line,
            )
        if passenger.pending >= MAX_PENDING:
            too_many(client, request.id)
            return
        asked = Request(client, request.id, request.endpoints)
        held = set(passenger.wanted)
        for name in request.endpoints:
            refused = refusal(name, held, self._limit)
            if refused is None:
                held.add(name)
                asked.waiting.add(name)
            else:
                asked.rejected[name] = refused
        if len(self._slots) + self._new_lines(passenger, asked) > self._upstreams:
            text = f"more than {self._upstreams} links to servers"
            client.respond(messages.error(ErrorCode.LIMIT, text, request.id))
            return
        passenger.subscribe(asked)

    def unsubscribe(self, client: EdgeConnection, request: messages.Unsubscribe) -> None:
        """Tell the servers concerned."""
        passenger = self.passengers.get(client)
        if passenger is None:
            client.respond(messages.unsubscribed(request.id, request.endpoints))
        elif passenger.pending >= MAX_PENDING:
            too_many(client, request.id)
        else:
            passenger.unsubscribe(request)

    def blocked(self, client: EdgeConnection) -> None:
        """Read no more for it."""
        passenger = self.passengers.get(client)
        if passenger is not None:
            passenger.block(blocked=True)

    def unblocked(self, client: EdgeConnection) -> None:
        """Read on; the status that it was just given speaks for all."""
        passenger = self.passengers.get(client)
        if passenger is not None:
            passenger.block(blocked=False)
            passenger.remind()

    def left(self, client: EdgeConnection) -> None:
        """Hang up."""
        passenger = self.passengers.pop(client, None)
        if passenger is not None:
            passenger.leave()

    def remind(self, client: EdgeConnection) -> None:
        """After a status that speaks for all."""
        passenger = self.passengers.get(client)
        if passenger is not None:
            passenger.remind()

    def rerouted(self) -> None:
        """There is another snapshot."""
        for passenger in self.passengers.values():
            passenger.follower.rerouted()

    # Receiver, of the standing links

    def opened(self, url: str) -> None:
        """Nothing: clients' lines dial by themselves."""

    def updates(self, url: str, data: bytes, frames: int) -> None:
        """Nothing was subscribed."""

    def heard(self, url: str, message: upstream_messages.Said) -> None:
        """Nothing: clients' lines hear it, too."""

    def lost(self, url: str) -> None:
        """The server is gone, or silent: so are the clients' lines to it."""
        for line in [line for line in self._slots if line.url == url]:
            line.cut()

    # Lines

    def _new_lines(self, passenger: PassthroughClient, request: Request) -> int:
        used = passenger.follower.used
        homes = {self._router.owner(name, used=used) for name in request.waiting if name not in passenger.follower}
        return len(homes - passenger.lines.keys() - {None})

    def _make_line(self, url: str, receiver: Receiver, session: Session) -> UpstreamLink:
        line = ClientUpstreamLink(url, self._dialler, receiver, session, self._accounts)
        self._slots[line] = self.wheel.add(line)
        self.load[url] += 1
        line.start()
        return line

    def _drop_line(self, line: UpstreamLink) -> None:
        self.wheel.discard(line, self._slots.pop(line))
        self.load[line.url] -= 1
        if not self.load[line.url]:
            del self.load[line.url]
        line.stop()

    @property
    def lines(self) -> int:
        """Links of clients, open or dialled."""
        return len(self._slots)


def _turn(line: UpstreamLink, *, due: bool) -> None:
    """A ping every 25 s; but who is not read from cannot answer."""
    link = line.link
    if link is None or not link.transport.is_reading():
        return
    if due:
        link.alive = False
        link.ping()
    elif not link.alive:
        line.cut()
