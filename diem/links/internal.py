"""Internal listener of every process: health, metrics, status, and channels such as the feed, behind the shared key."""

import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

import orjson
import structlog
from websockets.http11 import Request
from websockets.typing import Subprotocol

from diem.links import unix_sockets
from diem.links.listener import MAX_HEAD_BYTES, Listener, Reply, ServerConnection
from diem.process import metrics, security_log
from diem.process.auth import SharedKey
from diem.process.listeners import bind, check_bind
from diem.process.security_log import UNIX_PEER, SecurityEvent
from diem.protocol import feed

if TYPE_CHECKING:
    # Only processes that have one import the HTTP server behind it.
    from diem.links.http_server import AsgiFallback

HEAD_END: Final = b"\r\n\r\n"
MAX_MESSAGE_BYTES: Final = feed.MAX_BATCH_BYTES
"""Bytes of one incoming message; only proxies send long ones, when they subscribe for many clients."""


class ChannelHandler(Protocol):
    """Serves the links to one path, such as the feed. Called on the event loop; must not block."""

    subprotocol: str

    @property
    def accepting(self) -> bool:
        """New links are accepted now; otherwise they are answered 503, and their dialers retry."""
        ...

    def opened(self, connection: "InternalConnection") -> None:
        """Called when a link was opened."""
        ...

    def received(self, connection: "InternalConnection", data: bytes) -> None:
        """Called with every text message."""
        ...

    def blocked(self, connection: "InternalConnection") -> None:
        """Called when the write buffer is full: :attr:`InternalConnection.paused` is true until :meth:`resumed`."""
        ...

    def resumed(self, connection: "InternalConnection") -> None:
        """Called when the write buffer has drained after :meth:`blocked`."""
        ...

    def closed(self, connection: "InternalConnection") -> None:
        """Called once when a link closes; nothing may be written to it from then on."""
        ...


class InternalConnection(ServerConnection):
    """One connection to an internal listener: a request that is answered and closed, or a link to a channel."""

    __slots__ = ("_channel", "_early", "_listener", "paused")

    def __init__(self, listener: "InternalListener") -> None:
        super().__init__(subprotocols=(), max_size=MAX_MESSAGE_BYTES)
        self._listener = listener
        self._early = None if listener.fallback is None else b""
        """Bytes received before it is known whether the fallback answers; None once it is."""
        self._channel: ChannelHandler | None = None
        self.paused = False
        """The write buffer is full: write nothing until it has drained."""

    def data_received(self, data: bytes) -> None:
        """Handle data, or hand the connection to the fallback."""
        fallback = self._listener.fallback
        if self._early is None or fallback is None:
            super().data_received(data)
            return
        self._early += data
        wanted = fallback.wants(self._early)
        # The handshake timeout continues until the head is complete.
        if (wanted is None or (wanted and HEAD_END not in self._early)) and len(self._early) <= MAX_HEAD_BYTES:
            return
        early, self._early = self._early, None
        if wanted:
            self._cancel_deadline()
            fallback.adopt(self.transport, early)
        else:
            super().data_received(early)

    def on_request(self, request: Request) -> None:
        """Open a link to a channel, or answer a GET."""
        path = request.path.partition("?")[0]
        channel = self._listener.channels.get(path)
        if channel is not None and self._listener.authorised(request):
            self.server.available_subprotocols = [Subprotocol(channel.subprotocol)]
            if not channel.accepting:
                self.reply(Reply(503, b"not ready\n", headers={"Retry-After": "1"}))
            elif self.upgrade(request):
                self._channel = channel
                channel.opened(self)
            return
        reply = self._listener.answer(path, request)
        if reply.status == 401:
            peer = self.peer or UNIX_PEER
            security_log.record(SecurityEvent.WRONG_INTERNAL_KEY, address=peer, code=401, detail=path)
        self.reply(reply)

    def on_text(self, data: bytes) -> None:
        """Pass a message to the channel."""
        if self._channel is not None:
            self._channel.received(self, data)

    def on_closing(self) -> None:
        """Detach the channel before the close frame goes out: it writes to the transport directly."""
        if self._channel is not None:
            channel, self._channel = self._channel, None
            channel.closed(self)

    def pause_writing(self) -> None:
        """Report a slow peer to the channel, which waits or conflates."""
        self.paused = True
        if self._channel is not None:
            self._channel.blocked(self)

    def resume_writing(self) -> None:
        """Report to the channel that the peer has caught up."""
        self.paused = False
        if self._channel is not None:
            self._channel.resumed(self)


