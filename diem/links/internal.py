"""The internal listener of every process: health, metrics, status and links such as the feed, behind the key."""

import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

import orjson
import structlog
from websockets.http11 import Request
from websockets.typing import Subprotocol

from diem.links import local
from diem.links.listener import MAX_HEAD_BYTES, Listener, Reply, ServerConnection
from diem.process import metrics
from diem.process.auth import SharedKey
from diem.process.listeners import bind, check_bind
from diem.protocol import feed

if TYPE_CHECKING:
    # Who has one needs the HTTP server behind it; the others do without.
    from diem.links.http_server import AsgiFallback

HEAD_END: Final = b"\r\n\r\n"
MAX_MESSAGE_BYTES: Final = feed.MAX_BATCH_BYTES
"""Bytes of one message to a process; only proxies send long ones, when they subscribe for many clients."""


class ChannelHandler(Protocol):
    """What serves the links of one path: the feed, the watch of the metadata service, the proxies of a server."""

    subprotocol: str

    @property
    def accepting(self) -> bool:
        """Whether links are taken now; otherwise they are answered 503 and dial again."""
        ...

    def opened(self, connection: "InternalConnection") -> None:
        """Somebody has connected."""
        ...

    def received(self, connection: "InternalConnection", data: bytes) -> None:
        """A text message has arrived."""
        ...

    def blocked(self, connection: "InternalConnection") -> None:
        """The connection takes no more data: :attr:`InternalConnection.paused` is true until ``resumed``."""
        ...

    def resumed(self, connection: "InternalConnection") -> None:
        """The connection takes data again after a pause."""
        ...

    def closed(self, connection: "InternalConnection") -> None:
        """The link is gone."""
        ...


class InternalConnection(ServerConnection):
    """One connection to an internal listener: answered and closed, or a link."""

    __slots__ = ("_early", "_end", "_listener", "paused")

    def __init__(self, listener: "InternalListener") -> None:
        super().__init__(subprotocols=(), max_size=MAX_MESSAGE_BYTES)
        self._listener = listener
        self._early = None if listener.fallback is None else b""
        self._end: ChannelHandler | None = None
        self.paused = False
        """Whether the transport asks to wait: nothing more is written then."""

    def data_received(self, data: bytes) -> None:
        """Handle what arrives, or hand the connection over."""
        fallback = self._listener.fallback
        if self._early is None or fallback is None:
            super().data_received(data)
            return
        self._early += data
        wanted = fallback.wants(self._early)
        # The time in which a head must have come runs on until it has.
        if (wanted is None or (wanted and HEAD_END not in self._early)) and len(self._early) <= MAX_HEAD_BYTES:
            return
        early, self._early = self._early, None
        if wanted:
            self._answered_in_time()
            fallback.take(self.transport, early)
        else:
            super().data_received(early)

    def on_request(self, request: Request) -> None:
        """Answer a GET, or take a link."""
        path = request.path.partition("?")[0]
        end = self._listener.ends.get(path)
        if end is not None and self._listener.authorised(request):
            self.server.available_subprotocols = [Subprotocol(end.subprotocol)]
            if not end.accepting:
                self.reply(Reply(503, b"not ready\n", headers={"Retry-After": "1"}))
            elif self.upgrade(request):
                self._end = end
                end.opened(self)
            return
        self.reply(self._listener.answer(path, request))

    def on_text(self, data: bytes) -> None:
        """Hand a message on."""
        if self._end is not None:
            self._end.received(self, data)

    def on_closing(self) -> None:
        """Over for whoever serves the link: he writes to the transport by himself, and nothing may follow a close."""
        if self._end is not None:
            end, self._end = self._end, None
            end.closed(self)

    def pause_writing(self) -> None:
        """The other end is slow: what serves it waits, and conflates meanwhile."""
        self.paused = True
        if self._end is not None:
            self._end.blocked(self)

    def resume_writing(self) -> None:
        """Go on."""
        self.paused = False
        if self._end is not None:
            self._end.resumed(self)


class InternalListener:
    """Serves ``/livez`` and ``/readyz`` to everybody; all else, from ``/metrics`` to links, to holders of the key.

    Args:
        host: address to bind; internal listeners always ask for the key, so any address is allowed.
        port: port to bind, 0 for a free one.
        key: the shared key.
        ready: why the process is not ready, or None when it is.
        status: the process's status, as JSON values.
        ends: path -> what serves links there.
        pages: path -> what makes the answer to a GET, besides ``/metrics`` and ``/status``.
        fallback: an application for the paths that are neither; it looks after the key by itself.
        sockets: directory of Unix sockets: the same is served at ``<sockets>/<port>.sock``, to the same key. Without
            success there is a warning, and TCP alone.

    Raises:
        PortTaken: from the constructor.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        key: SharedKey,
        ready: Callable[[], str | None],
        status: Callable[[], dict[str, Any]],
        ends: Mapping[str, ChannelHandler] | None = None,
        pages: Mapping[str, Callable[[], Reply]] | None = None,
        fallback: "AsgiFallback | None" = None,
        sockets: Path | None = None,
    ) -> None:
        check_bind(host, authenticated=True, what="internal listener")
        self.fallback = fallback
        self.ends = ends or {}
        self._pages = {"/metrics": self._metrics, "/status": self._reply_status, **(pages or {})}
        self._key = key
        self._ready = ready
        self._status = status
        tcp = bind(host, port)
        # Bound by start(): a name in there is for who has the port.
        self._sockets = sockets if tcp.getsockname()[0] in local.BOUND else None
        self._local: tuple[socket.socket, Listener] | None = None
        self._listener = Listener(tcp, self._connection)

    @property
    def port(self) -> int:
        """The port that is bound."""
        return self._listener.port

    async def start(self) -> None:
        """Begin to accept connections."""
        await self._listener.start()
        if self._sockets is not None:
            try:
                sock = local.bind(self._sockets, self.port)
            except OSError as error:
                why = error.strerror or str(error)
                log = structlog.get_logger("links")
                log.warning("no Unix socket: TCP only", directory=str(self._sockets), error=why)
            else:
                self._local = (sock, Listener(sock, self._connection))
                await self._local[1].start()

    def stop(self) -> None:
        """Accept no more connections; a repeat does nothing."""
        if self._local is not None:
            (sock, listener), self._local = self._local, None
            # While the port is ours: another process with it could have a socket of the same name.
            local.remove(sock)
            listener.stop()
        self._listener.stop()

    def authorised(self, request: Request) -> bool:
        """Whether the request carries the shared key."""
        values = request.headers.get_all("Authorization")
        return len(values) == 1 and self._key.matches(values[0])

    def answer(self, path: str, request: Request) -> Reply:
        """The answer to a GET that is not an upgrade."""
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
