"""Updates over HTTP, for networks without WebSocket: long polls and event streams (docs/protocol.md section 1.8).

Another framing of the client protocol. Each request is a client of its edge, with the rights, limits and conflation of
a WebSocket; nothing of it is left when it ends, because front proxies send the requests of many clients on one
connection.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from secrets import token_bytes, token_hex
from sys import intern
from typing import Any, Final, cast
from urllib.parse import parse_qs

import h11
import orjson
from websockets.datastructures import Headers

from diem.fanout.session import Session
from diem.links.admitted_client import AdmittedClient, token_refusal
from diem.links.client_auth import AuthRefused
from diem.links.connection import HIGH_WATER_BYTES
from diem.links.edge import Edge, EdgeRules, fetch_window_ms
from diem.links.fast_path import RequestHead, parse_head
from diem.links.keepalive import HEARTBEAT_S
from diem.links.listener import HANDSHAKE_TIMEOUT_S, MAX_HEAD_BYTES, Reply
from diem.links.refusals import NOT_READY, Cause, RefusedClient, readable
from diem.process import security_log
from diem.process.listeners import host_of, is_loopback, is_of_this_machine
from diem.process.security_log import SecurityEvent
from diem.protocol import messages
from diem.protocol.codes import ErrorCode
from diem.protocol.events import HEARTBEAT, close_event, event
from diem.protocol.frames import conflation_key, frames_of, payload_offset
from diem.protocol.messages import MAX_NAMES, MessageError, UpdatesRequest

PATH: Final = "/v1/updates"
MAX_BODY_BYTES: Final = 128 * 1024
"""Longest body: 1,024 names of 100 bytes each."""
MAX_LENGTH_DIGITS: Final = 9
GATHER_S: Final = 0.02
"""Longest time for which a poll gathers updates after the first, as those of one publication arrive together."""
REPLY_TIMEOUT_S: Final = 5.0
"""Longest wait for servers behind a proxy to answer for all endpoints of a poll that does not wait for updates."""
RETAINED_TIMEOUT_S: Final = 1.0
"""Longest wait of a poll for a retained update that a server behind a proxy sends after its ``subscribed``."""
MAX_REMEMBERED_BYTES: Final = 1024
"""Longest body that is remembered."""
MAX_IDLE: Final = 1024
"""Connections without a request; beyond, one is closed after its answer."""

_METHODS: Final = (b"GET ", b"POST ", b"OPTIONS ")
_STARTS: Final = tuple(method + PATH.encode() for method in _METHODS)
_LONGEST: Final = max(map(len, _STARTS))
_OF_ADMISSION: Final = {
    "origin": "Origin",
    "x-forwarded-for": "X-Forwarded-For",
    "forwarded": "Forwarded",
    "via": "Via",
}
_NO_FIELDS: Final = Headers()
_PARAMETERS: Final = frozenset({"endpoint", "after", "data", "wait"})
_SINGLE: Final = frozenset({"authorization", "content-length", "host", "origin"})
_SUBSCRIBED: Final = b'{"type":"subscribed"'
_ERROR: Final = b'{"type":"error"'
_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
_PREFLIGHT: Final = (
    b"HTTP/1.1 204 No Content\r\nAccess-Control-Allow-Origin: *\r\nAccess-Control-Allow-Methods: GET, POST\r\n"
    b"Access-Control-Allow-Headers: authorization, content-type\r\nAccess-Control-Max-Age: 7200\r\n\r\n"
)
_ANSWER: Final = (
    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nCache-Control: no-store\r\nContent-Length: %d\r\n%b%b\r\n"
)
_STREAM: Final = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-store\r\nX-Accel-Buffering: no\r\n"
    b"Connection: close\r\n"
)
_FOREIGN_HOST: Final = RefusedClient(
    403, Cause.ORIGIN, "this name is not of this machine: use localhost or an address, or send an Origin"
)
_TOO_MANY: Final = "too many polls, or names in them: an event stream (Accept: text/event-stream) takes one request"
_UNAUTHORISED: Final = RefusedClient(401, Cause.UNAUTHORISED, "a token is needed: in Authorization, or in the body")


def is_request(data: bytes) -> bool | None:
    """Return whether a connection begins with a request for updates; None: too few bytes to know."""
    if data.startswith(_STARTS):
        return True
    return None if len(data) < _LONGEST and any(start.startswith(data) for start in _STARTS) else False


class UpdatesConnection(asyncio.Protocol):
    """A connection with requests for updates, one after the other.

    A request must be complete 10 to 20 s after the last answer.
    """

    __slots__ = (
        "_client",
        "_data",
        "_deadline",
        "_edge",
        "_head",
        "_is_idle",
        "_size",
        "_unsent",
        "loop",
        "lower",
        "peer",
        "transport",
    )

    def __init__(self, edge: Edge, lower: asyncio.Transport | None) -> None:
        self._edge = edge
        self.lower = lower
        """The transport below TLS."""
        self.transport: asyncio.Transport
        self.peer = ""
        self._data = b""
        """The beginning of a request."""
        self._head: RequestHead | None = None
        """The head of a request whose body is not complete."""
        self._size = 0
        """Length of that body."""
        self._client: HttpClient | None = None
        self._deadline: asyncio.TimerHandle | None = None
        """One timer for all requests: setting and cancelling one for each would cost as much as a tenth of a poll."""
        self._is_idle = True
        """No request has been complete since the last check."""
        self._unsent = 0
        """Bytes in the write buffer at the last check."""
        self.loop = asyncio.get_running_loop()

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for a request."""
        self.transport = cast("asyncio.Transport", transport)
        self.transport.set_write_buffer_limits(high=HIGH_WATER_BYTES)
        peername = transport.get_extra_info("peername")
        self.peer = str(peername[0]) if peername else ""
        self._edge.pending_handshakes[self] = None
        self._check_later()

    def data_received(self, data: bytes) -> None:
        """Handle a request once it is complete."""
        if self.transport.is_closing():
            return
        if self._client is not None:
            # Pipelined, which neither browsers nor proxies do.
            self.abort()
            return
        data = self._data + data
        head = self._head
        if head is None:
            ends = data.find(b"\r\n\r\n", 0, MAX_HEAD_BYTES) + 4
            if ends < 4:
                self._data = data
                if len(data) >= MAX_HEAD_BYTES:
                    self._refuse(431, ErrorCode.BAD_MESSAGE, "the request head is too long")
                return
            self._head = head = self._accept_head(data[:ends])
            if head is None:
                return
            data = data[ends:]
            if len(data) < self._size and head.fields.get("expect", "").lower() == "100-continue":
                self.transport.write(_CONTINUE)
        self._data = data
        if len(data) > self._size:
            self.abort()
        elif len(data) == self._size:
            self._head, self._data = None, b""
            self._is_idle = False
            self._edge.pending_handshakes.pop(self, None)
            self._handle(head, data)

    def _accept_head(self, data: bytes) -> RequestHead | None:
        """Return the head of a request, and set the size of its body; None: it is refused."""
        head = _parse_head(data)
        if head is None:
            self._refuse(400, ErrorCode.BAD_MESSAGE, "this is no valid request")
            return None
        length = head.fields.get("content-length", "0")
        if "transfer-encoding" in head.fields or not length.isdigit():
            self._refuse(411, ErrorCode.BAD_MESSAGE, "send the body with a Content-Length")
            return None
        if len(length) > MAX_LENGTH_DIGITS or int(length) > MAX_BODY_BYTES:
            self._refuse(413, ErrorCode.TOO_MANY, f"a body has at most {MAX_BODY_BYTES} bytes: send fewer names")
            return None
        self._size = int(length)
        return head

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - a loss needs no reason
        """End the client."""
        self._edge.pending_handshakes.pop(self, None)
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        if self._client is not None:
            self._client.end()
            self._client = None

    def pause_writing(self) -> None:
        """Conflate, if the client is a stream; the answer to a poll is bounded, and complete."""
        if isinstance(self._client, EventStream):
            self._client.pause_writing()

    def resume_writing(self) -> None:
        """Send what a stream holds."""
        if isinstance(self._client, EventStream):
            self._client.resume_writing()

    def unsent(self) -> int:
        """Return the unsent bytes buffered in user space, with TLS in both layers."""
        below = 0 if self.lower is None else self.lower.get_write_buffer_size()
        return self.transport.get_write_buffer_size() + below

    def abort(self) -> None:
        """Close the connection at once; idempotent."""
        self.transport.abort()

    # Requests

    def _check_later(self) -> None:
        self._deadline = self.loop.call_later(HANDSHAKE_TIMEOUT_S, self._check_progress)

    def _check_progress(self) -> None:
        """Abort the connection if no request was complete for 10 s, unless the client reads on in an answer."""
        unsent = self.unsent()
        is_read = unsent and (unsent < self._unsent or not self._unsent)
        if self._client is None and self._is_idle and not is_read:
            self.abort()
            return
        self._is_idle, self._unsent = self._client is None, unsent
        self._check_later()

    def _handle(self, head: RequestHead, body: bytes) -> None:
        edge, fields = self._edge, head.fields
        closes = "close" in fields.get("connection", "").lower()
        path, _, query = head.target.decode("ascii").partition("?")
        if path != PATH:
            self._refuse(404, ErrorCode.BAD_MESSAGE, f"updates are at {PATH}")
            return
        if head.method == "OPTIONS":
            self.transport.write(_PREFLIGHT)
            self.finish(closes=closes)
            return
        if not edge.ready or edge.draining:
            edge.refused[503] += 1
            self._reply(NOT_READY.problem())
            return
        limit = edge.rules.subscriptions
        try:
            if head.method != "POST":
                request = _of_query(query, limit)
            elif len(body) <= MAX_REMEMBERED_BYTES:
                request = _remembered(body, limit)
            else:
                request = messages.parse_updates(body, limit)
        except MessageError as error:
            edge.errors[error.code] += 1
            self._refuse(413 if error.code is ErrorCode.TOO_MANY else 400, error.code, error.message)
            return
        authorization = fields.get("authorization", "")
        if authorization[:7].lower() == "bearer ":
            request = request._replace(token=authorization[7:].strip())
        is_stream = "text/event-stream" in fields.get("accept", "")
        client = (EventStream if is_stream else LongPoll)(self, edge, request, closes=closes)
        self._client = client
        refusal = client.admit(self.peer, fields)
        if refusal is None:
            client.begin()
        else:
            self._client = None
            client.end()
            self._reply(refusal)

    def _refuse(self, status: int, code: ErrorCode, detail: str) -> None:
        self._reply(readable(status, {"status": status, "code": code, "detail": detail}, {}))

    def _reply(self, reply: Reply) -> None:
        fields = "".join(f"{name}: {value}\r\n" for name, value in reply.headers.items())
        head = (
            f"HTTP/1.1 {reply.status} {_PHRASES.get(reply.status, 'Refused')}\r\nContent-Type: {reply.content_type}\r\n"
            f"Content-Length: {len(reply.body)}\r\nConnection: close\r\n{fields}\r\n"
        )
        self.transport.write(head.encode() + reply.body)
        self.finish(closes=True)

    def finish(self, *, closes: bool) -> None:
        """End the answer: await the next request, or close."""
        self._client = None
        if closes or len(self._edge.pending_handshakes) >= MAX_IDLE:
            self.transport.close()
        elif not self.transport.is_closing():
            self._edge.pending_handshakes[self] = None