class InternalListener:
    """Serves ``/livez`` and ``/readyz`` to everybody, everything else only with the shared key.

    Args:
        host: address to bind; any address is allowed, because the key is always required.
        port: port to bind, 0 for a free one.
        key: the shared key.
        ready: returns why the process is not ready, None if it is.
        status: returns the process's status as JSON values.
        channels: path -> handler of the links to it.
        pages: path -> function that returns the reply to a GET, besides ``/metrics`` and ``/status``.
        fallback: application for all other paths; it checks the key itself.
        sockets: directory of Unix sockets: the same is served, with the same key, at ``<sockets>/<port>.sock``. If that
            fails, a warning is logged, and TCP alone is served.

    Raises:
        PortInUse, BindFailed: from the constructor.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        key: SharedKey,
        ready: Callable[[], str | None],
        status: Callable[[], dict[str, Any]],
        channels: Mapping[str, ChannelHandler] | None = None,
        pages: Mapping[str, Callable[[], Reply]] | None = None,
        fallback: "AsgiFallback | None" = None,
        sockets: Path | None = None,
    ) -> None:
        check_bind(host, authenticated=True, what="internal listener")
        self.fallback = fallback
        self.channels = channels or {}
        self._pages = {"/metrics": self._metrics, "/status": self._reply_status, **(pages or {})}
        self._key = key
        self._ready = ready
        self._status = status
        tcp = bind(host, port)
        # Bound by start(): only the owner of the port may replace the socket that is named after it.
        self._sockets = sockets if tcp.getsockname()[0] in unix_sockets.BOUND else None
        self._unix: tuple[socket.socket, Listener] | None = None
        self._listener = Listener(tcp, self._connection)

    @property
    def port(self) -> int:
        """The bound port."""
        return self._listener.port

    async def start(self) -> None:
        """Begin to accept connections."""
        await self._listener.start()
        if self._sockets is not None:
            try:
                sock = unix_sockets.bind(self._sockets, self.port)
            except OSError as error:
                why = error.strerror or str(error)
                log = structlog.get_logger("links")
                log.warning("no Unix socket: TCP only", directory=str(self._sockets), error=why)
            else:
                self._unix = (sock, Listener(sock, self._connection))
                await self._unix[1].start()

    def stop(self) -> None:
        """Accept no more connections; a repeat does nothing."""
        if self._unix is not None:
            (sock, listener), self._unix = self._unix, None
            # Before the port is released: its next owner could have made a socket of the same name.
            unix_sockets.remove(sock)
            listener.stop()
        self._listener.stop()

    def authorised(self, request: Request) -> bool:
        """Return whether the request carries the shared key, once."""
        values = request.headers.get_all("Authorization")
        return len(values) == 1 and self._key.matches(values[0])

    def answer(self, path: str, request: Request) -> Reply:
        """Return the reply to a GET that is not an upgrade."""
        if path == "/livez":
            return Reply(200, b"ok\n")
        if path == "/readyz":
            why_not = self._ready()
            return Reply(200, b"ok\n") if why_not is None else Reply(503, why_not.encode() + b"\n")
        if not self.authorised(request):
            return Reply(401, b"the shared key is needed\n", headers={"WWW-Authenticate": "Bearer"})
        page = self._pages.get(path)
        return page() if page is not None else Reply(404, b"not found\n")

    def _connection(self) -> InternalConnection:
        return InternalConnection(self)

    def _metrics(self) -> Reply:
        body, content_type = metrics.render()
        return Reply(200, body, content_type)

    def _reply_status(self) -> Reply:
        return Reply(200, orjson.dumps(self._status()), "application/json")
