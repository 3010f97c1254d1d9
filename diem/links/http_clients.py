"""Clients of one HTTP request for updates: long polls and event streams (docs/protocol.md section 1.8).

Equal polls share a subscription, which is kept until they are back, and the bytes of their answer.
"""

import asyncio
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from functools import lru_cache
from secrets import token_bytes, token_hex
from typing import Final, Protocol

import orjson

from diem.fanout.read_meter import UNMETERED, ReadMeter
from diem.fanout.session import Session
from diem.links.admitted_client import AdmittedClient, token_refusal
from diem.links.client_auth import AuthRefused
from diem.links.edge import Edge, EdgeRules, RequestSource, fetch_window_ms
from diem.links.keepalive import HEARTBEAT_S
from diem.links.listener import Reply
from diem.links.refusals import Cause, RefusedClient, readable
from diem.links.shared_polls import KEPT_S, Key, key_of
from diem.process import security_log
from diem.process.listeners import host_of, is_loopback, is_of_this_machine
from diem.process.security_log import SecurityEvent
from diem.protocol import messages
from diem.protocol.codes import ErrorCode
from diem.protocol.events import HEARTBEAT, close_event, event
from diem.protocol.frames import conflation_key, frames_of, payload_offset, read_update
from diem.protocol.messages import MAX_NAMES, Subscribe, UpdatesRequest
from diem.protocol.update import HEAD
from diem.tokens.claims import Claims

GATHER_S: Final = 0.02
"""Longest time for which polls gather updates after the first, as those of one publication arrive together."""
REPLY_TIMEOUT_S: Final = 5.0
"""Longest wait for servers behind a proxy to answer for all endpoints of a poll that does not wait for updates."""
RETAINED_TIMEOUT_S: Final = 1.0
"""Longest wait of a poll for a retained update that a server behind a proxy sends after its ``subscribed``."""
LEASE_TIMEOUT_S: Final = 1.0
"""Longest wait of a subscription for the first lease of its API key."""

_SUBSCRIBED: Final = b'{"type":"subscribed"'
_STATUS: Final = b'{"type":"status"'
_ERROR: Final = b'{"type":"error"'
_ANSWER: Final = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n%bContent-Length: %d\r\n%b%b\r\n"
STORED_S: Final = 1
"""Time for which a cache may answer: without news, too, or equal polls would wait for it in turn, each for 25 s."""
_NO_STORE: Final = b"Cache-Control: no-store\r\n"
_STORABLE: Final = b"Cache-Control: public, max-age=%d\r\n" % STORED_S
_STREAM: Final = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-store\r\nX-Accel-Buffering: no\r\n"
    b"Connection: close\r\n"
)
_FOREIGN_HOST: Final = RefusedClient(
    403, Cause.ORIGIN, "this name is not of this machine: use localhost or an address, or send an Origin"
)
_TOO_MANY: Final = "too many polls, or names in them: an event stream (Accept: text/event-stream) takes one request"
_UNAUTHORISED: Final = RefusedClient(401, Cause.UNAUTHORISED, "a token is needed: in Authorization, or in the body")


class Exchange(Protocol):
    """The connection of a request, as its client knows it."""

    loop: asyncio.AbstractEventLoop
    transport: asyncio.Transport

    def unsent(self) -> int:
        """Return the unsent bytes buffered in user space."""
        ...

    def abort(self) -> None:
        """Close the connection at once."""
        ...

    def wake_at(self, at: float) -> None:
        """Call :meth:`HttpClient.on_due` at a time."""
        ...

    def finish(self, *, closes: bool) -> None:
        """End the answer: await the next request, or close."""
        ...


