"""Shared mode: one link to each server for all clients, who are told by the server's own fan-out.

The rules are those of docs/protocol.md section 4; they were model-checked together and belong together.
"""

from collections.abc import Iterable, Mapping

from diem.fanout.fanout import Fanout
from diem.fanout.frames import text_frame
from diem.fanout.session import Session
from diem.links.edge_connection import EdgeConnection
from diem.process.clock import Clock
from diem.protocol import messages
from proxy import upstream_messages
from proxy.checks import refusal
from proxy.relay import Relay
from proxy.relocation import Later, Relocator, Servers
from proxy.requests import MAX_PENDING, Request, Requests
from proxy.routing import Router
from proxy.status_messages import say_status, too_many


class SharedProxy:
    """Answers clients (a ``Service``), follows for all of them (an ``Audience``), hears servers (a ``Receiver``).

    An endpoint is followed, and its latest frame retained, while a client is subscribed to it or waits for it. A client
    is registered when it is answered, so that nothing comes before its ``subscribed``.
    """

    def __init__(
        self, fanout: Fanout, router: Router, servers: Servers, clock: Clock, later: Later, *, limit: int = 128
    ) -> None:
        self.relay = Relay(fanout, limit=limit)
        self._fanout = fanout
        self._clock = clock
        self._limit = limit
        self._clients: dict[Session, EdgeConnection] = {}
        self.follower = Relocator(router, servers, self, later, clock.monotonic)
        self.load = self.follower.used
        """Server -> endpoints asked for there."""
        self._requests = Requests(self._answer, self.follower.suspect, later)

    # Service

    def joined(self, client: EdgeConnection) -> None:
        """Know whose session it is."""
        self._clients[client.session] = client

    def subscribe(self, client: EdgeConnection, request: messages.Subscribe) -> None:
        """Answer at once what is answered already; the rest when servers have."""
        if self._requests.pending(client) >= MAX_PENDING:
            too_many(client, request.id)
            return
        waiting = Request(client, request.id, request.endpoints)
        held = {endpoint.decode() for endpoint in client.session.endpoints} | self._requests.names(client)
        for name in request.endpoints:
            refused = refusal(name, held, self._limit)
            if refused is not None:
                waiting.rejected[name] = refused
                continue
            held.add(name)
            if self.follower.is_answered(name):
                waiting.ready[name] = self.relay.version(name)
            else:
                waiting.waiting.add(name)
        new = [name for name in request.endpoints if name in waiting.waiting and name not in self.follower]
        self.relay.retain(new)
        self._requests.add(waiting)
        self.follower.follow(new)

    def unsubscribe(self, client: EdgeConnection, request: messages.Unsubscribe) -> None:
        """Nothing follows: the fan-out is here."""
        self._requests.cancel(client, request.endpoints)
        self._fanout.unsubscribe(client.session, request.endpoints)
        client.respond(messages.unsubscribed(request.id, request.endpoints))
        self._release(request.endpoints)

    def blocked(self, client: EdgeConnection) -> None:
        """Nothing: the session conflates."""

    def unblocked(self, client: EdgeConnection) -> None:
        """The status that it was just given speaks for all: say again what is stale."""
        self.remind(client)

    def left(self, client: EdgeConnection) -> None:
        """What nobody wants any more is not followed."""
        del self._clients[client.session]
        names = [endpoint.decode() for endpoint in client.session.endpoints]
        self._fanout.unsubscribe(client.session, names)
        self._release({*names, *self._requests.drop(client)})

    def remind(self, client: EdgeConnection) -> None:
        """After a status that speaks for all: what of this client's is stale nevertheless."""
        names = [endpoint.decode() for endpoint in client.session.endpoints]
        stale = [name for name in names if self.follower.is_stale(name)]
        if stale:
            say_status(client, stale, self._clock, live=False)

    def _answer(self, request: Request) -> None:
        """Register for what is ready, with what this client knows and what is retained here by now."""
        ready, rejected = request.take()
        client = request.client
        wanted = {name: request.known[name] for name in ready if name in self.follower}
        answer = self.relay.subscribe(client.session, wanted)
        versions = {name: _newest(answer.endpoints.get(name), version) for name, version in ready.items()}
        resync = [text_frame(messages.resync([name])) for name in wanted if name in request.resync]
        self._fanout.stats.offered += len(resync)
        reply = messages.subscribed(request.id, versions, {**rejected, **answer.rejected})
        client.respond(reply, [*answer.replay, *resync])
        stale = [name for name in wanted if self.follower.is_stale(name)]
        if stale:
            say_status(client, stale, self._clock, live=False)

    def _release(self, names: Iterable[str]) -> None:
        """Follow no more what has lost its last client."""
        gone = [
            name
            for name in names
            if name in self.follower and name.encode() not in self._fanout.registry and name not in self._requests
        ]
        self.relay.forget(gone)
        self.follower.unfollow(gone)

    def rerouted(self) -> None:
        """There is another snapshot."""
        self.follower.rerouted()

    # Audience

    def known(self, name: str) -> int | None:
        """What is retained here, never what a client knows: another client may know less."""
        return self.relay.version(name)

    def answered(self, versions: Mapping[str, int | None]) -> None:
        """Answer who waited for these."""
        self.relay.announce(versions)
        self._requests.answered(versions)

    def stale(self, names: list[str]) -> None:
        """Tell exactly the clients concerned."""
        self._say(names, live=False)

    def fresh(self, names: list[str]) -> None:
        """Tell them that it is over."""
        self._say(names, live=True)

    def _say(self, names: list[str], *, live: bool) -> None:
        concerned: dict[Session, list[str]] = {}
        with self._fanout.registry.iterating():
            for name in names:
                for session in self._fanout.registry.subscribers(name.encode()):
                    concerned.setdefault(session, []).append(name)
        for session, its in concerned.items():
            say_status(self._clients[session], its, self._clock, live=live)

    # Receiver

    def opened(self, url: str) -> None:
        """Ask for all that belongs there."""
        self.follower.opened(url)

    def updates(self, url: str, data: bytes, frames: int) -> None:  # noqa: ARG002 - versions decide, not whose it is
        """One batch."""
        self.relay.apply(data, frames)

    def heard(self, url: str, message: upstream_messages.Said) -> None:
        """Whatever else a server says."""
        if isinstance(message, upstream_messages.UpstreamResync):
            self._requests.resync(message.endpoints)
            self._fanout.resync([name.encode() for name in message.endpoints])
        else:
            follow_up(self.follower, url, message)

    def lost(self, url: str) -> None:
        """Only what is there is stale."""
        self.follower.lost(url)


def follow_up(follower: Relocator, url: str, message: upstream_messages.Said) -> None:
    """What a server's message means for what is followed."""
    match message:
        case upstream_messages.UpstreamSubscribed():
            follower.subscribed(url, message.id, message.versions)
            if message.elsewhere:
                follower.refused(url, message.id, message.elsewhere)
        case upstream_messages.UpstreamStatus():
            follower.status(url, message.endpoints, live=message.live)
        case upstream_messages.Moved():
            follower.moved(url, message.endpoints, message.owner)
        case upstream_messages.Failed():
            follower.failed(url, message.id)
        case _:
            pass


def _newest(here: int | None, there: int | None) -> int | None:
    return max((version for version in (here, there) if version is not None), default=None)
