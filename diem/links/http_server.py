"""REST listeners: uvicorn with our signals, deadlines and connection limits; a fallback for internal listeners."""

import asyncio
import contextlib
import logging
import math
import socket
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, cast

import h11
import structlog
import uvicorn
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from diem.links import fast_path as fast
from diem.links.connection_limits import (
    ConnectionLimiter,
    ConnectionLimits,
    ReadsPerTurn,
    RequestTurns,
    turns_of_loop,
)
from diem.links.fast_path import FastPath, FastWritePath
from diem.links.handshakes import HandshakeLimiter, HandshakeLimits
from diem.links.listener import MAX_HEAD_BYTES, BatchAcceptor
from diem.links.rest import ClientAddressMiddleware, problem, retry_after
from diem.process import security_log
from diem.process.backoff import wait
from diem.process.clock import until_next
from diem.process.forwarding import ClientAddresses
from diem.process.limits import AdmissionResult
from diem.process.listeners import OTHER_FILES, Network, raise_open_files
from diem.process.security_log import SecurityEvent
from diem.process.tls import HSTS, ServerTls

REQUEST_S: Final = 10.0
"""Time for a request head to be complete, from the start of the connection or the first byte of the head."""
ANSWER_S: Final = 30.0
"""Time for a client to read the written part of a response."""
KEEP_ALIVE_S: Final = 30
DATE_EVERY_S: Final = 1.0
STREAM: Final = "diem.stream"
"""Entry of the scope: a function to call for a request without an end, so that reads make no room for it."""
MAX_HEADER_BYTES: Final = 16 * 1024
MIN_PENDING: Final = 64
MAX_GATHERED_BYTES: Final = 256 * 1024
"""Largest write that is gathered for the fast path if it arrives in pieces."""

_READS: Final = (b"GET ", b"HEAD ")
_WRITES: Final = (b"PUT ", b"PATCH ", b"POST ", b"DELETE ")
_logger = structlog.get_logger(__name__)