class HttpClient(AdmittedClient):
    """The client of one request."""

    __slots__ = (*AdmittedClient.SLOTS, "_closes", "_exchange", "_request", "transport")
    ARRIVES = True
    """It counts to the rates of new connections."""
    due = math.inf
    """When :meth:`on_due` is to be called, at the latest."""

    def __init__(self, exchange: Exchange, edge: Edge, request: UpdatesRequest, *, closes: bool) -> None:
        self.prepare(edge)
        self.transport = exchange.transport
        self._exchange = exchange
        self._request = request
        self._closes = closes
        """The connection ends with the answer."""

    # Admission

    def admit(self, peer: str, source: RequestSource, host: str) -> Reply | None:
        """Admit the client; return the answer to one that is refused, which must be released nevertheless."""
        edge, now = self._edge, self._exchange.loop.time()
        origin = self._origin = source.origin
        address, outcome = edge.admission.admit_from(peer, source, now, arriving=self.ARRIVES)
        if isinstance(outcome, RefusedClient):
            return self._refused(outcome, address)
        self._address, self._allowance = address, outcome.allowance
        self._anonymous_data = outcome.anonymous_data
        # A page whose name resolves to this machine (DNS rebinding) has no Origin in a GET, but its name in Host.
        if origin is None and outcome.anonymous and is_loopback(address) and not is_here(host):
            return self._refused(_FOREIGN_HOST, address)
        if not self._allowance.messages.take(now):
            edge.errors[ErrorCode.RATE] += 1
            wait_s = int(self._allowance.messages.retry_after(now)) + 1
            return self._refused(
                RefusedClient(429, Cause.RATE, _TOO_MANY, wait_s), address, SecurityEvent.RATE_EXCEEDED
            )
        names = len(self._request.subscribe.endpoints)
        self._allowance.charge_names(now, names)
        if self._request.token is not None:
            return self._authenticate(self._request.token, address)
        if not outcome.anonymous and names:
            return self._refused(_UNAUTHORISED, address)
        self._join()
        return None

    def _authenticate(self, token: str, address: str) -> Reply | None:
        """Give the client the rights of its token, or return the answer to one that is refused."""
        try:
            claims = self._edge.auth.verify(token, self._origin)
        except AuthRefused as error:
            reply = self._refused(token_refusal(error), address, SecurityEvent.WRONG_TOKEN)
            return readable(reply.status, orjson.loads(reply.body) | {"close": int(error.code)}, reply.headers)
        if refused := self._count_user(claims):
            return self._refused(refused, address)
        self._join()
        self._accept(claims)
        return None

    def _refused(
        self, refusal: RefusedClient, address: str, kind: SecurityEvent = SecurityEvent.HANDSHAKE_REFUSED
    ) -> Reply:
        self._count_refusal(address, refusal)
        security_log.refuse(
            kind, refusal.cause, address=address, origin=self._origin or "", code=refusal.status, detail=refusal.detail
        )
        return refusal.problem()

    def _join(self) -> None:
        self._edge.connections.add(self._client)

    # Answer

    def begin(self) -> None:
        """Subscribe, and answer."""
        raise NotImplementedError

    def close(self, code: int, reason: str = "") -> None:
        """End the answer with a code."""
        raise NotImplementedError

    def unsent(self) -> int:
        """Return the unsent bytes buffered in user space."""
        return self._exchange.unsent()

    def abort(self) -> None:
        """Close the connection at once."""
        self._exchange.abort()

    def end(self) -> None:
        """Leave the fan-out, and release the limits; idempotent."""
        if self._client in self._edge.connections:
            self._leave()
        self._stop_stall_check()
        self._release()

    def _first(self, heartbeat_ms: int = 0, *, is_recorded: bool = False) -> list[bytes]:
        """Return the messages before all others."""
        edge, claims = self._edge, self.claims
        window_ms = fetch_window_ms(len(edge.connections))
        hello = _welcome(edge.rules, claims is not None, is_recorded, window_ms, heartbeat_ms)
        first = [hello, edge.status_frame[payload_offset(edge.status_frame) :]]
        if claims is not None:
            first.append(messages.authenticated(0, int(claims.expires_at)))
        return first

    @property
    def _cors(self) -> bytes:
        if self._origin is None:
            return b""
        return b"Access-Control-Allow-Origin: %b\r\nVary: Origin\r\n" % self._origin.encode()

    def on_due(self) -> None:
        """Answer, if the client has waited long enough."""

    def on_ping_due(self) -> None:
        """Send the status, every 25 s, if the client is a stream."""

    def on_pong_deadline(self) -> None:
        """HTTP has no pong: a client that is gone without a close is noticed by what it does not read."""

    def on_heartbeat_check(self) -> None:
        """Send a heartbeat if nothing was sent since the last check, if the client is a stream."""


