"""Server side: listening sockets, WebSocket upgrades, plain HTTP replies to GET, and a bound on slow handshakes.

``Listener`` leaves accepting to the event loop. ``BatchAcceptor`` accepts many connections a turn: libuv accepts one,
so while a herd keeps turns busy, hundreds wait in the kernel's queue, the writer's among them, for seconds.
"""

import asyncio
import errno
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Final

import structlog
from websockets.http11 import Request, Response
from websockets.protocol import CONNECTING
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol

from diem.links.connection import SILENT_LOGGER, Connection
from diem.process.listeners import BACKLOG

MAX_HEAD_BYTES: Final = 16 * 1024
"""Bytes of a request: the library alone would take 1 MiB (docs/reliability.md S17)."""
HANDSHAKE_TIMEOUT_S: Final = 10.0
"""Seconds after which a connection that has not sent its request is cut (docs/reliability.md S16)."""


@dataclass(frozen=True, slots=True)
class Reply:
    """An HTTP answer; the connection is closed after it."""

    status: int
    body: bytes = b""
    content_type: str = "text/plain; charset=utf-8"
    headers: Mapping[str, str] = field(default_factory=dict)


class ServerConnection(Connection):
    """A connection that a client has opened. Its :meth:`on_request` says what becomes of it."""

    __slots__ = ("_deadline", "_head")

    def __init__(self, *, subprotocols: Sequence[Subprotocol], max_size: int) -> None:
        super().__init__(ServerProtocol(subprotocols=subprotocols, max_size=max_size, logger=SILENT_LOGGER))
        self._deadline: asyncio.TimerHandle | None = None
        self._head = 0

    @property
    def server(self) -> ServerProtocol:
        """The protocol, as what it is."""
        protocol = self.protocol
        assert isinstance(protocol, ServerProtocol)  # noqa: S101 - given in the constructor
        return protocol

    @property
    def peer(self) -> str:
        """The address of the other end of the TCP connection; empty on a Unix socket."""
        peername = self.transport.get_extra_info("peername")
        return str(peername[0]) if peername else ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the time that the peer has for its request."""
        super().connection_made(transport)
        self._deadline = asyncio.get_running_loop().call_later(HANDSHAKE_TIMEOUT_S, self._cut_if_silent)

    def data_received(self, data: bytes) -> None:
        """Bound the request, then handle what arrives."""
        if self.protocol.state is CONNECTING:
            self._head += len(data)
            if self._head > MAX_HEAD_BYTES:
                self.abort()
                return
        super().data_received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the time that the peer had."""
        self._answered_in_time()
        super().connection_lost(exc)

    def upgrade(self, request: Request) -> bool:
        """Answer a valid opening handshake with 101 and return True, an invalid one with its error and False."""
        response = self.server.accept(request)
        self._send(response)
        # The protocol's suspended parser holds the request as long as the connection lives.
        request.headers.clear()
        return response.status_code == HTTPStatus.SWITCHING_PROTOCOLS

    def reply(self, reply: Reply) -> None:
        """Answer with plain HTTP and end the connection."""
        response = self.server.reject(reply.status, "")
        response.body = reply.body
        del response.headers["Content-Length"]
        del response.headers["Content-Type"]
        response.headers["Content-Length"] = str(len(reply.body))
        response.headers["Content-Type"] = reply.content_type
        for name, value in reply.headers.items():
            response.headers[name] = value
        self._send(response)

    def _send(self, response: Response) -> None:
        self._answered_in_time()
        self.server.send_response(response)
        self.flush()

    def _answered_in_time(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _cut_if_silent(self) -> None:
        if self.protocol.state is CONNECTING:
            self.abort()


class Listener:
    """A listening socket whose connections are made by ``factory``.

    :meth:`start` begins to accept; :meth:`stop` stops accepting and leaves the connections alone.

    Args:
        sock: bound, not listening yet.
        factory: makes the protocol of each connection.
        send_buffer: bytes of kernel send buffer per connection (the kernel doubles it), which bounds what a client
            that does not read holds there; None leaves it to the kernel.
    """

    def __init__(
        self, sock: socket.socket, factory: Callable[[], asyncio.Protocol], *, send_buffer: int | None = None
    ) -> None:
        if send_buffer is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)
        self._socket = sock
        self._factory = factory
        self._server: asyncio.Server | None = None

    @property
    def port(self) -> int:
        """The port that is bound."""
        return int(self._socket.getsockname()[1])

    async def start(self) -> None:
        """Begin to accept connections."""
        loop = asyncio.get_running_loop()
        if self._socket.family is socket.AF_UNIX:
            self._server = await loop.create_unix_server(self._factory, sock=self._socket, backlog=BACKLOG)
        else:
            self._server = await loop.create_server(self._factory, sock=self._socket, backlog=BACKLOG)

    def stop(self) -> None:
        """Accept no more connections; a repeat does nothing."""
        if self._server is not None:
            self._server.close()
            self._server = None
        self._socket.close()


ACCEPT_BATCH: Final = 64
"""Connections that are accepted in one turn, which takes some milliseconds."""
EXHAUSTED_PAUSE_S: Final = 1.0
"""After which it is tried again, when there was no descriptor for a connection."""
_EXHAUSTED: Final = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}

_logger = structlog.get_logger(__name__)


class BatchAcceptor:
    """Accepts what comes to ``listener``, a non-blocking socket, until :meth:`stop`; the socket stays open."""

    def __init__(self, listener: socket.socket, make_protocol: Callable[[], asyncio.Protocol]) -> None:
        self._listener = listener
        self._make_protocol = make_protocol
        self._loop = asyncio.get_running_loop()
        self._opening: set[asyncio.Task[object]] = set()
        self._rest: asyncio.TimerHandle | None = None
        self._start()

    def stop(self) -> None:
        """Accept nothing more; what was accepted goes on."""
        self._loop.remove_reader(self._listener)
        if self._rest is not None:
            self._rest.cancel()

    def _start(self) -> None:
        self._rest = None
        self._loop.add_reader(self._listener, self._accept)

    def _accept(self) -> None:
        for _ in range(ACCEPT_BATCH):
            try:
                connection, _address = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _EXHAUSTED:
                    raise
                _logger.warning("no connection can be accepted now", error=error.strerror)
                self._loop.remove_reader(self._listener)
                self._rest = self._loop.call_later(EXHAUSTED_PAUSE_S, self._start)
                return
            connection.setblocking(False)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            opening = self._loop.create_task(self._open(connection))
            self._opening.add(opening)
            opening.add_done_callback(self._opening.discard)

    async def _open(self, connection: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(self._make_protocol, connection)
        except OSError:  # it has gone already
            connection.close()
