"""Server side: listening sockets, WebSocket upgrades, plain HTTP replies to GET, and a bound on slow handshakes.

``BatchAcceptor`` opens some connections in each turn of the loop; the others wait. So the rate of new clients follows
from what one costs and from the time that other work leaves: after an outage they have the whole core, and delay
others' updates by a batch in each turn at most. libuv would accept one a turn, of which there are few where other work
fills them: thousands, perhaps a writer among them, would wait for minutes. The newest is opened first: where more come
than can be opened, those in the order of a queue would all be opened just before they give up.
"""

import asyncio
import contextlib
import errno
import resource
import socket
import ssl
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from typing import Final, Protocol, cast, runtime_checkable

import structlog
from websockets.exceptions import NegotiationError
from websockets.extensions import ServerExtensionFactory
from websockets.http11 import Request, Response
from websockets.protocol import CONNECTING
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol

from diem.links.connection import CLOSE_TIMEOUT_S, HIGH_WATER_BYTES, SILENT_LOGGER, Connection
from diem.links.handshakes import HandshakeEnd, HandshakeLimiter
from diem.process import metrics, security_log
from diem.process.listeners import OTHER_FILES
from diem.process.metrics import Sample
from diem.process.security_log import SecurityEvent
from diem.process.tls import ServerTls

MAX_HEAD_BYTES: Final = 16 * 1024
"""Longest request head in bytes; the library's own bound is 1 MiB (docs/reliability.md S17)."""
HANDSHAKE_TIMEOUT_S: Final = 10.0
"""Seconds for a connection to send a complete request before it is aborted (docs/reliability.md S16)."""


@dataclass(frozen=True, slots=True)
class Reply:
    """An HTTP response that ends its connection."""

    status: int
    body: bytes = b""
    content_type: str = "text/plain; charset=utf-8"
    headers: Mapping[str, str] = field(default_factory=dict)