@lru_cache(64)
def is_here(host: str) -> bool:
    """Return whether a Host field names this machine."""
    return is_of_this_machine((host_of(host) or "").strip("[]"))


@lru_cache(64)
def _welcome(rules: EdgeRules, authenticated: bool, traffic: bool, window_ms: int, heartbeat_ms: int) -> bytes:
    """Return a ``welcome``; its ``session`` is that of all clients with the same, as it stands for no connection."""
    return messages.welcome(
        session=token_hex(8),
        server=rules.server,
        mode=rules.mode,
        authenticated=authenticated,
        subscriptions=rules.subscriptions,
        traffic=traffic,
        data=rules.data,
        fetch_window_ms=window_ms,
        heartbeat_ms=heartbeat_ms,
    )


def _parts(request: Subscribe) -> Iterator[Subscribe]:
    """Split a request into those of a hundred names, as messages have."""
    if len(request.endpoints) <= MAX_NAMES:
        yield request
        return
    names = list(request.endpoints.items())
    for start in range(0, len(names), MAX_NAMES):
        yield request._replace(
            endpoints=dict(names[start : start + MAX_NAMES]), rejected={} if start else request.rejected
        )


class LongPoll(HttpClient):
    """A request that is answered once: when there is something newer, or after its wait."""

    __slots__ = ("_is_ended", "_meter", "_subscription", "due", "is_short")
    ARRIVES = False

    def __init__(self, exchange: Exchange, edge: Edge, request: UpdatesRequest, *, closes: bool) -> None:
        super().__init__(exchange, edge, request, closes=closes)
        self._is_ended = False
        self._subscription: SharedSubscription | None = None
        self._meter: ReadMeter = UNMETERED
        """Counts the data that it is sent."""
        self.is_short = False
        """Data was left out of the answer, beyond what the client may be sent."""

    def _accept(self, claims: Claims) -> None:
        self._edge.auth.accept(self, claims)
        self._meter = self._edge.meter_of(claims)

    def begin(self) -> None:
        """Wait with equal polls, or subscribe; answer at once or later."""
        edge = self._edge
        edge.received["poll"] += 1
        request = self._permitted(self._request.subscribe)
        is_shared = self._meter is UNMETERED and not request.rejected
        subscription = edge.polls.find(request) if is_shared and request.endpoints else None
        if subscription is not None:
            self._wait_at(subscription)
            if not self._request.wait_s or self.has_other_status(frozenset()):
                subscription.answer(self)
        else:
            subscription = SharedSubscription(edge, request, self._request, is_shared=is_shared)
            self._wait_at(subscription)
            subscription.begin(self, self._meter)
        if not self._is_ended:
            exchange = self._exchange
            self.due = exchange.loop.time() + (self._request.wait_s or REPLY_TIMEOUT_S)
            exchange.wake_at(self.due)

    def on_due(self) -> None:
        """Answer with what there is."""
        if self._subscription is not None:
            self._subscription.answer(self)

    def _wait_at(self, subscription: "SharedSubscription") -> None:
        self._subscription, self.session = subscription, subscription.session
        subscription.join(self)

    def admit_data(self, size: int) -> bool:
        """Return whether the answer may have so many more bytes of data."""
        self.is_short = not self._admit_data(size) or self.is_short
        return not self.is_short

    def has_other_status(self, stale: AbstractSet[str]) -> bool:
        """Return whether the client has another status than that of this edge with these stale names.

        It may have it from another server: it must not take what it has for live during its wait here.
        """
        return self._request.live != self._edge.live or self._request.stale != stale

    @property
    def wait_s(self) -> float:
        """Longest wait for news."""
        return self._request.wait_s

    @property
    def kind(self) -> tuple[bool, str | None, bool] | None:
        """Key of the polls whose answer has the same bytes; None: it has its own."""
        return (self._closes, self._origin, self._request.is_versioned) if self.claims is None else None

    def send(self, response: bytes) -> None:
        """Send the answer, and leave."""
        self.transport.write(response)
        self.end()
        self._exchange.finish(closes=self._closes)

    def render(self, payloads: Sequence[bytes], *, is_plain: bool, end: bytes = b"]}") -> bytes:
        """Return an answer with these messages after the first; a plain one may be for others, too, from a cache."""
        closes = b"Connection: close\r\n" if self._closes else b""
        request = self._request
        is_stored = (
            is_plain
            and request.is_versioned
            and not self.is_short
            and self.claims is None
            and self._edge.admission.is_public(data=request.subscribe.data)
        )
        body = b'{"messages":[' + b",".join((*self._first(), *payloads)) + end
        caching, vary = (_STORABLE, b"Vary: Origin\r\n") if is_stored else (_NO_STORE, b"")
        return _ANSWER % (caching, len(body), closes, self._cors or vary) + body

    def close(self, code: int, reason: str = "") -> None:
        """Answer now, with the code."""
        if not self._is_ended and self._subscription is not None:
            self._closes = True
            end = b'],"close":%b}' % orjson.dumps({"code": int(code), "reason": reason})
            self.send(self.render(self._subscription.payloads(), is_plain=False, end=end))

    def end(self) -> None:
        """Leave the fan-out, and release the limits; idempotent."""
        self._is_ended = True
        super().end()

    def _leave(self) -> None:
        edge = self._edge
        edge.connections.discard(self)
        if self._subscription is not None:
            self._subscription.leave(self)
        if self.claims is not None:
            edge.auth.forget(self)


