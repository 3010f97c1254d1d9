"""Shared mode: one link to each server for all clients, whose updates are fanned out here.

The rules are those of docs/protocol.md section 4; they were model-checked together and belong together.
"""

from collections.abc import Iterable, Mapping
from itertools import islice

from diem.fanout.fanout import Fanout
from diem.fanout.feed_hub import Subscribed
from diem.fanout.feed_state import FeedCounts, Retained
from diem.fanout.session import Session
from diem.links.edge import Service
from diem.links.edge_connection import EdgeConnection
from diem.process.clock import Clock
from diem.protocol import endpoints, messages
from diem.protocol.frames import frames_of, read_update, text_frame
from proxy.pending import (
    MAX_PENDING,
    CallLater,
    PendingSubscribe,
    PendingSubscribes,
    TimerHandle,
    refuse_pending,
    send_status,
)
from proxy.relocation import Action, BecameStale, Recovered, Relocator, SendSubscribe, SendUnsubscribe
from proxy.routing import Router
from proxy.upstream import Upstream


class Relay:
    """The latest frame of every endpoint that a client here wants, and of no other.

    Only a greater version counts, as everywhere; so two servers that send the same endpoint are harmless.

    Args:
        limit: subscriptions that one session may hold.
    """

    def __init__(self, fanout: Fanout, *, limit: int) -> None:
        self.retained: dict[bytes, Retained] = {}
        self.counts = FeedCounts()
        self.conflated = 0
        """Updates that arrived in one chunk with a later one of the same endpoint."""
        self._fanout = fanout
        self._limit = limit
        self.wanted: set[bytes] = set()
        """The endpoints to retain, which its owner adds here."""
        self.announced: set[bytes] = set()
        """Wanted endpoints of which a server has a version, whose update follows; its owner adds them here."""

    def forget(self, names: Iterable[str]) -> None:
        """Drop endpoints that no client wants any more."""
        for name in names:
            endpoint = name.encode()
            self.wanted.discard(endpoint)
            self.announced.discard(endpoint)
            self.retained.pop(endpoint, None)

    def has_version(self, endpoint: bytes) -> bool:
        """Return whether there is an update of an endpoint, here or at its server."""
        return endpoint in self.announced or endpoint in self.retained

    def version(self, name: str) -> int | None:
        """Return the retained version, None without one."""
        retained = self.retained.get(name.encode())
        return None if retained is None else retained.version

    def subscribe(self, session: Session, known: Mapping[str, int]) -> Subscribed:
        """Register a session for endpoints, given the versions that its client holds (0 = none)."""
        answer = Subscribed({}, {}, [])
        registry = self._fanout.registry
        before = len(session.endpoints)
        for name, version in known.items():
            endpoint = name.encode()
            if len(session.endpoints) >= self._limit and endpoint not in session.endpoints:
                answer.rejected[name] = messages.over_limit(self._limit)
                continue
            session.endpoints[registry.add(endpoint, session)] = None
            retained = self.retained.get(endpoint)
            answer.endpoints[name] = retained.version if retained else None
            if retained and retained.version > version:
                answer.replay.append(retained.value)
        self._fanout.stats.offered += len(answer.replay)
        if session.trace is not None and len(session.endpoints) > before:
            new = list(islice(session.endpoints, before, None))
            session.trace.subscribed(new, [endpoint for endpoint in new if not self.has_version(endpoint)])
        return answer

    def apply(self, data: bytes, frames: int) -> None:
        """Retain and deliver ``frames`` update frames of one server: one batch, so one write for each client.

        Raises:
            BadFrame: one has no endpoint or version; those before it are delivered.
        """
        fresh: dict[bytes, bytes] = {}
        retained, wanted, counts = self.retained, self.wanted, self.counts
        counts.consumed += frames
        try:
            for frame in frames_of(data):
                endpoint, version, _ = read_update(frame)
                known = retained.get(endpoint)
                if known is not None and version <= known.version:
                    counts.stale += 1
                elif endpoint in wanted:
                    self.conflated += endpoint in fresh
                    retained[endpoint] = Retained(version, frame)
                    fresh[endpoint] = frame
                else:
                    self._fanout.not_subscribed += 1
        finally:
            self._fanout.publish_frames(fresh)


