"""Passthrough mode, one client: its own links to the servers that it needs, whose updates it gets as they are."""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from diem.fanout.frames import text_frame
from diem.fanout.session import DeliveryStats, Session
from diem.links.edge_connection import EdgeConnection
from diem.process.clock import Clock
from diem.protocol import messages
from proxy import upstream_messages
from proxy.frames import frames_of
from proxy.relocation import Later, Relocator
from proxy.requests import PendingUnsubscribes, Request, Requests
from proxy.routing import Router
from proxy.shared import follow_up
from proxy.status_messages import say_status
from proxy.upstream import Receiver
from proxy.upstream_pool import UpstreamLink


def trace_subscribed(session: Session, versions: Mapping[str, int | None]) -> None:
    """The client was answered with these; where nothing is recorded, nothing is kept."""
    if session.visit is not None:
        named = {name.encode(): version for name, version in versions.items()}
        if new := [endpoint for endpoint in named if endpoint not in session.endpoints]:
            session.endpoints.update(dict.fromkeys(new))
            session.visit.subscribed(new, [endpoint for endpoint in new if named[endpoint] is None])


def trace_unsubscribed(session: Session, names: Iterable[str]) -> None:
    """The client does not want these any more."""
    if session.visit is not None:
        named = dict.fromkeys(name.encode(errors="replace") for name in names)
        if held := [endpoint for endpoint in named if endpoint in session.endpoints]:
            for endpoint in held:
                del session.endpoints[endpoint]
            session.visit.unsubscribed(held)


GRACE: Final = 10.0
"""Seconds for which a link without subscriptions is kept: the client may come back to that server."""