class SharedSubscription:
    """The subscription of a poll, and of those that are equal to it as long as it has received nothing but updates.

    What follows a ``resync``, a ``moved`` or a ``status`` of some names depends on when a client has subscribed: those
    that come later have a subscription of their own.
    """

    __slots__ = (
        "_due",
        "_due_until",
        "_edge",
        "_endpoints",
        "_frames",
        "_is_kept",
        "_is_plain",
        "_is_shared",
        "_known",
        "_news",
        "_payloads",
        "_polls",
        "_rendered",
        "_request",
        "_stale",
        "_unanswered",
        "key",
        "session",
        "versions",
    )

    def __init__(self, edge: Edge, request: Subscribe, known: UpdatesRequest, *, is_shared: bool) -> None:
        self._edge = edge
        self._request: Subscribe | None = request
        """None once it was sent."""
        self._known = known.resynced
        """Names whose ``resync`` is no news."""
        self._endpoints = request.endpoints
        self._due: set[bytes] = set()
        """Endpoints of which a newer version is stated, and neither update nor ``resync`` has come."""
        self._due_until = 0.0
        self._is_shared = is_shared
        self.key: Key = key_of(request)
        self._unanswered = len(request.endpoints) + len(request.rejected)
        """Names without an answer."""
        self.versions: dict[str, int] = {}
        self.session = Session(self._collect, self._collect_all, edge.fanout.stats)
        self._polls: dict[LongPoll, None] = {}
        self._payloads: list[bytes] | None = []
        """Messages for those that wait, after the first; None: a ``subscribed`` with the present versions."""
        self._frames = 0
        """Number of frames among them."""
        self._news = False
        """Some of them are worth an answer."""
        self._is_kept = False
        """Further polls may share it."""
        self._is_plain = True
        """It has received nothing but updates, and statuses of all endpoints."""
        self._rendered: dict[object, bytes] = {}
        """Answers with these messages, by kind of poll."""
        self._stale: set[str] = set()
        """Names that are not live, by the statuses of them since the subscription."""
        edge.fanout.join(self.session)
        # In ``all-to-all``, where any update of another endpoint would be an answer.
        edge.fanout.restrict(self.session, restricted=True)

    @property
    def is_open(self) -> bool:
        """True while a further poll may wait here: there is no news for those that wait already."""
        return not self._news

    def begin(self, poll: LongPoll, meter: ReadMeter) -> None:
        """Subscribe for the first poll, which has this meter."""
        edge, request = self._edge, self._request
        edge.service.joined(self)
        edge.fanout.set_meter(self.session, meter)
        if not self._unanswered:
            self._complete()
            return
        if request is not None and request.data:
            self.session.admit_data = poll.admit_data
            if any(part.wait_for_lease(self._subscribe) for part in meter.parts[:1]):
                # As a WebSocket client, without data after this time.
                asyncio.get_running_loop().call_later(LEASE_TIMEOUT_S, self._subscribe)
                return
        self._subscribe()

    def _subscribe(self) -> None:
        request, self._request = self._request, None
        if request is not None and self._polls:
            for part in _parts(request):
                self._edge.service.subscribe(self, part)

    # Messages

    def respond(self, reply: bytes, replay: Sequence[bytes] = ()) -> None:
        """Add the answer for some names, and frames; answer at once when there is one for all, and anything new."""
        if not self._polls:
            self.session.drop(replay)
            self._retire()
            return
        # Before the names are answered, a status of some of them is how they are, not a change.
        is_complete = not self._unanswered
        is_new = is_complete or reply.startswith(_ERROR)
        payloads = self.payloads()
        payloads.append(reply)
        if reply.startswith(_SUBSCRIBED):
            answer = orjson.loads(reply)
            rejected = answer.get("rejected", ())
            stated = {name: version or 0 for name, version in answer["endpoints"].items()}
            known = self._endpoints
            # Less than the known ones, too. What is newer is so once it is here.
            self.versions.update({name: min(version, known[name]) for name, version in stated.items()})
            replayed = set(map(_endpoint_of, replay))
            self._due |= {name.encode() for name, version in stated.items() if version > known[name]} - replayed
            self._due_until = asyncio.get_running_loop().time() + RETAINED_TIMEOUT_S
            self._unanswered -= len(answer["endpoints"]) + len(rejected)
            is_new = is_new or bool(rejected)
            self._is_plain = self._is_plain and not rejected
        else:
            self._retire()
            if reply.startswith(_STATUS):
                status = orjson.loads(reply)
                (self._stale.difference_update if status["live"] else self._stale.update)(status["endpoints"])
        for frame in replay:
            payload = frame[payload_offset(frame) :]
            payloads.append(payload)
            self._frames += 1
            if payload.startswith(HEAD):
                endpoint, version, _ = read_update(frame)
                self.versions[endpoint.decode()] = version
                is_new = True
            else:
                self._retire()
                is_new = is_new or not self._is_known(frame)
        if is_new:
            self._note_news()
        if not is_complete and not self._unanswered:
            self._complete()

    def _is_known(self, frame: bytes) -> bool:
        """Return whether a frame is a ``resync`` that the client has had: it is sent to each new subscriber."""
        key = conflation_key(frame)
        return key.startswith(b"resync") and key[len(b"resync") :].decode() in self._known

    def _complete(self) -> None:
        """Share the subscription from now on, and answer a poll that has no reason to wait."""
        if self._due:
            # Where others always have news, the next polls would not have it either.
            self._note_news()
            return
        self.session.admit_data = None
        if self._is_plain and self._is_shared and self.versions:
            self._is_kept = self._edge.polls.add(self)
        for poll in [*self._polls] if not self._news else ():
            if not poll.wait_s or not self.session.endpoints or poll.has_other_status(self._stale):
                self.answer(poll)
        self.answer_all()

    def _collect(self, run: bytes) -> None:
        """Add frames of the fan-out; the session conflates those that follow until the answer."""
        edge, has_polls = self._edge, bool(self._polls)
        payloads = self.payloads() if has_polls else []
        is_news = False
        for frame in frames_of(run):
            if self._due:
                self._due.discard(_endpoint_of(frame))
            start = payload_offset(frame)
            if frame.startswith(HEAD, start):
                endpoint, version, _ = read_update(frame)
                name = endpoint.decode()
                if version <= self.versions.get(name, 0):
                    # A proxy is sent again what it subscribes to for another client.
                    edge.fanout.stats.dropped += 1
                    continue
                self.versions[name] = version
            elif frame is not edge.status_frame:
                self._retire()
            is_news = True
            self._frames += 1
            # Every answer has the status as it is then.
            if frame is not edge.status_frame:
                payloads.append(frame[start:])
        if not has_polls:
            self._reset(0)
        elif is_news:
            self._note_news()

    def _collect_all(self, frames: Iterable[bytes]) -> None:
        for frame in frames:
            self._collect(frame)

    def _retire(self) -> None:
        """Let no further poll share it."""
        self._is_plain = False
        if self._is_kept:
            self._is_kept = False
            self._edge.polls.discard(self)
            if not self._polls:
                # Not while the fan-out iterates over its sessions.
                asyncio.get_running_loop().call_soon(self.end)

    def _note_news(self) -> None:
        """Answer shortly, and conflate until then; idempotent, also while an answer is made of what was held."""
        if not self._news:
            self._news = True
            self.session.block()
            self._rendered.clear()
            gathering = self._edge.gathering
            if not gathering:
                # One timer for all that an update reaches.
                asyncio.get_running_loop().call_later(GATHER_S, _answer_all, gathering)
            gathering.append(self._answer_gathered)

    def _answer_gathered(self) -> None:
        """Answer, or gather on while a retained update is on its way from a server."""
        self._due = {endpoint for endpoint in self._due if not self.session.holds(endpoint)}
        if self._due and self._polls and asyncio.get_running_loop().time() < self._due_until:
            self._news = False
            self._note_news()
        else:
            self.answer_all()

    # Answers

    def payloads(self) -> list[bytes]:
        """Return the messages for those that wait, after the first."""
        if self._payloads is None:
            self._payloads = [messages.subscribed(0, {name: each or None for name, each in self.versions.items()}, {})]
        return self._payloads

    def join(self, poll: LongPoll) -> None:
        """Let a poll wait here."""
        self._edge.polls.set_busy(self)
        self._polls[poll] = None

    def leave(self, poll: LongPoll) -> None:
        """Remove a poll; without one, the subscription ends later."""
        self._polls.pop(poll, None)
        if self._polls:
            return
        polls, loop = self._edge.polls, asyncio.get_running_loop()
        if self._is_kept:
            polls.set_idle(self, loop.time())
        else:
            self._edge.fanout.set_meter(self.session, UNMETERED)
            polls.linger(self, loop.time())
        if not polls.is_expiring:
            polls.is_expiring = True
            loop.call_later(KEPT_S, _expire, self._edge)

    def answer(self, poll: LongPoll) -> None:
        """Answer a poll with what there is."""
        if self._news:
            self.answer_all()
        else:
            poll.send(self._render(poll))

    def answer_all(self) -> None:
        """Answer all that wait, if there is news; idempotent."""
        if not self._news:
            return
        self.session.unblock()
        # Statuses of some names are not sent to a blocked client.
        self._edge.service.unblocked(self)
        polls = [*self._polls]
        for poll in polls:
            poll.send(self._render(poll))
        self._reset(len(polls))

    def _render(self, poll: LongPoll) -> bytes:
        kind = poll.kind
        found = self._rendered.get(kind)
        if found is None or kind is None:
            found = poll.render(self.payloads(), is_plain=self._is_plain)
            if kind is not None and len(self._polls) > 1:
                self._rendered[kind] = found
        return found

    def _reset(self, answered: int) -> None:
        """Begin anew after an answer to so many polls: each was sent the frames that the fan-out sent once."""
        stats, frames = self._edge.fanout.stats, self._frames
        if answered:
            stats.offered += (answered - 1) * frames
        else:
            stats.dropped += frames
        self._frames, self._news, self._payloads = 0, False, None
        self._rendered.clear()

    def end(self) -> None:
        """Unsubscribe; idempotent."""
        edge = self._edge
        self._is_kept = False
        if self.session in edge.fanout.sessions:
            edge.service.left(self)
            edge.fanout.leave(self.session)


