"""One link to each server for all clients; its updates are fanned out here.

The rules of docs/internals.md section 4 apply. They were model-checked together: change none of them alone.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import islice

from diem.fanout.data_budget import DataBudget, Retained, bound_data, drop_data
from diem.fanout.fanout import Fanout, resyncs, variant_for
from diem.fanout.feed_state import FeedCounts
from diem.fanout.session import Session
from diem.links.edge import Service, Subscriber
from diem.process.clock import Clock
from diem.protocol import endpoints, messages
from diem.protocol.frames import frame_without_data, frame_without_trace, frames_of, read_update
from proxy.pending import (
    MAX_PENDING,
    CallLater,
    PendingSubscribe,
    PendingSubscribes,
    TimerHandle,
    refuse_pending,
    respond_stale,
    send_status,
)
from proxy.relocation import Action, BecameStale, Recovered, Relocator, SendSubscribe, SendUnsubscribe
from proxy.routing import Router
from proxy.upstream import Upstream


class Relay:
    """The latest update frame of exactly those endpoints that the proxy's clients want.

    Only a greater version is applied, as everywhere, so two servers may send the same endpoint.
    """

    def __init__(self, fanout: Fanout, budget: DataBudget | None = None) -> None:
        self.budget = budget
        """Bounds the data that is retained; None: servers are asked for updates without data."""
        self.retained: dict[bytes, Retained] = {}
        self.wanted: set[bytes] = set()
        """The endpoints to retain; the owner of the relay adds to it."""
        self.announced: set[bytes] = set()
        """Wanted endpoints that a server has a version of, whose update follows; the owner of the relay adds to it."""
        self.suspect: set[bytes] = set()
        """Wanted endpoints that a server has sent ``resync`` for, and no newer update since."""
        self.counts = FeedCounts()
        self.conflated = 0
        """Updates that arrived in one chunk with a later one of the same endpoint."""
        self._fanout = fanout

    def forget(self, names: Iterable[str]) -> None:
        """Drop endpoints that no client wants."""
        for name in names:
            endpoint = name.encode()
            self.wanted.discard(endpoint)
            self.announced.discard(endpoint)
            self.suspect.discard(endpoint)
            self.retained.pop(endpoint, None)
            if self.budget is not None:
                self.budget.release(endpoint)

    def mark_suspect(self, endpoints: Collection[bytes]) -> None:
        """Drop the data of retained updates on ``resync``: it may be outdated, so clients fetch.

        Until a later update arrives, new subscribers are sent ``resync``, too.
        """
        self.suspect.update(self.wanted.intersection(endpoints))
        drop_data(self.retained, endpoints, frame_without_data)
        if self.budget is not None:
            for endpoint in endpoints:
                self.budget.release(endpoint)

    def newer_than(self, versions: Mapping[str, int | None]) -> list[bytes]:
        """Return the endpoints for which a server has no version, or an older one than retained.

        Its store may have lost them and started over, which its answer would not reveal, because versions decide.
        """
        found = []
        for name, version in versions.items():
            held = self.retained.get(name.encode())
            if held is not None and held[0] > (version or 0):
                found.append(name.encode())
        return found

    def has_version(self, endpoint: bytes) -> bool:
        """Return whether an update of an endpoint is retained, or announced by its server."""
        return endpoint in self.announced or endpoint in self.retained

    def apply(self, data: bytes, frames: int) -> None:
        """Retain ``frames`` update frames of one server and deliver the new ones, with one write per client.

        Raises:
            BadFrame: a frame has no endpoint or version; those before it are delivered.
        """
        fresh: dict[bytes, bytes] = {}
        retained, wanted, counts = self.retained, self.wanted, self.counts
        counts.consumed += frames
        try:
            for frame in frames_of(data):
                endpoint, version, _ = read_update(frame)
                known = retained.get(endpoint)
                if known is not None and version <= known[0]:
                    counts.stale += 1
                elif endpoint in wanted:
                    self.conflated += endpoint in fresh
                    retained[endpoint] = (version, frame)
                    fresh[endpoint] = frame
                else:
                    self._fanout.not_subscribed += 1
        finally:
            if self.suspect:
                self.suspect.difference_update(fresh)
            if self.budget is not None:
                bound_data(self.budget, retained, fresh, frame_without_data)
            self._fanout.publish(fresh, self._fanout.update_counter)


class SharedProxy(Service):
    """Serves the proxy's clients, and listens to its links to servers.

    An endpoint is subscribed, and its latest frame retained, while a client is subscribed to it or waits for it. A
    client is registered on its answer, so that no update precedes its ``subscribed``.

    Args:
        limit: maximum number of subscriptions per client.
        budget: bounds the retained data; None: updates carry none.
    """

    def __init__(
        self,
        fanout: Fanout,
        router: Router,
        clock: Clock,
        later: CallLater,
        *,
        limit: int = messages.SUBSCRIPTIONS,
        budget: DataBudget | None = None,
    ) -> None:
        self.relay = Relay(fanout, budget)
        self._fanout = fanout
        self._clock = clock
        self._later = later
        self._limit = limit
        self._clients: dict[Session, Subscriber] = {}
        self._links: dict[str, Upstream] = {}
        """Server -> its open link."""
        self.relocator = Relocator(router, self._links, clock.monotonic)
        self.load = self.relocator.used
        """Server -> endpoints requested there."""
        self._pending = PendingSubscribes(self._answer, self._expire, later)
        self._timer: TimerHandle | None = None

    # Service

    def joined(self, client: Subscriber) -> None:
        """Register the connection of a client, to send it status messages."""
        self._clients[client.session] = client

    def subscribe(self, client: Subscriber, request: messages.Subscribe) -> None:
        """Answer for registered endpoints at once, for the rest when servers have answered."""
        if len(self._pending.by_client.get(client, ())) >= MAX_PENDING:
            refuse_pending(client, request.id)
            return
        pending = PendingSubscribe(
            client, request.id, request.endpoints, rejected=dict(request.rejected), data=request.data
        )
        held = {endpoint.decode() for endpoint in client.session.endpoints} | self._pending.names(client)
        new = []
        for name in request.endpoints:
            if not endpoints.is_valid(name):
                pending.rejected[name] = messages.BAD_NAME
                continue
            if name not in held and len(held) >= self._limit:
                pending.rejected[name] = messages.over_limit(self._limit)
                continue
            held.add(name)
            route = self.relocator.routes.get(name)
            if route is not None and route.is_registered:
                pending.ready[name] = None
                continue
            pending.waiting.add(name)
            if route is None:
                new.append(name)
        self.relay.wanted.update(name.encode() for name in new)
        self._pending.add(pending)
        if new:
            with_data = self.relay.budget is not None
            for url, request_id, names in self.relocator.subscribe(new):
                # Nothing is retained of what no client wanted before.
                self._links[url].send_text(messages.subscribe(request_id, dict.fromkeys(names), data=with_data))
            self._schedule_tick()

    def unsubscribe(self, client: Subscriber, request: messages.Unsubscribe) -> None:
        """Confirm at once: once removed from the fan-out, the client is sent nothing for these endpoints."""
        self._pending.cancel(client, request.endpoints)
        self._fanout.unsubscribe(client.session, request.endpoints)
        client.respond(messages.unsubscribed(request.id, request.endpoints))
        self._release(request.endpoints)

    def restrict(self, client: Subscriber, allows: Callable[[str], bool]) -> list[str]:
        """Unsubscribe the client from endpoints that it may no longer read, and refuse pending ones."""
        ended = self._fanout.unsubscribe_refused(client.session, allows)
        waiting = [name for name in self._pending.names(client) if not allows(name)]
        self._pending.reject(client, waiting, messages.FORBIDDEN)
        ended = list(dict.fromkeys([*ended, *waiting]))
        self._release(ended)
        return ended

    def unblocked(self, client: Subscriber) -> None:
        """Resend the stale endpoints: a global status was just sent."""
        self.resend_stale_status(client)

    def left(self, client: Subscriber) -> None:
        """Release the endpoints of a disconnected client."""
        del self._clients[client.session]
        names = [endpoint.decode() for endpoint in client.session.endpoints]
        self._fanout.unsubscribe(client.session, names)
        self._release({*names, *self._pending.drop(client)})

    def resend_stale_status(self, client: Subscriber) -> None:
        """Resend a client's stale endpoints after a global status, which reports all as live."""
        names = [endpoint.decode() for endpoint in client.session.endpoints]
        stale = [name for name in names if self.relocator.is_stale(name)]
        if stale:
            send_status(client, stale, self._clock, live=False)

    def rerouted(self) -> None:
        """Apply a new snapshot of the router."""
        self._apply(self.relocator.rerouted())

    def _answer(self, request: PendingSubscribe) -> None:
        """Register the client for the ready endpoints; send the stale ones, the reply, and newer retained frames.

        A client reading ``subscribed`` of an endpoint that is not live must not take its version for current.
        """
        ready, request.ready = request.ready, {}
        rejected, request.rejected = request.rejected, {}
        client, stats = request.client, self._fanout.stats
        session, registry, retained = client.session, self._fanout.registry, self.relay.retained
        variant = variant_for(session, with_data=request.data)
        before = len(session.endpoints)
        versions: dict[str, int | None] = {}
        frames: list[bytes] = []
        for name, version in ready.items():
            endpoint = name.encode()
            session.endpoints[registry.add(endpoint, session, variant)] = request.data
            versions[name] = version
            if endpoint in retained:
                newest, frame = retained[endpoint]
                versions[name] = max(newest, version or 0)
                if newest > request.known[name]:
                    # A late subscriber is no part of a trace.
                    update = frame_without_trace(frame)
                    frames.append(self._fanout.replayed(session, endpoint, update, variant))
        frames += resyncs(name for name in ready if name.encode() in self.relay.suspect)
        stats.offered += len(frames)
        if session.trace is not None and len(session.endpoints) > before:
            new = list(islice(session.endpoints, before, None))
            session.trace.subscribed(new, [endpoint for endpoint in new if not self.relay.has_version(endpoint)])
        respond_stale(client, [name for name in ready if self.relocator.is_stale(name)], self._clock)
        client.respond(messages.subscribed(request.id, versions, rejected), frames)

    def _expire(self, names: Iterable[str]) -> None:
        self._apply(self.relocator.mark_stale(names))

    def _release(self, names: Iterable[str]) -> None:
        """Unsubscribe from those of ``names`` that no client has subscribed to or waits for."""
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
        """Request this server's endpoints."""
        self._links[link.url] = link
        self._apply(self.relocator.opened(link.url))

    def updates(self, url: str, data: bytes, frames: int) -> None:  # noqa: ARG002 - versions decide, not the server
        """Retain and fan out one chunk of update frames."""
        self.relay.apply(data, frames)

    def message(self, url: str, message: messages.ServerMessage) -> None:
        """Answer clients, and relocate endpoints."""
        match message:
            case messages.SubscribedReply():
                registered, actions = self.relocator.subscribed(url, message)
                self.relay.announced.update(name.encode() for name, v in registered.items() if v is not None)
                self._apply(actions)
                # Before the answers, lest retained frames be taken for the server's state.
                self._resync(self.relay.newer_than(registered))
                self._pending.answered(registered)
            case messages.ResyncMessage():
                self._resync([name.encode() for name in message.endpoints])
            case _:
                self._apply(self.relocator.handle(url, message))

    def _resync(self, suspect: Collection[bytes]) -> None:
        if suspect:
            self.relay.mark_suspect(suspect)
            self._fanout.resync(suspect)

    def lost(self, url: str) -> None:
        """Mark the endpoints stale that only this server serves."""
        self._links.pop(url, None)
        self._apply(self.relocator.lost(url))

    # Relocation

    def _apply(self, actions: Iterable[Action]) -> None:
        """Execute the relocator's actions, and schedule its next tick."""
        retained = self.relay.retained
        for action in actions:
            match action:
                case SendSubscribe(url, request_id, names):
                    # Never with one client's versions: another client may hold older ones.
                    known = {name: retained.get(name.encode(), (None,))[0] for name in names}
                    data = self.relay.budget is not None
                    self._links[url].send_text(messages.subscribe(request_id, known, data=data))
                case SendUnsubscribe(url, request_id, names):
                    self._links[url].send_text(messages.unsubscribe(request_id, names))
                case BecameStale(names):
                    self._send_status(names, live=False)
                case Recovered(names):
                    self._send_status(names, live=True)
        self._schedule_tick()

    def _schedule_tick(self) -> None:
        if self._timer is None and (delay := self.relocator.tick_after_s) is not None:
            self._timer = self._later(delay, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self._apply(self.relocator.tick())

    def _send_status(self, names: list[str], *, live: bool) -> None:
        """Send a partial status to the subscribers of these endpoints only."""
        by_session: dict[Session, list[str]] = {}
        with self._fanout.registry.iterating():
            for name in names:
                for session in self._fanout.registry.subscribers(name.encode()):
                    by_session.setdefault(session, []).append(name)
        for session, affected in by_session.items():
            send_status(self._clients[session], affected, self._clock, live=live)
