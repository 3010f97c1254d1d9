"""Passthrough mode: each client has its own links to its servers, whose bytes are forwarded unchanged."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from diem.fanout.session import DeliveryStats, Session
from diem.links.edge import EdgeClient, Service
from diem.links.keepalive import TimerWheel
from diem.process.clock import Clock
from diem.protocol import endpoints, messages
from diem.protocol.codes import ErrorCode
from diem.protocol.frames import frame_has_data, frame_without_data, frames_of, read_update, text_frame
from diem.protocol.update import DATA_FIELD
from proxy.pending import (
    MAX_PENDING,
    CallLater,
    PendingReplays,
    PendingSubscribe,
    PendingSubscribes,
    PendingUnsubscribes,
    TimerHandle,
    refuse_pending,
    respond_stale,
    send_status,
)
from proxy.relocation import Action, BecameStale, Recovered, Relocator, SendSubscribe, SendUnsubscribe
from proxy.routing import Router
from proxy.upstream import Upstream
from proxy.upstream_pool import UpstreamDialer, UpstreamLink

UNUSED_LINK_S: Final = 10.0
"""Seconds to keep a link without subscriptions: the client may need that server again."""


class PassthroughProxy(Service):
    """Serves the proxy's clients; listens to the pool's links, used only to detect dead servers.

    Args:
        upstreams: links of all clients together; a request that needs more is refused with ``limit``. Moving endpoints
            may exceed it by links about to be closed, for up to 10 s.
        limit: maximum number of subscriptions per client.
    """

    def __init__(
        self,
        stats: DeliveryStats,
        router: Router,
        dialer: UpstreamDialer,
        clock: Clock,
        later: CallLater,
        *,
        upstreams: int,
        limit: int = messages.SUBSCRIPTIONS,
    ) -> None:
        self.stats = stats
        self.router = router
        self.clock = clock
        self.later = later
        self.clients: dict[EdgeClient, PassthroughClient] = {}
        self.load: Counter[str] = Counter()
        """Server -> links of clients."""
        self.wheel: TimerWheel[UpstreamLink] = TimerWheel()
        self._dialer = dialer
        self._upstreams = upstreams
        self._limit = limit
        self._slots: dict[UpstreamLink, int] = {}
        """Link of a client -> its slot in the wheel."""

    # Service

    def subscribe(self, client: EdgeClient, request: messages.Subscribe) -> None:
        """Forward the request to the servers concerned."""
        of_client = self.clients.get(client)
        if of_client is None:
            of_client = self.clients[client] = PassthroughClient(client, self)
        if of_client.pending >= MAX_PENDING:
            refuse_pending(client, request.id)
            return
        pending = PendingSubscribe(
            client, request.id, request.endpoints, rejected=dict(request.rejected), data=request.data
        )
        held = set(of_client.wanted)
        for name in request.endpoints:
            if not endpoints.is_valid(name):
                pending.rejected[name] = messages.BAD_NAME
            elif name not in held and len(held) >= self._limit:
                pending.rejected[name] = messages.over_limit(self._limit)
            else:
                held.add(name)
                pending.waiting.add(name)
        more = self._new_links(of_client, pending)
        if more and len(self._slots) + more > self._upstreams:
            text = f"more than {self._upstreams} links to servers"
            client.respond(messages.error(ErrorCode.LIMIT, text, request.id))
            return
        of_client.subscribe(pending)

    def unsubscribe(self, client: EdgeClient, request: messages.Unsubscribe) -> None:
        """Forward the request to the servers concerned."""
        of_client = self.clients.get(client)
        if of_client is None:
            client.respond(messages.unsubscribed(request.id, request.endpoints))
        elif of_client.pending >= MAX_PENDING:
            refuse_pending(client, request.id)
        else:
            of_client.unsubscribe(request)

    def restrict(self, client: EdgeClient, allows: Callable[[str], bool]) -> list[str]:
        """Unsubscribe the client from endpoints that it may no longer read."""
        of_client = self.clients.get(client)
        return [] if of_client is None else of_client.restrict(allows)

    def blocked(self, client: EdgeClient) -> None:
        """Stop reading from the client's servers."""
        of_client = self.clients.get(client)
        if of_client is not None:
            of_client.block(blocked=True)

    def unblocked(self, client: EdgeClient) -> None:
        """Resume reading, and resend the stale endpoints: a global status was just sent."""
        of_client = self.clients.get(client)
        if of_client is not None:
            of_client.block(blocked=False)
            of_client.resend_stale_status()

    def left(self, client: EdgeClient) -> None:
        """Close the links of a disconnected client."""
        of_client = self.clients.pop(client, None)
        if of_client is not None:
            of_client.leave()

    def resend_stale_status(self, client: EdgeClient) -> None:
        """Resend a client's stale endpoints after a global status, which reports all as live."""
        of_client = self.clients.get(client)
        if of_client is not None:
            of_client.resend_stale_status()

    def rerouted(self) -> None:
        """Apply a new snapshot of the router."""
        for of_client in self.clients.values():
            of_client.rerouted()

    # Listener of the pool's links

    def opened(self, link: Upstream) -> None:
        """Do nothing: clients' links are dialled separately."""

    def updates(self, url: str, data: bytes, frames: int) -> None:
        """Do nothing: these links have no subscriptions."""

    def message(self, url: str, message: messages.ServerMessage) -> None:
        """Do nothing: clients' links receive the same message."""

    def lost(self, url: str) -> None:
        """Drop the clients' connections to a lost or silent server."""
        for link in [link for link in self._slots if link.url == url]:
            link.drop()

    # Links of clients

    def _new_links(self, client: "PassthroughClient", request: PendingSubscribe) -> int:
        relocator = client.relocator
        new = [name for name in request.waiting if name not in relocator.routes]
        homes = {self.router.owner(name, used=relocator.used, load=self.load) for name in new}
        return len(homes - client.links.keys() - {None})

    def connect(self, url: str, client: "PassthroughClient", session: Session) -> UpstreamLink:
        """Open a link of a client."""
        link = self._dialer.client_link(url, client, session, self.stats)
        self._slots[link] = self.wheel.add(link)
        self.load[url] += 1
        link.start()
        return link

    def disconnect(self, link: UpstreamLink) -> None:
        """Close a link of a client."""
        self.wheel.discard(link, self._slots.pop(link))
        self.load[link.url] -= 1
        if not self.load[link.url]:
            del self.load[link.url]
        link.stop()

    @property
    def links(self) -> int:
        """Links of clients, open or being dialled."""
        return len(self._slots)