def _endpoint_of(frame: bytes) -> bytes:
    key = conflation_key(frame)
    return key[key.find(b"/") :]


def _answer_all(gathering: list[Callable[[], None]]) -> None:
    """Send the answers that have gathered updates for long enough; some have been sent meanwhile."""
    answers = gathering.copy()
    gathering.clear()
    for answer in answers:
        answer()


def _expire(edge: Edge) -> None:
    """End the subscriptions to which no poll came back."""
    loop = asyncio.get_running_loop()
    delay_s = edge.polls.expire(loop.time())
    edge.polls.is_expiring = delay_s is not None
    if delay_s is not None:
        loop.call_later(delay_s, _expire, edge)


class EventStream(HttpClient):
    """A request that is answered with one event for each message, until either side ends it."""

    __slots__ = ("_is_subscribed",)

    def _join(self) -> None:
        self._is_subscribed = False
        edge, transport = self._edge, self.transport
        write, writelines, event_of = transport.write, transport.writelines, edge.events.__getitem__
        self.session = Session(
            lambda frame: write(event_of(frame)),
            lambda frames: writelines(map(event_of, frames)),
            edge.fanout.stats,
        )
        super()._join()
        edge.fanout.join(self.session)
        # In ``all-to-all``, where any update of another endpoint would be an answer.
        edge.fanout.restrict(self.session, restricted=True)

    def begin(self) -> None:
        """Begin the stream, and subscribe."""
        edge, session = self._edge, self.session
        edge.received["event_stream"] += 1
        self._slot = edge.wheel.add(self._client)
        if edge.trace_sink is not None:
            session.trace = edge.trace_sink.connected(session, token_bytes(8), self._address or "")
        first = self._first(1000 * HEARTBEAT_S, is_recorded=session.trace is not None)
        self.transport.write(_STREAM + self._cors + b"\r\n" + b"".join(map(event, first)))
        session.recently_sent = True
        edge.service.joined(self._client)
        data = self._request.subscribe.data
        if data and any(part.wait_for_lease(self._subscribe_all) for part in session.meter.parts[:1]):
            # As a WebSocket client, without data after this time.
            self._exchange.loop.call_later(LEASE_TIMEOUT_S, self._subscribe_all)
        else:
            self._subscribe_all()

    def _subscribe_all(self) -> None:
        """Subscribe; once."""
        if not self._is_subscribed and self._client in self._edge.connections:
            self._is_subscribed = True
            for part in _parts(self._request.subscribe):
                self._subscribe(part)

    def respond(self, reply: bytes, replay: Sequence[bytes] = ()) -> None:
        """Send a reply, and then frames."""
        if self._client not in self._edge.connections:
            self.session.drop(replay)
            return
        self.session.recently_sent = True
        self.transport.write(event(reply))
        if replay:
            self.session.send_many(replay)

    def send_frame(self, frame: bytes) -> None:
        """Send a frame beside the fan-out."""
        self.transport.write(self._edge.events[frame])

    def on_ping_due(self) -> None:
        """Send the status, every 25 s."""
        if not self.session.blocked:
            self.send_frame(self._edge.status_frame)
            self.session.recently_sent = True
            # Behind a proxy: the stale endpoints, because the status reports all as live.
            self._edge.service.unblocked(self._client)

    def on_heartbeat_check(self) -> None:
        """Send a comment if nothing was sent since the last check."""
        session = self.session
        if session.recently_sent:
            session.recently_sent = False
        elif not session.blocked:
            self.transport.write(HEARTBEAT)
            session.recently_sent = True

    def close(self, code: int, reason: str = "") -> None:
        """Send the last event, and end the stream."""
        if self._client in self._edge.connections:
            self._edge.closes[code] += 1
            self._record_departure(code, reason)
            self.end()
            self.transport.write(close_event(code, reason))
            self._exchange.finish(closes=True)