class SharedProxy(Service):
    """The service of the proxy's clients, and the listener of its links to servers.

    An endpoint is subscribed, and its latest frame retained, while a client is subscribed to it or waits for it. A
    client is registered when it is answered, so that nothing comes before its ``subscribed``.
    """

    def __init__(self, fanout: Fanout, router: Router, clock: Clock, later: CallLater, *, limit: int = 128) -> None:
        self.relay = Relay(fanout, limit=limit)
        self._fanout = fanout
        self._clock = clock
        self._later = later
        self._limit = limit
        self._clients: dict[Session, EdgeConnection] = {}
        self._links: dict[str, Upstream] = {}
        """Server -> its link, while that is open."""
        self.relocator = Relocator(router, self._links, clock.monotonic)
        self.load = self.relocator.used
        """Server -> endpoints requested there."""
        self._pending = PendingSubscribes(self._answer, self._expire, later)
        self._timer: TimerHandle | None = None

    # Service

    def joined(self, client: EdgeConnection) -> None:
        """Note the client of a session."""
        self._clients[client.session] = client

    def subscribe(self, client: EdgeConnection, request: messages.Subscribe) -> None:
        """Answer at once for endpoints that are registered; for the rest when servers have answered."""
        pending = self._pending.by_client.get(client)
        if pending is not None and len(pending) >= MAX_PENDING:
            refuse_pending(client, request.id)
            return
        waiting = PendingSubscribe(client, request.id, request.endpoints)
        held = {endpoint.decode() for endpoint in client.session.endpoints}
        if pending is not None:
            held |= self._pending.names(client)
        new = []
        for name in request.endpoints:
            if not endpoints.is_valid(name):
                waiting.rejected[name] = messages.BAD_NAME
                continue
            if name not in held and len(held) >= self._limit:
                waiting.rejected[name] = messages.over_limit(self._limit)
                continue
            held.add(name)
            route = self.relocator.routes.get(name)
            if route is not None and route.is_registered:
                waiting.ready[name] = self.relay.version(name)
                continue
            waiting.waiting.add(name)
            if route is None:
                new.append(name)
        self.relay.wanted.update(name.encode() for name in new)
        self._pending.add(waiting)
        if new:
            self._apply(self.relocator.subscribe(new))

    def unsubscribe(self, client: EdgeConnection, request: messages.Unsubscribe) -> None:
        """Confirm at once: the fan-out is here, so nothing follows."""
        self._pending.cancel(client, request.endpoints)
        self._fanout.unsubscribe(client.session, request.endpoints)
        client.respond(messages.unsubscribed(request.id, request.endpoints))
        self._release(request.endpoints)

    def unblocked(self, client: EdgeConnection) -> None:
        """Resend what is stale after the global status that the client was just sent."""
        self.resend_stale_status(client)

    def left(self, client: EdgeConnection) -> None:
        """Release the endpoints of a client that is gone."""
        del self._clients[client.session]
        names = [endpoint.decode() for endpoint in client.session.endpoints]
        self._fanout.unsubscribe(client.session, names)
        self._release({*names, *self._pending.drop(client)})

    def resend_stale_status(self, client: EdgeConnection) -> None:
        """Send which endpoints of a client are stale although a global status has just said otherwise."""
        names = [endpoint.decode() for endpoint in client.session.endpoints]
        stale = [name for name in names if self.relocator.is_stale(name)]
        if stale:
            send_status(client, stale, self._clock, live=False)

    def rerouted(self) -> None:
        """Apply a new snapshot of the router."""
        self._apply(self.relocator.rerouted())

    def _answer(self, request: PendingSubscribe) -> None:
        """Register the client for what is ready, with the versions that it knows and that are retained by now."""
        ready, request.ready = request.ready, {}
        rejected, request.rejected = request.rejected, {}
        client = request.client
        routes = self.relocator.routes
        wanted = {name: request.known[name] for name in ready if name in routes}
        answer = self.relay.subscribe(client.session, wanted)
        versions = {name: _newest(answer.endpoints.get(name), version) for name, version in ready.items()}
        resync = [text_frame(messages.resync([name])) for name in wanted if name in request.resync]
        self._fanout.stats.offered += len(resync)
        reply = messages.subscribed(request.id, versions, {**rejected, **answer.rejected})
        client.respond(reply, [*answer.replay, *resync])
        stale = [name for name in wanted if routes[name].stale]
        if stale:
            send_status(client, stale, self._clock, live=False)

    def _expire(self, names: Iterable[str]) -> None:
        self._apply(self.relocator.mark_stale(names))

    def _release(self, names: Iterable[str]) -> None:
        """Unsubscribe from endpoints that have lost their last client."""
        unused = [
            name
            for name in names
            if name in self.relocator.routes
            and name.encode() not in self._fanout.registry
            and name not in self._pending
        ]
        self.relay.forget(unused)
        self._apply(self.relocator.unsubscribe(unused))

    # Listener of the links to servers

    def opened(self, link: Upstream) -> None:
        """Request everything that belongs to this server."""
        self._links[link.url] = link
        self._apply(self.relocator.opened(link.url))

    def updates(self, url: str, data: bytes, frames: int) -> None:  # noqa: ARG002 - versions decide, not the server
        """Retain and fan out one chunk of update frames."""
        self.relay.apply(data, frames)

    def message(self, url: str, message: messages.ServerMessage) -> None:
        """Answer clients, and relocate."""
        match message:
            case messages.SubscribedReply():
                registered, actions = self.relocator.subscribed(url, message)
                self.relay.announced.update(name.encode() for name, v in registered.items() if v is not None)
                self._pending.answered(registered)
            case messages.ResyncMessage():
                self._pending.resync(message.endpoints)
                self._fanout.resync([name.encode() for name in message.endpoints])
                return
            case _:
                actions = self.relocator.handle(url, message)
        if actions:
            self._apply(actions)

    def lost(self, url: str) -> None:
        """Count as stale what only this server serves."""
        self._links.pop(url, None)
        self._apply(self.relocator.lost(url))

    # Relocation

    def _apply(self, actions: Iterable[Action]) -> None:
        """Carry out what the relocator has decided, and have it called when its next tick is due."""
        retained = self.relay.retained
        for action in actions:
            match action:
                case SendSubscribe(url, request_id, names):
                    # Never with what a client knows: another client may know less.
                    known = [retained.get(name.encode()) for name in names]
                    versions = [None if each is None else each.version for each in known]
                    self._links[url].subscribe(request_id, dict(zip(names, versions, strict=True)))
                case SendUnsubscribe(url, request_id, names):
                    self._links[url].unsubscribe(request_id, names)
                case BecameStale(names):
                    self._send_status(names, live=False)
                case Recovered(names):
                    self._send_status(names, live=True)
        if self._timer is None and (delay := self.relocator.tick_after_s) is not None:
            self._timer = self._later(delay, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self._apply(self.relocator.tick())

    def _send_status(self, names: list[str], *, live: bool) -> None:
        """Send a partial status to exactly the clients concerned."""
        by_session: dict[Session, list[str]] = {}
        with self._fanout.registry.iterating():
            for name in names:
                for session in self._fanout.registry.subscribers(name.encode()):
                    by_session.setdefault(session, []).append(name)
        for session, its in by_session.items():
            send_status(self._clients[session], its, self._clock, live=live)


def _newest(here: int | None, there: int | None) -> int | None:
    return max((version for version in (here, there) if version is not None), default=None)