class ServerConnection(Connection):
    """A connection opened by a client. :meth:`on_request` must answer with :meth:`upgrade` or :meth:`reply`."""

    __slots__ = ("_deadline", "_head", "lower")

    def __init__(
        self,
        *,
        subprotocols: Sequence[Subprotocol],
        max_size: int,
        extensions: Sequence[ServerExtensionFactory] = (),
    ) -> None:
        super().__init__(_protocol(subprotocols, max_size, extensions))
        self.lower: asyncio.Transport | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._head = 0

    @property
    def server(self) -> ServerProtocol:
        """The protocol with its type."""
        protocol = self.protocol
        assert isinstance(protocol, ServerProtocol)  # noqa: S101 - given in the constructor
        return protocol

    @property
    def peer(self) -> str:
        """Address of the peer; empty on a Unix socket."""
        peername = self.transport.get_extra_info("peername")
        return str(peername[0]) if peername else ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the handshake timeout; with TLS, divide the write buffer's bound between both layers."""
        super().connection_made(transport)
        if self.lower is not None:
            for layer in (self.lower, self.transport):
                layer.set_write_buffer_limits(high=HIGH_WATER_BYTES // 2)
        self._deadline = asyncio.get_running_loop().call_later(HANDSHAKE_TIMEOUT_S, self._on_deadline)

    def receive(self, data: bytes) -> None:
        """Handle data, and refuse too long a request head."""
        if self.protocol.state is CONNECTING:
            self._head += len(data)
            if self._head > MAX_HEAD_BYTES and not self.protocol.eof_sent:
                self.reply(Reply(431, b"the request head is too long\n"))
                return
        super().receive(data)

    def on_invalid_handshake(self) -> None:
        """Answer an invalid request: a load balancer takes a closed connection for a failed server."""
        if self._deadline is not None:
            self._cancel_deadline()
            self.transport.write(_BAD_REQUEST)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the handshake timeout."""
        self._cancel_deadline()
        super().connection_lost(exc)

    def unsent(self) -> int:
        """Return the unsent bytes buffered in user space, with TLS in both layers."""
        waiting = super().unsent()
        return waiting if self.lower is None else waiting + self.lower.get_write_buffer_size()

    def upgrade(self, request: Request) -> bool:
        """Answer a valid opening handshake with 101 and return True, an invalid one with its error and False."""
        response = self.server.accept(request)
        self._send(response)
        # The protocol's suspended parser keeps the request for the life of the connection.
        request.headers.clear()
        return response.status_code == HTTPStatus.SWITCHING_PROTOCOLS

    def reply(self, reply: Reply) -> None:
        """Answer with plain HTTP and close the connection."""
        response = self.server.reject(reply.status, "")
        response.body = reply.body
        del response.headers["Content-Length"]
        del response.headers["Content-Type"]
        response.headers["Content-Length"] = str(len(reply.body))
        response.headers["Content-Type"] = reply.content_type
        for name, value in reply.headers.items():
            response.headers[name] = value
        self._send(response)

    def answer_and_continue(self, response: bytes, *, subprotocols: Sequence[Subprotocol], max_size: int) -> None:
        """Write a whole response, and expect another request by the same deadline."""
        # The library's protocol handles one request.
        self.protocol = _protocol(subprotocols, max_size)
        self._head = 0
        self.transport.write(response)

    def _send(self, response: Response) -> None:
        self._cancel_deadline()
        self.server.send_response(response)
        self.flush()

    def _cancel_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _on_deadline(self) -> None:
        if self.protocol.state is CONNECTING:
            self.abort()


_BAD_REQUEST: Final = (
    b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Type: text/plain; charset=utf-8\r\n"
    b"Content-Length: 26\r\n\r\nthis is no valid request.\n"
)


class _Protocol(ServerProtocol):
    """A handshake that names the expected subprotocol to a client without one."""

    def select_subprotocol(self, subprotocols: Sequence[Subprotocol]) -> Subprotocol | None:
        """Return the subprotocol to use; raise ``NegotiationError`` without a common one."""
        if self.available_subprotocols and not subprotocols:
            raise NegotiationError(f"missing subprotocol; expected {' or '.join(self.available_subprotocols)}")
        return super().select_subprotocol(subprotocols)


def _protocol(
    subprotocols: Sequence[Subprotocol], max_size: int, extensions: Sequence[ServerExtensionFactory] = ()
) -> ServerProtocol:
    return _Protocol(subprotocols=subprotocols, extensions=extensions or None, max_size=max_size, logger=SILENT_LOGGER)


class Listener:
    """Listening sockets whose connections are made by ``factory``.

    :meth:`start` starts accepting; :meth:`stop` stops accepting and leaves open connections alone.

    Args:
        sockets: bound to one port, of one address each (see ``bind_all``).
        factory: makes the protocol of each connection.
        send_buffer: bytes of kernel send buffer per connection (doubled by the kernel), the bound of data held there
            for a client that does not read; None: the kernel's default.
        tls: the certificate of the listener; None: connections are not encrypted.
        handshakes: admission of TLS handshakes; None: the usual limits of a public listener.
        is_busy: returns whether connections must wait in the kernel's queue now.
    """

    def __init__(
        self,
        sockets: Sequence[socket.socket],
        factory: Callable[[], asyncio.Protocol],
        *,
        send_buffer: int | None = None,
        tls: ServerTls | None = None,
        handshakes: HandshakeLimiter | None = None,
        is_busy: Callable[[], bool] = lambda: False,
    ) -> None:
        if send_buffer is not None:
            for sock in sockets:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)
        self._sockets = sockets
        self._factory = factory
        self._tls = tls
        self._handshakes = handshakes
        self._is_busy = is_busy
        self._acceptors: list[BatchAcceptor] = []

    @property
    def port(self) -> int:
        """The bound port."""
        return int(self._sockets[0].getsockname()[1])

    def start(self) -> None:
        """Start accepting connections; needs a running loop."""
        for sock in self._sockets:
            self._acceptors.append(BatchAcceptor(sock, self._factory, self._tls, self._handshakes, self._is_busy))

    @property
    def sockets(self) -> Sequence[socket.socket]:
        """The listening sockets."""
        return self._sockets

    def stop(self) -> None:
        """Stop accepting connections; idempotent."""
        for sock in self._sockets:
            # Also where a supervisor has the same socket; already closed or stopped by it otherwise.
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        while self._acceptors:
            self._acceptors.pop().stop()
        for sock in self._sockets:
            sock.close()


ACCEPT_BATCH: Final = 64
"""Connections opened per turn of the loop: 20 ms of work if all are clients that connect and subscribe."""
TLS_BATCH: Final = 16
"""The same with TLS, whose handshake takes 1 to 3 ms."""
MAX_WAITING: Final = 4096
"""Accepted connections that wait to be opened; beyond, and without spare files, others wait in the kernel's queue."""
SPARE_FILES: Final = OTHER_FILES // 2
"""Files that are left to the rest of the process."""
EXHAUSTED_PAUSE_S: Final = 1.0
"""Pause of accepting when out of file descriptors or buffers."""
BUSY_PAUSE_S: Final = 0.005
"""Pause of accepting while the process has enough."""
MAX_TLS_HANDSHAKES: Final = 1024
"""TLS handshakes in progress, each for at most :data:`HANDSHAKE_TIMEOUT_S`; beyond, the oldest is aborted."""
_GONE_IN_BATCH: Final = 16
"""Connections whose client is gone that take the place of one that is opened."""
_ESTABLISHED: Final = 1
"""State of TCP (``include/net/tcp_states.h``): neither side has closed."""
_EXHAUSTED: Final = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
_PAUSED: Final = errno.EINVAL
"""A supervisor has stopped the listening, until the next heartbeat."""

_logger = structlog.get_logger(__name__)


@runtime_checkable
class LayeredProtocol(Protocol):
    """A protocol that gets the TCP transport below a TLS transport before :meth:`connection_made`."""

    lower: asyncio.Transport | None
    """Buffers encrypted data, in addition to the TLS transport's buffer; None without TLS."""


class _Collector(asyncio.Protocol):
    """Keeps incoming data until another protocol takes over: one or two reads' worth."""

    def __init__(self) -> None:
        self.data = b""

    def data_received(self, data: bytes) -> None:
        self.data += data


async def _start_tls(
    lower: asyncio.Transport, encrypted: _Collector, decrypted: _Collector, context: ssl.SSLContext
) -> asyncio.Transport:
    """Do the handshake on ``lower``, with the start already read by ``encrypted``; return the TLS transport."""
    loop = asyncio.get_running_loop()
    starting = loop.create_task(
        loop.start_tls(
            lower,
            decrypted,
            context,
            server_side=True,
            ssl_handshake_timeout=HANDSHAKE_TIMEOUT_S,
            ssl_shutdown_timeout=CLOSE_TIMEOUT_S,
        )
    )

    def feed() -> None:
        if encrypted.data and not lower.is_closing():
            layer = cast("asyncio.BufferedProtocol", lower.get_protocol())
            memoryview(layer.get_buffer(len(encrypted.data)))[: len(encrypted.data)] = encrypted.data
            layer.buffer_updated(len(encrypted.data))

    # After the calls that the task schedules in its first turn: the TLS layer has its transport, and has read nothing.
    loop.call_soon(loop.call_soon, feed)
    upper = await starting
    assert upper is not None  # noqa: S101 - only of a closing transport, which raises
    return upper


def _is_gone(connection: socket.socket) -> bool:
    """Return whether the peer has closed a connection."""
    if connection.family is socket.AF_UNIX or not hasattr(socket, "TCP_INFO"):
        return False  # Linux alone has it in this form
    state = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)
    return state[0] != _ESTABLISHED


