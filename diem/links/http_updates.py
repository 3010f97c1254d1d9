"""Updates over HTTP, for networks without WebSocket: long polls and event streams (docs/protocol.md section 1.8).

Another framing of the client protocol. Each request is a client of its edge (``http_clients``), with the rights, limits
and conflation of a WebSocket; nothing of it is left when it ends, because front proxies send the requests of many
clients on one connection.
"""

import asyncio
import math
from collections.abc import Mapping
from functools import lru_cache
from sys import intern
from typing import Final, NamedTuple, cast
from urllib.parse import parse_qs

import h11

from diem.links.connection import HIGH_WATER_BYTES
from diem.links.edge import Edge, RequestSource
from diem.links.fast_path import RequestHead, parse_head
from diem.links.http_clients import EventStream, LongPoll, is_here
from diem.links.listener import HANDSHAKE_TIMEOUT_S, MAX_HEAD_BYTES, Reply
from diem.links.refusals import NOT_READY, readable
from diem.protocol import messages
from diem.protocol.codes import ErrorCode
from diem.protocol.messages import MessageError, UpdatesRequest

PATH: Final = "/v1/updates"
MAX_BODY_BYTES: Final = 128 * 1024
"""Longest body: 1,024 names of 100 bytes each."""
MAX_LENGTH_DIGITS: Final = 9
TIMER_RESOLUTION_S: Final = 0.001
MAX_REMEMBERED_BYTES: Final = 1024
"""Longest head and longest body that are remembered."""
MAX_IDLE: Final = 1024
"""Connections without a request; beyond, one is closed after its answer."""

_METHODS: Final = (b"GET ", b"POST ", b"OPTIONS ")
_STARTS: Final = tuple(method + PATH.encode() for method in _METHODS)
_LONGEST: Final = max(map(len, _STARTS))
_PARAMETERS: Final = frozenset({"endpoint", "after", "data", "live", "wait"})
_SINGLE: Final = frozenset({"authorization", "content-length", "host", "origin"})
_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
_PREFLIGHT: Final = (
    b"HTTP/1.1 204 No Content\r\nAccess-Control-Allow-Origin: *\r\nAccess-Control-Allow-Methods: GET, POST\r\n"
    b"Access-Control-Allow-Headers: authorization, content-type\r\nAccess-Control-Max-Age: 7200\r\n\r\n"
)


def is_request(data: bytes) -> bool | None:
    """Return whether a connection begins with a request for updates; None: too few bytes to know."""
    if data.startswith(_STARTS):
        return True
    return None if len(data) < _LONGEST and any(start.startswith(data) for start in _STARTS) else False


class UpdatesHead(NamedTuple):
    """The head of a request for updates."""

    source: RequestSource
    host: str
    request: UpdatesRequest | MessageError | None
    """None: it is in the body."""
    token: str | None
    size: int
    """Length of the body."""
    is_preflight: bool
    is_stream: bool
    closes: bool
    """The connection ends with the answer."""
    expects_continue: bool