_PHRASES: Final = {400: "Bad Request", 401: "Unauthorized", 403: "Forbidden", 429: "Too Many Requests"}


class HttpClient(AdmittedClient):
    """The client of one request: what a WebSocket client is that subscribes once."""

    __slots__ = (
        *AdmittedClient.SLOTS,
        "_closes",
        "_connection",
        "_is_subscribed",
        "_request",
        "_unanswered",
        "transport",
    )
    ARRIVES = True
    """It counts to the rates of new connections."""
    HEARTBEAT_MS = 0
    """Longest time between what it is sent, if announced."""

    def __init__(self, connection: UpdatesConnection, edge: Edge, request: UpdatesRequest, *, closes: bool) -> None:
        self.prepare(edge)
        self.transport = connection.transport
        self._connection = connection
        self._request = request
        self._closes = closes
        """The connection ends with the answer."""
        self._is_subscribed = False
        self._unanswered = len(request.subscribe.endpoints)
        """Names without an answer."""

    # Admission

    def admit(self, peer: str, fields: Mapping[str, str]) -> Reply | None:
        """Admit the client; return the answer to one that is refused, which must be released nevertheless."""
        edge, now = self._edge, self._connection.loop.time()
        origin = fields.get("origin")
        if origin is not None:
            self._origin = intern(origin)
        headers = _NO_FIELDS
        if not _OF_ADMISSION.keys().isdisjoint(fields):
            headers = Headers({_OF_ADMISSION[name]: fields[name] for name in _OF_ADMISSION.keys() & fields.keys()})
        address, outcome = edge.admission.admit(peer, headers, now, arriving=self.ARRIVES)
        if isinstance(outcome, RefusedClient):
            return self._refused(outcome, address)
        self._address, self._allowance = address, outcome.allowance
        self._anonymous_data = outcome.anonymous_data
        host = host_of(fields.get("host", "")) or ""
        # A page whose name resolves to this machine (DNS rebinding) has no Origin in a GET, but its name in Host.
        if origin is None and outcome.anonymous and is_loopback(address) and not is_of_this_machine(host.strip("[]")):
            return self._refused(_FOREIGN_HOST, address)
        if not self._allowance.messages.take(now):
            edge.errors[ErrorCode.RATE] += 1
            wait_s = int(self._allowance.messages.retry_after(now)) + 1
            return self._refused(
                RefusedClient(429, Cause.RATE, _TOO_MANY, wait_s), address, SecurityEvent.RATE_EXCEEDED
            )
        self._allowance.charge_names(now, self._unanswered)
        if self._request.token is not None:
            return self._authenticate(self._request.token, address)
        if not outcome.anonymous and self._unanswered:
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
        self._edge.refused[refusal.status] += 1
        security_log.refuse(
            kind, refusal.cause, address=address, origin=self._origin or "", code=refusal.status, detail=refusal.detail
        )
        return refusal.problem()

    def _join(self) -> None:
        edge = self._edge
        self.session = self._new_session()
        edge.connections.add(self._client)
        edge.fanout.join(self.session)
        # In ``all-to-all``, where any update of another endpoint would be an answer.
        edge.fanout.restrict(self.session, restricted=True)

    def _new_session(self) -> Session:
        raise NotImplementedError

    # Messages

    def begin(self) -> None:
        """Send what comes first, and subscribe."""
        edge, request = self._edge, self._request.subscribe
        window_ms = fetch_window_ms(len(edge.connections))
        is_traced = self.session.trace is not None
        hello = _welcome(edge.rules, self.claims is not None, is_traced, window_ms, self.HEARTBEAT_MS)
        first = [hello, edge.status_frame[payload_offset(edge.status_frame) :]]
        if self.claims is not None:
            first.append(messages.authenticated(0, int(self.claims.expires_at)))
        self._send_first(first)
        edge.service.joined(self._client)
        meter = self.session.meter
        if request.data and any(part.wait_for_lease(self._subscribe_all) for part in meter.parts[:1]):
            # As a WebSocket client, without data after this time.
            self._connection.loop.call_later(LEASE_TIMEOUT_S, self._subscribe_all)
        else:
            self._subscribe_all()

    def _subscribe_all(self) -> None:
        """Subscribe, a hundred names at a time as messages have; once."""
        if self._is_subscribed or self._client not in self._edge.connections:
            return
        self._is_subscribed = True
        request = self._request.subscribe
        if len(request.endpoints) <= MAX_NAMES:
            if request.endpoints:
                self._subscribe(request)
            return
        names = list(request.endpoints.items())
        for start in range(0, len(names), MAX_NAMES):
            self._subscribe(request._replace(endpoints=dict(names[start : start + MAX_NAMES])))

    def _send_first(self, payloads: list[bytes]) -> None:
        raise NotImplementedError

    def respond(self, reply: bytes, replay: Sequence[bytes] = ()) -> None:
        """Send the answer for some names, and frames."""
        raise NotImplementedError

    def send_frame(self, frame: bytes) -> None:
        """Send a frame beside the fan-out."""
        raise NotImplementedError

    def close(self, code: int, reason: str = "") -> None:
        """End the answer with a code."""
        raise NotImplementedError

    def unsent(self) -> int:
        """Return the unsent bytes buffered in user space."""
        return self._connection.unsent()

    def abort(self) -> None:
        """Close the connection at once."""
        self._connection.abort()

    def end(self) -> None:
        """Leave the fan-out, and release the limits; idempotent."""
        if self._client in self._edge.connections:
            self._leave()
        self._stop_stall_check()
        self._release()

    @property
    def _cors(self) -> bytes:
        if self._origin is None:
            return b""
        return b"Access-Control-Allow-Origin: %b\r\nVary: Origin\r\n" % self._origin.encode()

    def on_ping_due(self) -> None:
        """Send the status, every 25 s, if the client is a stream."""

    def on_pong_deadline(self) -> None:
        """HTTP has no pong: a client that is gone without a close is noticed by what it does not read."""

    def on_heartbeat_check(self) -> None:
        """Send a heartbeat if nothing was sent since the last check, if the client is a stream."""


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