class PassthroughClient:
    """One client: the listener of its links, with its subscriptions and unanswered requests."""

    def __init__(self, client: EdgeClient, proxy: PassthroughProxy) -> None:
        self.links: dict[str, UpstreamLink] = {}
        """Server -> link, open or being dialled."""
        self.wanted: dict[str, int] = {}
        """Endpoint -> version that the client held when it subscribed."""
        self._data = False
        """Servers are asked for data, of all endpoints: the client has asked for that of some."""
        self._client = client
        self._session = client.session
        self._proxy = proxy
        self._open: dict[str, Upstream] = {}
        """Server -> open connection."""
        self._unsubscribes = PendingUnsubscribes()
        self._replays = PendingReplays()
        self._withheld: dict[str, list[str]] = {}
        """Endpoint that the client may no longer see -> those withheld with it until servers have confirmed."""
        self._closing_unused = False
        self._timer: TimerHandle | None = None
        self.relocator = Relocator(proxy.router, self._open, proxy.clock.monotonic, proxy.load)
        self._subscribes = PendingSubscribes(self._answer, self._expire, proxy.later, coalesce_s=0.0)

    @property
    def pending(self) -> int:
        """Unanswered requests."""
        return len(self._subscribes.by_client.get(self._client, ())) + len(self._unsubscribes)

    def subscribe(self, request: PendingSubscribe) -> None:
        """Subscribe to the request's waiting endpoints."""
        self.wanted.update({name: request.known[name] for name in request.waiting})
        self._data |= request.data
        for name in request.waiting & self._withheld.keys():
            del self._withheld[name]
        self._subscribes.add(request)
        self._apply(self.relocator.subscribe(sorted(request.waiting)))

    def unsubscribe(self, request: messages.Unsubscribe) -> None:
        """Unsubscribe; confirm once every server concerned has confirmed or lost its link."""
        for name in request.endpoints:
            self.wanted.pop(name, None)
        self._subscribes.cancel(self._client, request.endpoints)
        trace_unsubscribed(self._session, request.endpoints)
        self._apply(self.relocator.unsubscribe(request.endpoints))
        self._unsubscribes.add(request.endpoints, lambda: self._confirm(request))

    def restrict(self, allows: Callable[[str], bool]) -> list[str]:
        """Unsubscribe from endpoints that the client may no longer read; withhold their updates until then."""
        ended = [name for name in self.wanted if not allows(name)]
        # Updates may still arrive for endpoints that it has unsubscribed from, too.
        left = [name for name in self._unsubscribes.endpoints if name not in self.wanted and not allows(name)]
        if not (withheld := [*ended, *left]):
            return ended
        for name in withheld:
            self.wanted.pop(name, None)
            self._session.forget(name.encode())
        self._subscribes.reject(self._client, ended, messages.FORBIDDEN)
        trace_unsubscribed(self._session, ended)
        self._withheld.update(dict.fromkeys(withheld, withheld))
        self._inspect(self._open)
        self._apply(self.relocator.unsubscribe(ended))
        self._unsubscribes.add(withheld, lambda: self._release(withheld))
        return ended

    def block(self, *, blocked: bool) -> None:
        """Pause or resume reading from the servers, which conflate meanwhile."""
        for upstream in self._open.values():
            if not upstream.transport.is_closing():
                (upstream.transport.pause_reading if blocked else upstream.transport.resume_reading)()

    def resend_stale_status(self) -> None:
        """Resend the stale endpoints after a global status, which reports all as live."""
        self._send_stale([name for name in self.wanted if self.relocator.is_stale(name)])

    def rerouted(self) -> None:
        """Apply a new snapshot of the router."""
        self._apply(self.relocator.rerouted())

    def leave(self) -> None:
        """Close all links: the client is gone."""
        self._subscribes.drop(self._client)
        self.relocator.close()
        self._unsubscribes.clear()
        if self._timer is not None:
            self._timer.cancel()
        for link in self.links.values():
            self._proxy.disconnect(link)
        self.links.clear()
        self._open.clear()

    def _answer(self, request: PendingSubscribe) -> None:
        ready, request.ready = request.ready, {}
        rejected, request.rejected = request.rejected, {}
        # Except endpoints that the client has unsubscribed from since.
        stale = [name for name in ready if name in self.wanted and self.relocator.is_stale(name)]
        respond_stale(self._client, stale, self._proxy.clock)
        self._client.respond(messages.subscribed(request.id, ready, rejected))
        trace_subscribed(self._session, {name: version for name, version in ready.items() if name in self.wanted})

    def _expire(self, names: Iterable[str]) -> None:
        self._apply(self.relocator.mark_stale(names))

    def _confirm(self, request: messages.Unsubscribe) -> None:
        for name in request.endpoints:
            if name not in self.wanted:
                self._session.forget(name.encode(errors="replace"))
        self._client.respond(messages.unsubscribed(request.id, request.endpoints))
        self._close_unused_later()

    def _release(self, withheld: list[str]) -> None:
        """Stop withholding endpoints: their servers have confirmed the end of updates."""
        for name in withheld:
            # Unless subscribed and ended again, which awaits a later confirmation.
            if self._withheld.get(name) is withheld:
                del self._withheld[name]
        if not self._withheld:
            self._inspect(self._open)
        self._close_unused_later()

    def _inspect(self, urls: Iterable[str]) -> None:
        """Inspect every update of these servers if some may have to be changed."""
        for url in urls:
            if url in self._open:
                self._open[url].inspect(inspected=bool(self._withheld) or self._replays.due(url))

    # Listener of its links

    def opened(self, link: Upstream) -> None:
        """Request this server's endpoints."""
        self._open[link.url] = link
        if self._session.blocked:
            self.block(blocked=True)
        self._apply(self.relocator.opened(link.url))

    def updates(self, url: str, data: bytes, frames: int) -> None:
        """Forward updates: in one write, or frame by frame to be conflated while the client is blocked."""
        if self._replays.due(url):
            data = self._within_allowance(url, data)
        if self._withheld:
            self._send_without_withheld(data)
            return
        if self._data:
            data = self._metered(data)
        self._proxy.stats.offered += frames
        if self._session.blocked:
            self._session.send_many(frames_of(data))
        else:
            self._session.send(data)

    def _within_allowance(self, url: str, data: bytes) -> bytes:
        """Count the data of retained updates; beyond the client's allowance for replies, return them without data."""
        admit, frames = self._session.admit_data, []
        for frame in frames_of(data):
            endpoint, version, _ = read_update(frame)
            counts = self._replays.arrived(url, endpoint, version) and frame_has_data(frame)
            if not counts or admit is None or admit(len(frame)):
                frames.append(frame)
            else:
                self._proxy.stats.replies_without_data += 1
                frames.append(frame_without_data(endpoint, frame))
        self._inspect([url])
        return b"".join(frames)

    def _metered(self, data: bytes) -> bytes:
        """Count the updates with data (each has the field once); strip it once the lease is used up."""
        if self._session.meter.spend(data.count(DATA_FIELD)):
            return data
        return b"".join(frame_without_data(read_update(frame)[0], frame) for frame in frames_of(data))

    def _send_without_withheld(self, data: bytes) -> None:
        if frames := [frame for frame in frames_of(data) if read_update(frame)[0].decode() not in self._withheld]:
            self._proxy.stats.offered += len(frames)
            self._session.send_many(frames_of(self._metered(b"".join(frames))) if self._data else frames)

    def message(self, url: str, message: messages.ServerMessage) -> None:
        """Answer the client, and relocate endpoints."""
        match message:
            case messages.SubscribedReply():
                registered, actions = self.relocator.subscribed(url, message)
                self._apply(actions)
                # Answers to the proxy's own requests have no waiting endpoints.
                self._subscribes.answered(registered)
                self._replays.answered(url, message)
                self._inspect([url])
            case messages.UnsubscribedReply():
                self._replays.ended(url, self._unsubscribes.confirmed(url, message.id))
                self._inspect([url])
            case messages.ResyncMessage():
                for name in message.endpoints:
                    if name in self.wanted:
                        self._proxy.stats.offered += 1
                        self._session.send(text_frame(messages.resync([name])))
            case _:
                if isinstance(message, messages.ErrorReply):
                    self._replays.refused(url, message.id)
                self._apply(self.relocator.handle(url, message))

    def lost(self, url: str) -> None:
        """Mark this server's endpoints stale, and count its pending unsubscribes as confirmed."""
        self._open.pop(url, None)
        self._apply(self.relocator.lost(url))
        self._close_unused_later()
        self._replays.lost(url)
        self._unsubscribes.lost(url)

    # Relocation

    def _apply(self, actions: Iterable[Action]) -> None:
        """Execute the relocator's actions, open the links that they need, and schedule its next tick."""
        for action in actions:
            match action:
                case SendSubscribe(url, request_id, names):
                    # The version from the client's subscribe: a repeat of an update sent since is harmless.
                    known = {name: self.wanted.get(name) or None for name in names}
                    self._open[url].send_text(messages.subscribe(request_id, known, data=self._data))
                    if self._data:
                        self._replays.requested(url, request_id, known)
                case SendUnsubscribe(url, request_id, names):
                    self._open[url].send_text(messages.unsubscribe(request_id, names))
                    self._unsubscribes.sent(url, request_id, names)
                case BecameStale(names):
                    self._send_stale(names)
                case Recovered(names):
                    # Including endpoints with an unanswered subscribe: they may have been reported stale before it.
                    send_status(self._client, names, self._proxy.clock, live=True)
        for url in [url for url in self.relocator.used if url not in self.links]:
            self.links[url] = self._proxy.connect(url, self, self._session)
        if any(url not in self.relocator.used for url in self.links):
            self._close_unused_later()
        if self._timer is None and (delay := self.relocator.tick_after_s) is not None:
            self._timer = self._proxy.later(delay, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self._apply(self.relocator.tick())

    def _send_stale(self, names: Iterable[str]) -> None:
        """Send a partial status; endpoints with an unanswered subscribe are sent with the answer."""
        if stale := [name for name in names if name not in self._subscribes]:
            send_status(self._client, stale, self._proxy.clock, live=False)

    def _close_unused_later(self) -> None:
        if not self._closing_unused:
            self._closing_unused = True
            self._proxy.later(UNUSED_LINK_S, self._close_unused)

    def _close_unused(self) -> None:
        self._closing_unused = False
        needed = self.relocator.used.keys() | self._unsubscribes.urls
        for url in self.links.keys() - needed:
            self._open.pop(url, None)
            self._proxy.disconnect(self.links.pop(url))
            self._replays.lost(url)
            self._unsubscribes.lost(url)


def trace_subscribed(session: Session, versions: Mapping[str, int | None]) -> None:
    """Record a client's subscriptions, answered with these versions."""
    if session.trace is not None:
        named = {name.encode(): version for name, version in versions.items()}
        if new := [endpoint for endpoint in named if endpoint not in session.endpoints]:
            session.endpoints.update(dict.fromkeys(new, False))
            session.trace.subscribed(new, [endpoint for endpoint in new if named[endpoint] is None])


def trace_unsubscribed(session: Session, names: Iterable[str]) -> None:
    """Record an unsubscribe of a client."""
    if session.trace is not None:
        named = dict.fromkeys(name.encode(errors="replace") for name in names)
        if subscribed := [endpoint for endpoint in named if endpoint in session.endpoints]:
            for endpoint in subscribed:
                del session.endpoints[endpoint]
            session.trace.unsubscribed(subscribed)