class TimedProtocol(H11Protocol):
    """A connection with deadlines, bounded in number (docs/reliability.md S16).

    It is closed when a request head is incomplete after :data:`REQUEST_S` (also while the body of an already answered
    request trickles in), when a response is not read within :data:`ANSWER_S`, and when idle for :data:`KEEP_ALIVE_S`.
    Handlers bound their own waits. The limiter admits connections.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        server_state: Any,  # noqa: ANN401  # uvicorn's
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        limiter: "ConnectionLimiter[TimedProtocol]",
        turns: "tuple[RequestTurns, RequestTurns]",
        privileged: Callable[[Scope], bool] | None,
        fast_path: "FastConnectionState | None" = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._limiter = limiter
        self._fast_path = fast_path
        self._writing = False
        """A request of the fast path waits for its answer."""
        self._pending = b""
        """Data received meanwhile."""
        self._gathered: bytearray | None = None
        """The beginning of a write for the fast path."""
        self._whole = 0
        """Size of that write."""
        self._closing = False
        self._answered_at = -math.inf
        """Time of the last answer of the fast path: the connection is idle from then on."""
        self._reads, self._others = turns
        self._received: bytes | None = None
        """Data that waits for its turn; empty for a pipelined request, which the parser already has."""
        self._pipelined = False
        """The next request was sent before the last one had been answered."""
        self._privileged = privileged
        self._application = cast("ASGIApp", self.app)
        self.app = cast("Any", self._answer)
        self.lower: asyncio.Transport | None = None
        """The transport below TLS."""
        self._address = ""
        self._request_deadline: asyncio.TimerHandle | None = None
        self._answer_deadline: asyncio.TimerHandle | None = None

    # Events of the connection

    def connection_made(self, transport: Any) -> None:  # noqa: ANN401  # as uvicorn declares it
        """Admit the connection, or close it; start the request clock."""
        super().connection_made(transport)
        self._address = self.client[0] if self.client else ""
        verdict = self._limiter.opened(self, self._address, self.loop.time())
        if verdict is not None:
            _record_refusal(verdict, self._address)
            transport.abort()
            return
        self._request_deadline = self.loop.call_later(REQUEST_S, self._request_overdue)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the clocks."""
        self._limiter.closed(self)
        self._received = self._gathered = None
        self._stop_clocks()
        # uvicorn does not stop it when the client resets the connection.
        self._unset_keepalive_if_required()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Process data at once or in a later turn of the loop.

        Potential writes have separate turns, so they never queue behind all reads. The rest of a privileged request
        already begun does not wait at all.
        """
        if self._writing:
            self._pending += data
            self.flow.pause_reading()
            return
        if self._gathered is not None:
            self._gathered += data
            if len(self._gathered) >= self._whole:
                self._process(self._take_gathered())
            return
        if self._received is not None:
            # Read no more until then.
            self._received += data
            self.flow.pause_reading()
            return
        if self in self._limiter.privileged.members and self._answering:
            self._process(data)
        else:
            self._process_or_wait(data, self._reads if data.startswith(_READS) else self._others)

    def handle_events(self) -> None:
        """Begin the next request; a pipelined one takes a turn of its own."""
        if self._pipelined:
            self._pipelined = False
            self._process_or_wait(b"", self._others if self in self._limiter.privileged.members else self._reads)
        else:
            super().handle_events()

    def process_received(self) -> None:
        """Process the data waiting for this turn."""
        data, self._received = self._received, None
        if data is None or self.transport.is_closing():
            return
        self.flow.resume_reading()
        self._process(data)

    def _process_or_wait(self, data: bytes, turns: RequestTurns) -> None:
        if turns.may_begin():
            self._process(data)
        else:
            self._received = data
            turns.wait(self)

    def _process(self, data: bytes) -> None:
        """Process data; an incomplete head has a fixed deadline, even if it trickles in."""
        if (fast_path := self._fast_path) is not None:
            if data.startswith(_READS) and self._answer_at_once(data, fast_path):
                return
            if data.startswith(_WRITES) and (self._begin_write(data, fast_path) or self._gather(data)):
                return
        self._parse(data)

    def _parse(self, data: bytes) -> None:
        """Leave data to the library."""
        if data:
            super().data_received(data)
        else:
            self.handle_events()
        if self._answering:
            self._stop_request_clock()
        elif self._request_deadline is None:
            self._request_deadline = self.loop.call_later(REQUEST_S, self._request_overdue)

    def _answer_at_once(self, data: bytes, fast_path: "FastConnectionState") -> bool:
        """Answer a read from memory, with all side effects; return False if the library must.

        The connection then is a reader's, as with the library, and nothing else has changed. The library's parser,
        between two requests, does not notice.
        """
        if not self._is_between_requests:
            return False
        now = self.loop.time()
        head = fast.parse(data)
        # Requests with credentials may use reserved connections.
        if head is None or "authorization" in head.fields:
            return False
        if not self._limiter.admits_at_once(self, self._address, now):
            return False
        answer = fast_path.answer(self._address, head, self.server_state.default_headers)
        if answer is None:
            return False
        self.transport.write(answer)
        self._stop_request_clock()
        self._answered_at = now
        if self.timeout_keep_alive_task is None:
            self._schedule_keep_alive(self.timeout_keep_alive)
        return True

    @property
    def _is_between_requests(self) -> bool:
        """True if the library has no request, and the client has read all answers: the library has flow control."""
        return self.conn.their_state is h11.IDLE and not self.conn.trailing_data[0] and not self._unread_bytes

    def _begin_write(self, data: bytes, fast_path: "FastConnectionState") -> bool:
        """Begin a write whose request has arrived whole; return False if the library must."""
        if not self._is_between_requests:
            return False
        write = fast.parse_write(data)
        answer = None if write is None else fast_path.begin(self._address, write)
        if answer is None:
            return False
        if self._limiter.requested(self, self._address, self.loop.time(), privileged=True) is not None:
            answer.close()
            return False
        self._unset_keepalive_if_required()
        self._stop_request_clock()
        self._writing = True
        task = self.loop.create_task(self._answer_write(answer, fast_path))
        # The server waits for these when it stops.
        self.server_state.tasks.add(task)
        task.add_done_callback(self.server_state.tasks.discard)
        return True

    def _gather(self, data: bytes) -> bool:
        """Wait for the rest of a write for the fast path; return False if the library must.

        Only with credentials, on connections with writes so far: whose they are turns out when it has arrived.
        """
        if self not in self._limiter.privileged.members or not self._is_between_requests:
            return False
        size = fast.size_to_gather(data)
        if not len(data) < size <= MAX_GATHERED_BYTES:
            return False
        self._limiter.privileged.set_busy(self)
        self._unset_keepalive_if_required()
        self._gathered, self._whole = bytearray(data), size
        if self._request_deadline is None:
            self._request_deadline = self.loop.call_later(REQUEST_S, self._request_overdue)
        return True

    def _take_gathered(self) -> bytes:
        data, self._gathered = bytes(self._gathered or b""), None
        return data

    async def _answer_write(
        self, answer: Coroutine[Any, Any, fast.FastAnswer], fast_path: "FastConnectionState"
    ) -> None:
        rendered = fast_path.render(await answer, self.server_state.default_headers)
        self._writing = False
        if self.transport.is_closing():
            return
        self.transport.write(rendered)
        self._answered_at = self.loop.time()
        self._limiter.answered(self, self._answered_at)
        if self._closing:
            self.transport.close()
            self._start_answer_clock()
            return
        self._schedule_keep_alive(self.timeout_keep_alive)
        if self._pending:
            data, self._pending = self._pending, b""
            self.flow.resume_reading()
            self.data_received(data)

    def shutdown(self) -> None:
        """Close the connection after the request in progress."""
        if self._writing:
            self._closing = True
            return
        if self._gathered is not None:
            self._parse(self._take_gathered())
        super().shutdown()

    def _schedule_keep_alive(self, seconds: float) -> None:
        self.timeout_keep_alive_task = self.loop.call_later(seconds, self.timeout_keep_alive_handler)

    def on_response_complete(self) -> None:
        """Handle the end of a response: the connection is idle, or closes."""
        self._limiter.answered(self, self.loop.time())
        if self.transport.is_closing():
            self._start_answer_clock()
        # The library stops reading from a pipelining client.
        self._pipelined = self.flow.read_paused
        super().on_response_complete()
        self._pipelined = False

    def send_400_response(self, msg: str) -> None:
        """Answer malformed HTTP with 400, and close."""
        super().send_400_response(msg)
        self._start_answer_clock()

    def pause_writing(self) -> None:
        """Start the answer clock of a slow client."""
        super().pause_writing()
        self._start_answer_clock()

    def resume_writing(self) -> None:
        """Stop the answer clock: the client has caught up."""
        super().resume_writing()
        if self._answer_deadline is not None and not self.transport.is_closing():
            self._answer_deadline.cancel()
            self._answer_deadline = None

    def timeout_keep_alive_handler(self) -> None:
        """Close an idle connection without waiting for the last response to be read."""
        if self._received is not None:
            return  # a request waits for its turn
        left = self._answered_at + self.timeout_keep_alive - self.loop.time()
        if left > 0:
            # One timer serves many answers of the fast path.
            self._schedule_keep_alive(left)
        elif self.drained:
            super().timeout_keep_alive_handler()
        else:
            self.transport.abort()

    # LimitedConnection

    @property
    def drained(self) -> bool:
        """True if the client has read everything sent to it and sent no further request."""
        return self._received is None and self._gathered is None and not self._answering and not self._unread_bytes

    @property
    def _unread_bytes(self) -> int:
        below = 0 if self.lower is None else self.lower.get_write_buffer_size()
        return int(self.transport.get_write_buffer_size()) + below

    def evict(self) -> None:
        """Close the connection at once."""
        self.transport.abort()

    # Requests

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        privileged = self._privileged is not None and self._privileged(scope)
        now = self.loop.time()
        verdict = self._limiter.requested(self, self._address, now, privileged=privileged)
        if verdict is not None:
            _record_refusal(verdict, self._address)
        answer = self._application if verdict is None else _refusal(verdict)
        scope[STREAM] = self._mark_stream
        await answer(scope, receive, send)

    def _mark_stream(self) -> None:
        # Not evicted: it is not drained.
        self._limiter.answered(self, self.loop.time())

    @property
    def _answering(self) -> bool:
        # uvicorn has no cycle before the first request.
        return self._writing or not getattr(self.cycle, "response_complete", True)

    def _request_overdue(self) -> None:
        self._request_deadline = None
        if self._gathered is not None:
            # The handler bounds the time of a body.
            self._parse(self._take_gathered())
        elif self._received is not None:
            # The request waits for its turn: not the client's fault.
            self._request_deadline = self.loop.call_later(REQUEST_S, self._request_overdue)
        elif not self._answering:
            self.transport.abort()

    def _start_answer_clock(self) -> None:
        if self._answer_deadline is None:
            self._answer_deadline = self.loop.call_later(ANSWER_S, self.transport.abort)

    def _stop_request_clock(self) -> None:
        if self._request_deadline is not None:
            self._request_deadline.cancel()
            self._request_deadline = None

    def _stop_clocks(self) -> None:
        self._stop_request_clock()
        if self._answer_deadline is not None:
            self._answer_deadline.cancel()
            self._answer_deadline = None


class FastConnectionState:
    """Fast paths, with the state shared by all connections of a listener."""

    def __init__(self, fast_path: FastPath, fast_writes: FastWritePath | None, addresses: ClientAddresses) -> None:
        self._fast_path = fast_path
        self._fast_writes = fast_writes
        self._addresses = addresses
        self.render = fast.Renderer()

    def answer(self, peer: str, head: fast.RequestHead, server_fields: list[tuple[bytes, bytes]]) -> bytes | None:
        """Return the whole answer to a request; None if the application must answer."""
        answer = self._fast_path(head, self._client(peer, head))
        return None if answer is None else self.render(answer, server_fields)

    def begin(self, peer: str, write: fast.PlainWrite) -> Coroutine[Any, Any, fast.FastAnswer] | None:
        """Return the answer to come of a write; None if the application must answer."""
        return None if self._fast_writes is None else self._fast_writes(write, self._client(peer, write.head))

    def _client(self, peer: str, head: fast.RequestHead) -> str:
        fields = head.fields
        relayed = "forwarded" in fields or "via" in fields
        return self._addresses.resolve(peer, fields.get("x-forwarded-for"), relayed=relayed)


def _record_refusal(verdict: AdmissionResult, address: str) -> None:
    # A full process is not the client's fault.
    if verdict is AdmissionResult.ADDRESS_LIMIT:
        code, detail = verdict.status, verdict.reason
        security_log.record(SecurityEvent.RATE_EXCEEDED, address=address, code=code, detail=detail)


def _refusal(verdict: AdmissionResult) -> Response:
    headers = {"Retry-After": retry_after(), "Connection": "close"}
    code = "full" if verdict is AdmissionResult.PROCESS_FULL else "connections"
    return problem(verdict.status, code, verdict.reason, headers=headers)


def _within_open_files(limits: ConnectionLimits) -> ConnectionLimits:
    """Raise the limit of open files for ``limits``; return them with fewer pending connections if that fails."""
    held = limits.readers + limits.privileged + OTHER_FILES
    allowed = raise_open_files(held + limits.pending)
    if allowed >= held + limits.pending:
        return limits
    pending = max(MIN_PENDING, allowed - held)
    _logger.warning("the limit of open files is low for the connections", open_files=allowed, pending=pending)
    return replace(limits, pending=pending)


class HttpServer(uvicorn.Server):
    """uvicorn without signal handlers: :meth:`run_until` stops it."""

    limiter: "ConnectionLimiter[TimedProtocol]"
    tls: ServerTls | None = None
    handshakes: HandshakeLimiter | None = None
    _acceptors: Sequence[BatchAcceptor] = ()
    _stopping: asyncio.Event

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the signals to the life cycle."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start with our own acceptors."""
        await super().startup([])
        make_protocol: Callable[[], asyncio.Protocol] = partial(
            cast("Any", self.config.http_protocol_class),
            config=self.config,
            server_state=self.server_state,
            app_state=self.lifespan.state,
        )
        self._acceptors = [
            BatchAcceptor(listener, make_protocol, self.tls, self.handshakes) for listener in sockets or []
        ]

    async def main_loop(self) -> None:
        """Renew the header ``Date`` until the end: uvicorn wakes ten times a second for it."""
        while not self._stopping.is_set():
            await self.on_tick(0)
            await wait(self._stopping, until_next(asyncio.get_running_loop().time(), DATE_EVERY_S))

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop accepting, and answer requests in progress."""
        for acceptor in self._acceptors:
            acceptor.stop()
        await super().shutdown(sockets)

    async def run_until(self, stopping: asyncio.Event, *listeners: socket.socket) -> None:
        """Serve ``listeners`` until ``stopping``; then answer requests in progress, and return."""
        self._stopping = stopping
        serving = asyncio.create_task(self.serve([*listeners]))
        stop = asyncio.create_task(stopping.wait())
        try:
            await asyncio.wait({serving, stop}, return_when=asyncio.FIRST_COMPLETED)
            self.should_exit = True
            await serving
        finally:
            stop.cancel()
            serving.cancel()


def make_server(
    app: ASGIApp,
    *,
    limits: ConnectionLimits,
    drain_s: float,
    trusted_proxies: Sequence[Network] = (),
    privileged: Callable[[Scope], bool] | None = None,
    tls: ServerTls | None = None,
    handshakes: HandshakeLimits | None = None,
    fast_path: FastPath | None = None,
    fast_writes: FastWritePath | None = None,
    is_writing: Callable[[], bool] = lambda: False,
) -> HttpServer:
    """Return the server of a public listener.

    Args:
        app: the application.
        limits: of open connections; a request beyond them is answered 503 (429 beyond those of one address).
        drain_s: seconds for requests in progress when the server stops.
        trusted_proxies: networks whose ``X-Forwarded-For`` is trusted.
        privileged: returns whether a request may use reserved connections.
        tls: the certificate of the listener; None: requests are not encrypted.
        handshakes: of TLS, of one address; None: the usual ones.
        fast_path: answers plain reads before the application is asked.
        fast_writes: the same for plain writes; only with ``fast_path``.
        is_writing: returns whether non-privileged writes are in progress, for which reads make room as well.
    """
    # The process logs start and end; uvicorn's warnings are about malformed requests, which could fill a disk.
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
    limits = _within_open_files(limits)
    limiter = ConnectionLimiter[TimedProtocol](limits)
    reads_per_turn = ReadsPerTurn(lambda: limiter.privileged.busy > 0 or is_writing())
    turns = (turns_of_loop(reads_per_turn), turns_of_loop())
    addresses = ClientAddresses(trusted_proxies)
    fast_state = None if fast_path is None else FastConnectionState(fast_path, fast_writes, addresses)
    protocol = partial(TimedProtocol, limiter=limiter, turns=turns, privileged=privileged, fast_path=fast_state)
    config = uvicorn.Config(
        cast("Any", ClientAddressMiddleware(app, addresses)),
        # Called as uvicorn's own protocols are.
        http=cast("Any", protocol),
        ws="none",
        lifespan="off",
        interface="asgi3",
        access_log=False,
        log_config=None,
        server_header=False,
        proxy_headers=False,
        headers=[] if tls is None else [("Strict-Transport-Security", HSTS)],
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=max(1, int(drain_s)),
        h11_max_incomplete_event_size=MAX_HEADER_BYTES,
    )
    server = HttpServer(config)
    server.limiter = limiter
    server.tls = tls
    server.handshakes = HandshakeLimiter("public", handshakes)
    return server


CLOSE: Final = (b"connection", b"close")
"""Header of every response: the next request on the connection could be for the listener, not the application."""


class AsgiFallback:
    """An application for all paths below ``prefix``, with any method.

    The listener's own connections handle only GET and WebSocket upgrades, in little memory. A connection with a request
    below the prefix is handed over with the data received so far, and closes after its response, like all others.
    """

    def __init__(self, app: ASGIApp, prefix: str) -> None:
        self._config = uvicorn.Config(
            app,
            lifespan="off",
            interface="asgi3",
            access_log=False,
            log_config=None,
            server_header=False,
            date_header=False,
            h11_max_incomplete_event_size=MAX_HEAD_BYTES,
        )
        self._config.load()
        self._state = ServerState()
        self._state.default_headers = [CLOSE]
        self._prefix = prefix.encode()

    def wants(self, head: bytes) -> bool | None:
        """Return whether a request starting with ``head`` is for the application; None until known."""
        _method, space, rest = head.partition(b" ")
        path, end, _ = rest.partition(b" ")
        if not space or not (end or len(path) > len(self._prefix)):
            return None
        return path == self._prefix or path.startswith((self._prefix + b"/", self._prefix + b"?"))

    def adopt(self, transport: asyncio.Transport, received: bytes) -> None:
        """Take over a connection that has received ``received``."""
        protocol: Any = H11Protocol(self._config, self._state, {})
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        protocol.data_received(received)

    async def drain(self, seconds: float) -> None:
        """Wait for the responses to requests in progress, at most ``seconds``."""
        for connection in list(self._state.connections):
            connection.shutdown()
        if self._state.tasks:
            await asyncio.wait(self._state.tasks, timeout=seconds)