LEASE_TIMEOUT_S: Final = 1.0
"""Longest wait of a subscription for the first lease of its API key."""


class LongPoll(HttpClient):
    """A request that is answered once: when there is something newer, or after its wait."""

    __slots__ = ("_close", "_due", "_due_until", "_is_ended", "_messages", "_news", "_rejected", "_status", "_timer")
    ARRIVES = False

    def __init__(self, connection: UpdatesConnection, edge: Edge, request: UpdatesRequest, *, closes: bool) -> None:
        super().__init__(connection, edge, request, closes=closes)
        self._messages: list[bytes] = []
        """Payloads of the answer."""
        self._news = False
        """Some of them are worth an answer."""
        self._due: set[bytes] = set()
        """Endpoints of which a newer version is stated, and neither update nor ``resync`` has come."""
        self._due_until = 0.0
        self._rejected = 0
        """Names that were rejected."""
        self._is_ended = False
        self._status = edge.status_frame
        """The latest status among them."""
        self._timer: asyncio.TimerHandle | None = None
        self._close: dict[str, Any] | None = None

    def begin(self) -> None:
        """Subscribe, and answer at once or later."""
        self._edge.received["poll"] += 1
        super().begin()
        if not self._unanswered:
            self._answer_if_complete()
        if not self._is_ended:
            self._timer = self._connection.loop.call_later(self._request.wait_s or REPLY_TIMEOUT_S, self._answer)

    def _new_session(self) -> Session:
        return Session(self._collect, self._collect_all, self._edge.fanout.stats)

    def _send_first(self, payloads: list[bytes]) -> None:
        self._messages = payloads

    def respond(self, reply: bytes, replay: Sequence[bytes] = ()) -> None:
        """Add the answer for some names; answer at once when there is one for all, and anything new."""
        if self._is_ended:
            self.session.drop(replay)
            return
        # Before the names are answered, a status of some of them is how they are, not a change.
        is_new = not self._unanswered or reply.startswith(_ERROR)
        self._messages.append(reply)
        for frame in replay:
            self._messages.append(frame[payload_offset(frame) :])
            is_new = is_new or not self._is_known(frame)
        if reply.startswith(_SUBSCRIBED):
            subscribed = orjson.loads(reply)
            if rejected := subscribed.get("rejected"):
                self._rejected += len(rejected)
                is_new = True
            known = self._request.subscribe.endpoints
            newer = {name.encode() for name, version in subscribed["endpoints"].items() if (version or 0) > known[name]}
            self._due |= newer.difference(map(_endpoint_of, replay))
            self._due_until = self._connection.loop.time() + RETAINED_TIMEOUT_S
            self._unanswered = len(self._request.subscribe.endpoints) - len(self.session.endpoints) - self._rejected
        if is_new:
            self._note_news()
        if not self._unanswered:
            self._answer_if_complete()

    def _is_known(self, frame: bytes) -> bool:
        """Return whether a frame is a ``resync`` that the client has had: it is sent to each new subscriber."""
        key = conflation_key(frame)
        return key.startswith(b"resync") and key[len(b"resync") :].decode() in self._request.resynced

    def _answer_if_complete(self) -> None:
        if self._due:
            # Where others always have news, the next polls would not have it either.
            self._note_news()
        elif self._news or not self._request.wait_s or not self.session.endpoints:
            self._answer()

    def _collect(self, run: bytes) -> None:
        """Add frames of the fan-out; the session conflates those that follow until the answer."""
        if run is self._edge.status_frame:
            self._status = run
        for frame in frames_of(run):
            self._messages.append(frame[payload_offset(frame) :])
            if self._due:
                self._due.discard(_endpoint_of(frame))
        if not self._is_ended:
            self.session.block()
            self._note_news()

    def _collect_all(self, frames: Iterable[bytes]) -> None:
        for frame in frames:
            self._collect(frame)

    def send_frame(self, frame: bytes) -> None:
        """Add a frame."""
        self._collect(frame)

    def _note_news(self) -> None:
        if not self._news:
            self._news = True
            gathering = self._edge.gathering
            if not gathering:
                # One timer for all that an update reaches.
                self._connection.loop.call_later(GATHER_S, _answer_all, gathering)
            gathering.append(self._answer_gathered)

    def _answer_gathered(self) -> None:
        """Answer, or gather on while a retained update is on its way from a server."""
        self._due = {endpoint for endpoint in self._due if not self.session.holds(endpoint)}
        if self._due and not self._is_ended and self._connection.loop.time() < self._due_until:
            self._news = False
            self._note_news()
        else:
            self._answer()

    def _answer(self) -> None:
        """Send the answer, and leave."""
        if self._is_ended:
            return
        self._is_ended = True
        self.session.unblock()
        if self._status is not self._edge.status_frame:
            self._collect(self._edge.status_frame)
        end = b"]}" if self._close is None else b'],"close":%s}' % orjson.dumps(self._close)
        body = b'{"messages":[' + b",".join(self._messages) + end
        self._messages = []
        self.transport.write(
            _ANSWER % (len(body), b"Connection: close\r\n" if self._closes else b"", self._cors) + body
        )
        self.end()
        self._connection.finish(closes=self._closes)

    def close(self, code: int, reason: str = "") -> None:
        """Answer now, with the code."""
        self._close = {"code": int(code), "reason": reason}
        self._closes = True
        self._answer()

    def end(self) -> None:
        """Leave the fan-out, and release the limits; idempotent."""
        self._is_ended = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        super().end()


