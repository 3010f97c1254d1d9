"""REST listeners: uvicorn under our signals, deadlines and connection limits; and a fallback for internal listeners."""

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, cast

import structlog
import uvicorn
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from diem.links.connection_limits import ConnectionLimiter, ConnectionLimits, RequestTurns, turns_of_loop
from diem.links.listener import MAX_HEAD_BYTES, BatchAcceptor
from diem.links.rest import problem
from diem.process.limits import AdmissionResult
from diem.process.listeners import OTHER_FILES, raise_open_files

REQUEST_S: Final = 10.0
"""Within which a request head must be complete, counted from the connection's start or from the head's first byte."""
ANSWER_S: Final = 30.0
"""Within which a client must have taken what has been written of an answer."""
KEEP_ALIVE_S: Final = 30
MAX_HEADER_BYTES: Final = 16 * 1024
RETRY_AFTER_S: Final = 2
MIN_PENDING: Final = 64

_READS: Final = (b"GET ", b"HEAD ")
_logger = structlog.get_logger(__name__)


class TimedProtocol(H11Protocol):
    """A connection that is held no longer than its client uses it, and is one of a bounded number.

    It ends when a request head is not complete within :data:`REQUEST_S` (also when a body dribbles in that was answered
    already), when an answer is not taken within :data:`ANSWER_S`, and when it is idle for :data:`KEEP_ALIVE_S`; what
    handlers wait for is bounded by themselves. Which connections are let in is for the limiter
    (docs/reliability.md S16).
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
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._limiter = limiter
        self._reads, self._others = turns
        self._received: bytes | None = None
        """What waits for its turn; empty: a request that was sent before the last one had been answered."""
        self._sent_ahead = False
        """Whether the request that comes next is such a one."""
        self._privileged = privileged
        self._application = cast("ASGIApp", self.app)
        self.app = cast("Any", self._answer)
        self._address = ""
        self._request_deadline: asyncio.TimerHandle | None = None
        self._answer_deadline: asyncio.TimerHandle | None = None

    # Events of the connection

    def connection_made(self, transport: Any) -> None:  # noqa: ANN401  # as uvicorn declares it
        """Let the connection in, or close it; start the clock."""
        super().connection_made(transport)
        self._address = self.client[0] if self.client else ""
        if self._limiter.opened(self, self._address, self.loop.time()) is not None:
            transport.abort()
            return
        self._request_deadline = self.loop.call_later(REQUEST_S, self._request_overdue)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the clocks."""
        self._limiter.closed(self)
        self._received = None
        self._stop_clocks()
        # uvicorn lets it run on when the client resets the connection.
        self._unset_keepalive_if_required()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take bytes of a request, at once or when it is their turn.

        Requests that may be writes have turns of their own: they never wait behind all reads. What belongs to a
        privileged request that has begun does not wait at all.
        """
        if self._received is not None:
            # Nothing more is read until it is its turn.
            self._received += data
            self.flow.pause_reading()
            return
        if self._answering and self in self._limiter.privileged:
            self._take(data)
        else:
            self._take_or_wait(data, self._reads if data.startswith(_READS) else self._others)

    def handle_events(self) -> None:
        """Begin the next request, unless it was sent ahead: then it has a turn of its own."""
        if self._sent_ahead:
            self._sent_ahead = False
            self._take_or_wait(b"", self._others if self in self._limiter.privileged else self._reads)
        else:
            super().handle_events()

    def process_received(self) -> None:
        """Work on what was received."""
        data, self._received = self._received, None
        if data is None or self.transport.is_closing():
            return
        self.flow.resume_reading()
        self._take(data)

    def _take_or_wait(self, data: bytes, turns: RequestTurns) -> None:
        if turns.may_begin():
            self._take(data)
        else:
            self._received = data
            turns.wait(self)

    def _take(self, data: bytes) -> None:
        """Work on bytes; what is not the whole of a head yet has a deadline, however it dribbles in."""
        if data:
            super().data_received(data)
        else:
            self.handle_events()
        if self._answering:
            self._stop_request_clock()
        elif self._request_deadline is None:
            self._request_deadline = self.loop.call_later(REQUEST_S, self._request_overdue)

    def on_response_complete(self) -> None:
        """The answer has been written, and the next request may be waited for."""
        self._limiter.answered(self, self.loop.time())
        if self.transport.is_closing():
            self._start_answer_clock()
        # Nothing more is read from who sends ahead.
        self._sent_ahead = self.flow.read_paused
        super().on_response_complete()
        self._sent_ahead = False

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP, and close."""
        super().send_400_response(msg)
        self._start_answer_clock()

    def pause_writing(self) -> None:
        """The client takes less than is sent to it: it has some time to catch up."""
        super().pause_writing()
        self._start_answer_clock()

    def resume_writing(self) -> None:
        """The client has caught up."""
        super().resume_writing()
        if self._answer_deadline is not None and not self.transport.is_closing():
            self._answer_deadline.cancel()
            self._answer_deadline = None

    def timeout_keep_alive_handler(self) -> None:
        """Close an idle connection, without waiting until its client takes the last answer."""
        if self._received is not None:
            return  # it waits for its turn
        if self.drained:
            super().timeout_keep_alive_handler()
        else:
            self.transport.abort()

    # What the limiter asks

    @property
    def drained(self) -> bool:
        """Whether the client has taken everything that was sent to it, and has not sent another request."""
        return self._received is None and not self._answering and not self.transport.get_write_buffer_size()

    def evict(self) -> None:
        """Close the connection at once."""
        self.transport.abort()

    # Requests

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        privileged = self._privileged is not None and self._privileged(scope)
        now = self.loop.time()
        verdict = self._limiter.requested(self, self._address, now, privileged=privileged)
        answer = self._application if verdict is None else _refusal(verdict)
        await answer(scope, receive, send)

    @property
    def _answering(self) -> bool:
        # There is no cycle before the first request.
        return not getattr(self.cycle, "response_complete", True)

    def _request_overdue(self) -> None:
        self._request_deadline = None
        if self._received is not None:
            # It waits for us, and not we for it.
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