class PassthroughClient:
    """Follows for one client (it is the ``Audience``), over lines of its own (``Servers``, and their ``Receiver``).

    What is held for it: the names and known versions of its subscriptions, and what waits for answers.
    """

    def __init__(
        self,
        client: EdgeConnection,
        *,
        accounts: DeliveryStats,
        router: Router,
        clock: Clock,
        later: Later,
        make_line: Callable[[str, Receiver, Session], UpstreamLink],
        drop_line: Callable[[UpstreamLink], None],
    ) -> None:
        self._client = client
        self._session = client.session
        self._accounts = accounts
        self._clock = clock
        self._later = later
        self._make_line = make_line
        self._drop_line = drop_line
        self._lines: dict[str, UpstreamLink] = {}
        self._wanted: dict[str, int] = {}
        self._leavings = PendingUnsubscribes(self._confirm)
        self._tidying = False
        self.follower = Relocator(router, self, self, later, clock.monotonic)
        self.requests = Requests(self._answer, self.follower.suspect, later, together=0.0)

    @property
    def pending(self) -> int:
        """Requests that wait for servers."""
        return self.requests.pending(self._client) + len(self._leavings)

    @property
    def wanted(self) -> Mapping[str, int]:
        """Endpoint -> version that the client said it held."""
        return self._wanted

    @property
    def lines(self) -> Mapping[str, UpstreamLink]:
        """Server -> its line."""
        return self._lines

    def subscribe(self, request: Request) -> None:
        """Take the names that the request waits for."""
        self._wanted.update({name: request.known[name] for name in request.waiting})
        self.requests.add(request)
        self.follower.follow(sorted(request.waiting))

    def unsubscribe(self, request: messages.Unsubscribe) -> None:
        """Reply when every server concerned has confirmed, or its link is gone."""
        for name in request.endpoints:
            self._wanted.pop(name, None)
        self.requests.cancel(self._client, request.endpoints)
        trace_unsubscribed(self._session, request.endpoints)
        self.follower.unfollow(request.endpoints)
        self._leavings.add(request)

    def block(self, *, blocked: bool) -> None:
        """Read from its servers, or not: they conflate meanwhile."""
        for line in self._lines.values():
            if line.link is not None and not line.link.transport.is_closing():
                (line.link.transport.pause_reading if blocked else line.link.transport.resume_reading)()

    def remind(self) -> None:
        """After a status that speaks for all: what is stale nevertheless."""
        self.stale([name for name in self._wanted if self.follower.is_stale(name)])

    def leave(self) -> None:
        """The client is gone."""
        self.requests.drop(self._client)
        self.follower.close()
        self._leavings.clear()
        for line in self._lines.values():
            self._drop_line(line)
        self._lines.clear()

    # Servers

    def ask(self, url: str, known: Mapping[str, int | None]) -> int | None:
        """Over the line to a server; a first subscription opens it."""
        line = self._lines.get(url)
        if line is None:
            self._lines[url] = self._make_line(url, self, self._session)
            return None
        return line.link.subscribe(known) if line.link is not None else None

    def drop(self, url: str, names: list[str]) -> None:
        """Over the line to a server, if it is open."""
        self._tidy()
        line = self._lines.get(url)
        if line is None or line.link is None:
            return
        self._leavings.asked(url, line.link.unsubscribe(names), names)

    # Audience

    def known(self, name: str) -> int | None:
        """What the client said it holds; what it was told since it drops when it is told again."""
        return self._wanted.get(name) or None

    def answered(self, versions: Mapping[str, int | None]) -> None:
        """Relay the part of a request that this answers; a reply to a request of the proxy's own answers nobody's."""
        self.requests.answered(versions)

    def stale(self, names: list[str]) -> None:
        """Tell the client of what it was answered for; of the rest it hears with the answer."""
        if told := [name for name in names if name not in self.requests]:
            say_status(self._client, told, self._clock, live=False)

    def fresh(self, names: list[str]) -> None:
        """Tell the client that it is over; also of what it has asked for again, of which it may have been told."""
        say_status(self._client, names, self._clock, live=True)

    def _answer(self, request: Request) -> None:
        ready, rejected = request.take()
        self._client.respond(messages.subscribed(request.id, ready, rejected))
        trace_subscribed(self._session, {name: version for name, version in ready.items() if name in self._wanted})
        # Nothing is said of what it has left meanwhile.
        stale = [name for name in ready if name in self._wanted and self.follower.is_stale(name)]
        if stale:
            say_status(self._client, stale, self._clock, live=False)

    # Receiver

    def opened(self, url: str) -> None:
        """Ask for all that belongs there."""
        if self._session.blocked:
            self.block(blocked=True)
        self.follower.opened(url)

    def updates(self, url: str, data: bytes, frames: int) -> None:  # noqa: ARG002 - whose they are makes no difference
        """Relay: one write, or one look at each when the client is blocked."""
        self._accounts.offered += frames
        if self._session.blocked:
            self._session.send_many(frames_of(data))
        else:
            self._session.send(data)

    def heard(self, url: str, message: upstream_messages.Said) -> None:
        """Whatever else a server says."""
        match message:
            case upstream_messages.Unsubscribed():
                self._leavings.confirmed(url, message.id)
            case upstream_messages.UpstreamResync():
                for name in message.endpoints:
                    if name in self._wanted:
                        self._accounts.offered += 1
                        self._session.send(text_frame(messages.resync([name])))
            case _:
                follow_up(self.follower, url, message)

    def lost(self, url: str) -> None:
        """What is there is stale; nothing more comes from there."""
        self.follower.lost(url)
        self._tidy()
        self._leavings.lost(url)

    def _confirm(self, request: messages.Unsubscribe) -> None:
        for name in request.endpoints:
            if name not in self._wanted:
                self._session.forget(name.encode(errors="replace"))
        self._client.respond(messages.unsubscribed(request.id, request.endpoints))
        self._tidy()

    # Links that nothing needs

    def _tidy(self) -> None:
        if not self._tidying:
            self._tidying = True
            self._later(GRACE, self._close_unused)

    def _close_unused(self) -> None:
        self._tidying = False
        needed = self.follower.used.keys() | self._leavings.urls
        for url in self._lines.keys() - needed:
            self._drop_line(self._lines.pop(url))
            self._leavings.lost(url)