def _endpoint_of(frame: bytes) -> bytes:
    key = conflation_key(frame)
    return key[key.find(b"/") :]


def _answer_all(gathering: list[Callable[[], None]]) -> None:
    """Send the answers that have gathered updates for long enough; some have been sent meanwhile."""
    answers = gathering.copy()
    gathering.clear()
    for answer in answers:
        answer()


class EventStream(HttpClient):
    """A request that is answered with one event for each message, until either side ends it."""

    __slots__ = ()
    HEARTBEAT_MS = 1000 * HEARTBEAT_S

    def _new_session(self) -> Session:
        write, writelines, get = self.transport.write, self.transport.writelines, self._edge.events.get
        return Session(
            lambda frame: write(get(frame)),
            lambda frames: writelines([get(frame) for frame in frames]),
            self._edge.fanout.stats,
        )

    def begin(self) -> None:
        """Begin the stream, and subscribe."""
        edge = self._edge
        edge.received["event_stream"] += 1
        self._slot = edge.wheel.add(self._client)
        if edge.trace_sink is not None:
            self.session.trace = edge.trace_sink.connected(self.session, token_bytes(8), self._address or "")
        super().begin()

    def _send_first(self, payloads: list[bytes]) -> None:
        self.transport.write(_STREAM + self._cors + b"\r\n" + b"".join(map(event, payloads)))
        self.session.recently_sent = True

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
        self.transport.write(self._edge.events.get(frame))

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
            self.end()
            self.transport.write(close_event(code, reason))
            self._connection.finish(closes=True)