def _refusal(verdict: AdmissionResult) -> Response:
    headers = {"Retry-After": str(RETRY_AFTER_S), "Connection": "close"}
    code = "full" if verdict is AdmissionResult.PROCESS_FULL else "connections"
    return problem(verdict.status, code, verdict.reason, headers=headers)


def _within_open_files(limits: ConnectionLimits) -> ConnectionLimits:
    """Let this process have the descriptors for ``limits``; if it may not, have fewer connections that are pending."""
    held = limits.readers + limits.privileged + OTHER_FILES
    allowed = raise_open_files(held + limits.pending)
    if allowed >= held + limits.pending:
        return limits
    pending = max(MIN_PENDING, allowed - held)
    _logger.warning("the limit of open files is low for the connections", open_files=allowed, pending=pending)
    return replace(limits, pending=pending)


class HttpServer(uvicorn.Server):
    """uvicorn without a hand on the process's signals: :meth:`run_until` ends it."""

    limiter: "ConnectionLimiter[TimedProtocol]"
    _acceptors: Sequence[BatchAcceptor] = ()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the signals to the life cycle."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept connections ourselves."""
        await super().startup([])
        self._acceptors = [BatchAcceptor(listener, self._make_protocol) for listener in sockets or []]

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept nothing more, and answer what has begun."""
        for acceptor in self._acceptors:
            acceptor.stop()
        await super().shutdown(sockets)

    def _make_protocol(self) -> asyncio.Protocol:
        made: asyncio.Protocol = cast("Any", self.config.http_protocol_class)(
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )
        return made

    async def run_until(self, stopping: asyncio.Event, listener: socket.socket) -> None:
        """Serve ``listener`` until ``stopping``; then answer what has begun and return."""
        serving = asyncio.create_task(self.serve([listener]))
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
    trusted_proxies: Sequence[str] = (),
    privileged: Callable[[Scope], bool] | None = None,
) -> HttpServer:
    """A server for the public listener.

    Args:
        app: the application.
        limits: of open connections; a request beyond them is answered 503 (429: those of one address).
        drain_s: how long requests that have begun may take once it stops.
        trusted_proxies: addresses and networks whose X-Forwarded-For is believed.
        privileged: whether a request is one of those for which connections are reserved.
    """
    # Its start and end are logged by the process, and its warnings are about what strangers send: with a line for each
    # they could fill a disk.
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
    limits = _within_open_files(limits)
    limiter = ConnectionLimiter[TimedProtocol](limits)
    turns = (turns_of_loop(), turns_of_loop())
    config = uvicorn.Config(
        app,
        # Called as uvicorn's own protocols are.
        http=cast("Any", partial(TimedProtocol, limiter=limiter, turns=turns, privileged=privileged)),
        ws="none",
        lifespan="off",
        interface="asgi3",
        access_log=False,
        log_config=None,
        server_header=False,
        proxy_headers=bool(trusted_proxies),
        forwarded_allow_ips=list(trusted_proxies),
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=max(1, int(drain_s)),
        h11_max_incomplete_event_size=MAX_HEADER_BYTES,
    )
    server = HttpServer(config)
    server.limiter = limiter
    return server


CLOSE: Final = (b"connection", b"close")
"""With every answer: the next request on the connection might be for the listener, not the application."""


class AsgiFallback:
    """An application for everything below ``prefix``, whatever the method.

    The listener's own connections know GET and WebSocket upgrades alone, and hold little; a connection that asks for
    something below the prefix is handed over with what was received of it, and ends with the answer, as all of them do.
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
        """Whether a request that begins with ``head`` is for the application; None while that cannot be known."""
        _method, space, rest = head.partition(b" ")
        path, end, _ = rest.partition(b" ")
        if not space or not (end or len(path) > len(self._prefix)):
            return None
        return path == self._prefix or path.startswith((self._prefix + b"/", self._prefix + b"?"))

    def take(self, transport: asyncio.Transport, received: bytes) -> None:
        """The connection is the application's from now on."""
        protocol: Any = H11Protocol(self._config, self._state, {})
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        protocol.data_received(received)

    async def drain(self, seconds: float) -> None:
        """Let requests that have begun be answered."""
        for connection in list(self._state.connections):
            connection.shutdown()
        if self._state.tasks:
            await asyncio.wait(self._state.tasks, timeout=seconds)