class BatchAcceptor:
    """Accepts connections on ``listener``, a listening non-blocking socket, until :meth:`stop`; it stays open.

    Of those that wait, the newest is opened first.

    With ``tls``, the protocol is created after the TLS handshake. A connection refused by ``handshakes`` is closed
    unread.
    """

    def __init__(
        self,
        listener: socket.socket,
        make_protocol: Callable[[], asyncio.Protocol],
        tls: ServerTls | None = None,
        handshakes: HandshakeLimiter | None = None,
        is_busy: Callable[[], bool] = lambda: False,
    ) -> None:
        self._listener = listener
        self._make_protocol = make_protocol
        self._tls = tls
        self._handshakes = handshakes or HandshakeLimiter("public")
        self._is_busy = is_busy
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[tuple[socket.socket, str]] = deque()
        """Accepted connections and their addresses, the oldest first."""
        self._opening: dict[asyncio.Task[bool], None] = {}
        """Connections that are being opened, the oldest first."""
        self._pause: asyncio.TimerHandle | None = None
        self._unregister = None if tls is None else metrics.register(lambda: self._samples(tls))
        self._start()

    def stop(self) -> None:
        """Stop accepting; accepted connections continue. Idempotent."""
        self._loop.remove_reader(self._listener)
        if self._pause is not None:
            self._pause.cancel()
        if self._unregister is not None:
            self._unregister()
            self._unregister = None
        while self._waiting:
            self._waiting.popleft()[0].close()

    def _samples(self, tls: ServerTls) -> Iterable[Sample]:
        yield from self._handshakes.samples()
        yield metrics.CERTIFICATE_EXPIRY.sample(tls.expires_s, self._handshakes.listener)

    def _start(self) -> None:
        self._pause = None
        self._loop.add_reader(self._listener, self._accept)
        if self._waiting:
            self._accept()

    def _accept(self) -> None:
        if self._is_busy():
            self._pause_for(BUSY_PAUSE_S)
            return
        pause = self._accept_all()
        left = _GONE_IN_BATCH * (ACCEPT_BATCH if self._tls is None else TLS_BATCH)
        while left > 0 and self._waiting:
            connection, address = self._waiting.pop()
            if _is_gone(connection):
                # It gave up while it waited.
                connection.close()
                left -= 1
                continue
            left -= _GONE_IN_BATCH
            if self._tls is not None and not self._may_begin(address):
                connection.close()
                continue
            opening = self._loop.create_task(self._open(connection))
            self._opening[opening] = None
            opening.add_done_callback(partial(self._opened, connection, address))
        if self._waiting:
            pause = 0.0  # the next turn, also if no other comes
        if pause is not None:
            self._pause_for(pause)

    def _accept_all(self) -> float | None:
        """Accept what waits in the kernel's queue; after an error that time alone mends, return a pause in seconds."""
        while self._waiting and _is_gone(self._waiting[0][0]):
            self._waiting.popleft()[0].close()
        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        number = 0
        while len(self._waiting) < MAX_WAITING and (number < files - SPARE_FILES or files == resource.RLIM_INFINITY):
            try:
                connection, name = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                break
            except OSError as error:
                if error.errno not in {*_EXHAUSTED, _PAUSED}:
                    raise
                if error.errno != _PAUSED:
                    _logger.warning("no connection can be accepted now", error=error.strerror)
                return EXHAUSTED_PAUSE_S
            number = connection.fileno()  # the kernel takes the lowest that is free
            connection.setblocking(False)
            if connection.family is not socket.AF_UNIX:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._waiting.append((connection, str(name[0]) if isinstance(name, tuple) else ""))
        return None

    def _pause_for(self, seconds: float) -> None:
        self._loop.remove_reader(self._listener)
        self._pause = self._loop.call_later(seconds, self._start)

    def _may_begin(self, address: str) -> bool:
        """Return whether a TLS handshake may begin, making room for it."""
        refusal = self._handshakes.begin(address, self._loop.time())
        if refusal is not None:
            _record_refusal(address, refusal.reason)
            return False
        if len(self._opening) >= MAX_TLS_HANDSHAKES:
            # A real client continues its handshake at once.
            oldest = next(iter(self._opening))
            del self._opening[oldest]
            oldest.cancel()
        return True

    async def _open(self, connection: socket.socket) -> bool:
        """Open a connection; return False if its client is already gone or its TLS handshake failed."""
        try:
            if self._tls is None:
                await self._loop.connect_accepted_socket(self._make_protocol, connection)
            else:
                await self._open_tls(connection, self._tls.context)
        except OSError:
            return False
        return True

    async def _open_tls(self, connection: socket.socket, context: ssl.SSLContext) -> None:
        # In two steps, as a TLS transport hides the transport below it and its buffer.
        encrypted, decrypted = _Collector(), _Collector()
        lower, _ = await self._loop.connect_accepted_socket(lambda: encrypted, connection)
        try:
            upper = await _start_tls(lower, encrypted, decrypted, context)
        except BaseException:
            lower.abort()
            raise
        protocol = self._make_protocol()
        if isinstance(protocol, LayeredProtocol):
            protocol.lower = lower
        upper.set_protocol(protocol)
        protocol.connection_made(upper)
        if decrypted.data:
            protocol.data_received(decrypted.data)

    def _opened(self, connection: socket.socket, address: str, opening: "asyncio.Task[bool]") -> None:
        # Not in the task, which may be cancelled before it starts.
        self._opening.pop(opening, None)
        outcome = HandshakeEnd.EVICTED
        if not opening.cancelled():
            outcome = HandshakeEnd.COMPLETED if opening.result() else HandshakeEnd.FAILED
        if outcome is not HandshakeEnd.COMPLETED:
            connection.close()
        if self._tls is not None:
            self._handshakes.end(address, outcome)
            if outcome is HandshakeEnd.EVICTED:
                _record_refusal(address, "handshake not finished, and too many others wait")


def _record_refusal(address: str, reason: str) -> None:
    security_log.refuse(SecurityEvent.HANDSHAKE_REFUSED, "TLS", address=address, code=0, detail=f"TLS: {reason}")