_remembered: Final = lru_cache(512)(messages.parse_updates)
"""Those of the pages of one kind are the same."""


def _parse_head(data: bytes) -> RequestHead | None:
    """Parse the head of a request; None if it is not valid, or what should be there once is there twice."""
    if (plain := parse_head(data)) is not None:
        return plain
    parser = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEAD_BYTES)
    try:
        parser.receive_data(data)
        request = parser.next_event()
    except h11.RemoteProtocolError:
        return None
    if not isinstance(request, h11.Request):
        return None
    fields: dict[str, str] = {}
    for raw, value in request.headers:
        name = raw.decode()
        if name in fields and name in _SINGLE:
            return None
        text = value.decode("latin-1")
        fields[name] = f"{fields[name]}, {text}" if name in fields else text
    if request.http_version == b"1.0":
        fields["connection"] = "close"
    return RequestHead(request.method.decode(), request.target, fields)


def _of_query(query: str, limit: int) -> UpdatesRequest:
    """Return the request in the query of a GET: ``endpoint`` once or more, and ``after``, ``data`` and ``wait``.

    Raises:
        MessageError: it is not valid.
    """
    found = parse_qs(query, keep_blank_values=True)
    unknown = found.keys() - _PARAMETERS
    if unknown:
        raise MessageError(ErrorCode.BAD_MESSAGE, f"unknown parameters: {', '.join(sorted(unknown))[:100]}")
    text = {name: values[-1] for name, values in found.items()}
    try:
        after = int(text.get("after", "0"))
        wait_s = float(text.get("wait", str(messages.MAX_WAIT_S)))
    except ValueError:
        raise MessageError(ErrorCode.BAD_MESSAGE, '"after" is a version, "wait" a number of seconds') from None
    if text.get("data", "false") not in {"true", "false"}:
        raise MessageError(ErrorCode.BAD_MESSAGE, '"data" must be true or false')
    known = dict.fromkeys(found.get("endpoint", ()), after)
    return messages.updates_request({"endpoints": known, "data": text.get("data") == "true", "wait": wait_s}, limit)