class UpdatesConnection(asyncio.Protocol):
    """A connection with requests for updates, one after the other.

    A request must be complete 10 to 20 s after the last answer.
    """

    __slots__ = (
        "_client",
        "_data",
        "_edge",
        "_head",
        "_is_idle",
        "_timer",
        "_unsent",
        "_wakes_at",
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
        self._head: UpdatesHead | None = None
        """The head of a request whose body is not complete."""
        self._client: EventStream | LongPoll | None = None
        self._timer: asyncio.TimerHandle | None = None
        """One timer for all requests and their waits: one for each would cost as much as a tenth of a poll."""
        self._wakes_at = math.inf
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
        now = self.loop.time()
        self._edge.pending_handshakes[self] = now
        self.wake_at(now + HANDSHAKE_TIMEOUT_S)

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
                    self._reply(_problem(431, ErrorCode.BAD_MESSAGE, "the request head is too long"))
                return
            limit = self._edge.rules.subscriptions
            read = (_remembered_head if ends <= MAX_REMEMBERED_BYTES else _read_head)(data[:ends], limit)
            if isinstance(read, Reply):
                self._reply(read)
                return
            self._head = head = read
            data = data[ends:]
            if head.expects_continue and len(data) < head.size:
                self.transport.write(_CONTINUE)
        self._data = data
        if len(data) > head.size:
            self.abort()
        elif len(data) == head.size:
            self._head, self._data = None, b""
            self._is_idle = False
            self._edge.pending_handshakes.pop(self, None)
            self._handle(head, data)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - a loss needs no reason
        """End the client."""
        self._edge.pending_handshakes.pop(self, None)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
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

    def wake_at(self, at: float) -> None:
        """Set the timer, unless it is due before: then it is set anew when it is."""
        if at < self._wakes_at:
            if self._timer is not None:
                self._timer.cancel()
            self._wakes_at = at
            self._timer = self.loop.call_at(at, self._on_timer)

    def _on_timer(self) -> None:
        """Answer a poll that has waited; abort if no request was complete for 10 s, unless an answer is being read."""
        now, self._wakes_at = self.loop.time(), math.inf
        if self._client is not None and self._client.due <= now + TIMER_RESOLUTION_S:
            self._client.on_due()
        unsent = self.unsent()
        is_read = unsent and (unsent < self._unsent or not self._unsent)
        if self._client is None and self._is_idle and not is_read:
            self.abort()
            return
        self._is_idle, self._unsent = self._client is None, unsent
        due = math.inf if self._client is None else self._client.due
        self.wake_at(min(now + HANDSHAKE_TIMEOUT_S, due))

    def _handle(self, head: UpdatesHead, body: bytes) -> None:
        edge, request = self._edge, head.request
        if head.is_preflight:
            self.transport.write(_PREFLIGHT)
            self.finish(closes=head.closes)
            return
        if not edge.ready or edge.draining:
            edge.refused[503] += 1
            self._reply(NOT_READY.problem())
            return
        if request is None:
            parse = _remembered_body if len(body) <= MAX_REMEMBERED_BYTES else _parse_body
            request = parse(body, edge.rules.subscriptions)
        if isinstance(request, MessageError):
            edge.errors[request.code] += 1
            self._reply(_problem(413 if request.code is ErrorCode.TOO_MANY else 400, request.code, request.message))
            return
        if head.token is not None:
            request = request._replace(token=head.token)
        client = (EventStream if head.is_stream else LongPoll)(self, edge, request, closes=head.closes)
        self._client = client
        refusal = client.admit(self.peer, head.source, head.host)
        if refusal is None:
            client.begin()
        else:
            self._client = None
            client.end()
            self._reply(refusal)

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
            self._edge.pending_handshakes[self] = self.loop.time()


_PHRASES: Final = {400: "Bad Request", 401: "Unauthorized", 403: "Forbidden", 429: "Too Many Requests"}


def _problem(status: int, code: ErrorCode, detail: str) -> Reply:
    return readable(status, {"status": status, "code": code, "detail": detail}, {})


def _read_head(data: bytes, limit: int) -> UpdatesHead | Reply:
    """Read the head of a request for at most ``limit`` names; return the answer to one that is refused."""
    head = _parse_head(data)
    if head is None:
        return _problem(400, ErrorCode.BAD_MESSAGE, "this is no valid request")
    fields = head.fields
    length = fields.get("content-length", "0")
    if "transfer-encoding" in fields or not length.isdigit():
        return _problem(411, ErrorCode.BAD_MESSAGE, "send the body with a Content-Length")
    if len(length) > MAX_LENGTH_DIGITS or int(length) > MAX_BODY_BYTES:
        return _problem(413, ErrorCode.TOO_MANY, f"a body has at most {MAX_BODY_BYTES} bytes: send fewer names")
    path, _, query = head.target.decode("ascii").partition("?")
    if path != PATH:
        return _problem(404, ErrorCode.BAD_MESSAGE, f"updates are at {PATH}")
    authorization = fields.get("authorization", "")
    return UpdatesHead(
        RequestSource(
            _origin_of(fields),
            fields.get("x-forwarded-for"),
            "forwarded" in fields or "via" in fields,
        ),
        fields.get("host", ""),
        _of_query(query, limit) if head.method == "GET" else None,
        authorization[7:].strip() if authorization[:7].lower() == "bearer " else None,
        int(length),
        head.method == "OPTIONS",
        "text/event-stream" in fields.get("accept", ""),
        "close" in fields.get("connection", "").lower(),
        fields.get("expect", "").lower() == "100-continue",
    )


def _origin_of(fields: Mapping[str, str]) -> str | None:
    """Return the origin of the page that sends a request; None: it is from none, or from this machine."""
    host = fields.get("host", "")
    if "origin" in fields:
        return intern(fields["origin"])
    # Browsers leave it out of a GET of the page's own origin. Without TLS they send this field to their machine alone.
    if fields.get("sec-fetch-site") == "same-origin" and "authorization" not in fields and not is_here(host):
        return f"https://{host.lower()}"
    return None


def _parse_body(data: bytes, limit: int) -> UpdatesRequest | MessageError:
    try:
        return messages.parse_updates(data, limit)
    except MessageError as error:
        return error


_remembered_head: Final = lru_cache(512)(_read_head)
"""A client sends the same head each time."""
_remembered_body: Final = lru_cache(512)(_parse_body)
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


def _of_query(query: str, limit: int) -> UpdatesRequest | MessageError:
    """Return the request in the query of a GET; only ``endpoint`` may be repeated."""
    found = parse_qs(query, keep_blank_values=True)
    unknown = found.keys() - _PARAMETERS
    if unknown:
        return MessageError(ErrorCode.BAD_MESSAGE, f"unknown parameters: {', '.join(sorted(unknown))[:100]}")
    text = {name: values[-1] for name, values in found.items()}
    try:
        after = int(text.get("after", "0"))
        wait_s = float(text.get("wait", str(messages.MAX_WAIT_S)))
    except ValueError:
        return MessageError(ErrorCode.BAD_MESSAGE, '"after" is a version, "wait" a number of seconds')
    flags = {"data": text.get("data", "false"), "live": text.get("live", "true")}
    if wrong := [name for name, value in flags.items() if value not in {"true", "false"}]:
        return MessageError(ErrorCode.BAD_MESSAGE, f'"{wrong[0]}" must be true or false')
    known = dict.fromkeys(found.get("endpoint", ()), after)
    body = {"endpoints": known, "wait": wait_s, **{name: value == "true" for name, value in flags.items()}}
    try:
        request = messages.updates_request(body, limit)
    except MessageError as error:
        return error
    return request._replace(is_versioned=after > 0)
