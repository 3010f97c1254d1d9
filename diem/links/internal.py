"""Internal listener of every process: health; behind keys metrics, status, and channels such as the feed."""

import asyncio
import socket
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

import orjson
import structlog
from websockets.http11 import Request
from websockets.typing import Subprotocol

from diem.links import health, mutual_auth, refused_peers, unix_sockets
from diem.links.connection_limits import GRACE_S, Pool
from diem.links.handshakes import HandshakeLimiter, HandshakeLimits
from diem.links.health import health_reply
from diem.links.listener import MAX_HEAD_BYTES, Listener, Reply, ServerConnection
from diem.links.mutual_auth import HEAD_END, ChallengeRefused, ListenerAuth, address_of
from diem.process import metrics, security_log
from diem.process.auth import SharedKey
from diem.process.key_ring import KeyRing, KeyRole
from diem.process.listeners import bind, check_bind
from diem.process.security_log import UNIX_PEER, SecurityEvent
from diem.process.tls import ServerTls
from diem.protocol import compatibility, feed

if TYPE_CHECKING:
    # Only processes with a fallback import its HTTP server.
    from diem.links.http_server import AsgiFallback

MAX_MESSAGE_BYTES: Final = feed.MAX_BATCH_BYTES
"""Maximum size of an incoming message; only proxies send long ones, when subscribing for many clients."""
ROLES: Final = {
    "/feed": {KeyRole.FEED},
    "/interest": {KeyRole.FEED},
    "/ws": {KeyRole.FEED},
    "/v1/keys/reads": {KeyRole.FEED},
    "/watch": {KeyRole.METADATA},
    "/v1/partitions": {KeyRole.METADATA},
    "/metrics": {KeyRole.METRICS},
    "/status": {KeyRole.METRICS, KeyRole.METADATA},
}
"""Roles with access to a path, besides the role admin, with access to all."""
READS: Final = "/v1/data"
"""Path before the name of an endpoint whose retained data is read."""
MAX_UNPROVED: Final = 1024
"""Maximum number of TCP connections without a proved key; authenticated links do not count."""
MAX_UNPROVED_PER_ADDRESS: Final = 256
"""Several proxies and bridges may share an address."""
MAX_LOGGED_PATH: Final = 64
"""Characters of the path in a line about a refused client."""
BEARER_PATHS: Final = frozenset({"/metrics", "/status"})
"""Paths that accept a key as a bearer token, the only scheme of monitoring systems."""


class ChannelHandler(Protocol):
    """Handles the links to one path, such as the feed. Called on the event loop; must not block."""

    subprotocol: str

    @property
    def accepting(self) -> bool:
        """True if new links are accepted now; otherwise they get a 503, and their dialers retry."""
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
        """Called once when a link closes; nothing may be written to it afterwards."""
        ...


class InternalConnection(ServerConnection):
    """One connection to an internal listener: a single request, or a link to a channel.

    A challenge may come before the request (:mod:`~diem.links.mutual_auth`).
    """

    __slots__ = ("_auth", "_channel", "_early", "_listener", "paused")

    def __init__(self, listener: "InternalListener") -> None:
        super().__init__(subprotocols=(), max_size=MAX_MESSAGE_BYTES)
        self._listener = listener
        self._early = None if listener.fallback is None else b""
        """Bytes received before it is known whether the fallback answers; None once it is."""
        self._auth: ListenerAuth | None = None
        """The challenge that was answered, until the request has come."""
        self._channel: ChannelHandler | None = None
        self.paused = False
        """The write buffer is full: write nothing until it has drained."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Count the connection until it proves a key, or refuse it with 503."""
        super().connection_made(transport)
        refusal = self._listener.admit_unproved(self)
        if refusal is not None:
            self.reply(refusal)
            # Without waiting for the client, unlike other replies.
            self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Uncount the connection."""
        self._listener.unproved.leave(self)
        super().connection_lost(exc)

    @property
    def drained(self) -> bool:
        """True: the connection may always be evicted, having proved no key."""
        return True

    def evict(self) -> None:
        """Abort the connection, which has proved no key in its first second, in favour of another."""
        self._listener.record_unproved(self, "no proof of a key in time")
        self.abort()

    def receive(self, data: bytes) -> None:
        """Handle data, or hand the connection to the fallback."""
        if self.transport.is_closing():
            return  # refused
        fallback = self._listener.fallback
        if self._early is None or fallback is None:
            super().receive(data)
            return
        self._early += data
        wanted = fallback.wants(self._early)
        # The handshake timeout continues until the head is complete.
        if (wanted is None or (wanted and HEAD_END not in self._early)) and len(self._early) <= MAX_HEAD_BYTES:
            return
        early, self._early = self._early, None
        if not wanted:
            super().receive(early)
            return
        method, target, given = _head(early)
        if refusal := self._listener.refusal(method, target, given, self._auth):
            self._refuse(refusal, target.partition("?")[0])
        elif refusal := self._incompatible(target, self._auth):
            self.reply(refusal)
        else:
            self._cancel_deadline()
            self._listener.unproved.leave(self)
            fallback.adopt(self.transport, early)

    def on_request(self, request: Request) -> None:
        """Answer a challenge, open a link to a channel, or answer a GET."""
        path = request.path.partition("?")[0]
        given = request.headers.get_all("Authorization")
        if path == mutual_auth.PATH:
            self._on_challenge(given)
            return
        listener = self._listener
        auth, self._auth = self._auth, None
        if not listener.is_public(path):
            if refusal := listener.refusal("GET", request.path, given, auth):
                self._refuse(refusal, path)
                return
            if refusal := self._incompatible(path, auth):
                self.reply(refusal)
                return
            listener.unproved.leave(self)
        channel = listener.channels.get(path)
        if channel is None:
            self.reply(listener.answer(path))
            return
        self.server.available_subprotocols = [Subprotocol(channel.subprotocol)]
        if not channel.accepting:
            self.reply(Reply(503, b"not ready\n", headers={"Retry-After": "1"}))
        elif self.upgrade(request):
            self._channel = channel
            channel.opened(self)

    def _on_challenge(self, given: Sequence[str]) -> None:
        try:
            if self._auth is not None or len(given) != 1:
                raise ChallengeRefused("a connection begins with one challenge")
            self._auth = self._listener.challenge(given[0], address_of(self.transport.get_extra_info("sockname")))
        except ChallengeRefused as error:
            self._refuse(_unauthorised(str(error)), mutual_auth.PATH)
            return
        self._early = None if self._listener.fallback is None else b""
        self.answer_and_continue(self._auth.answer(), subprotocols=(), max_size=MAX_MESSAGE_BYTES)

    def _incompatible(self, target: str, auth: ListenerAuth | None) -> Reply | None:
        """Return the reply to an authenticated client without a protocol version in common."""
        if auth is None or target in mutual_auth.OF_ANY_VERSION or compatibility.OURS.speaks_with(auth.peer_versions):
            return None
        path = target.partition("?")[0][:MAX_LOGGED_PATH]
        refused_peers.refuse_versions(f"the client of {path} at {self.peer or 'this machine'}", auth.peer_versions)
        ours = compatibility.OURS
        return Reply(400, f"this listener speaks version {ours} of the internal protocol\n".encode())

    def _refuse(self, reply: Reply, path: str) -> None:
        peer = self.peer or UNIX_PEER
        detail = f"{path}: {reply.body.decode().strip()}"
        security_log.record(SecurityEvent.WRONG_INTERNAL_KEY, address=peer, code=reply.status, detail=detail)
        self.reply(reply)

    def on_text(self, data: bytes) -> None:
        """Pass a message to the channel."""
        if self._channel is not None:
            self._channel.received(self, data)

    def on_closing(self) -> None:
        """Detach the channel, which writes to the transport directly, before the close frame goes out."""
        if self._channel is not None:
            channel, self._channel = self._channel, None
            channel.closed(self)

    def pause_writing(self) -> None:
        """Notify the channel of a slow peer, so that it waits or conflates."""
        self.paused = True
        if self._channel is not None:
            self._channel.blocked(self)

    def resume_writing(self) -> None:
        """Notify the channel that the peer has caught up."""
        self.paused = False
        if self._channel is not None:
            self._channel.resumed(self)


class InternalListener:
    """Serves ``/livez`` and ``/readyz`` to everybody, everything else only to holders of the key.

    Args:
        host: address to bind; any is allowed, as the key is always required.
        port: port to bind, 0 for a free one.
        key: the keys that are accepted.
        addresses: further addresses (``host:port``) at which clients reach it behind address translation.
        ready: returns the reason why the process is not ready, None if it is.
        status: returns the process's status as JSON values.
        channels: path -> handler of the links to it.
        pages: path -> function that returns the reply to a GET, besides ``/metrics`` and ``/status``.
        reads: path -> function that returns the reply to a GET of what follows the path, such as an endpoint.
        fallback: application for all paths below its prefix.
        sockets: directory of Unix sockets: the same is served, with the same key, at ``<sockets>/<port>.sock``. If that
            fails, a warning is logged, and only TCP is served.
        tls: certificate of the TCP listener; None: links to it are not encrypted.
        reserved: a supervisor reserves the port for this process (see ``bind``).

    Raises:
        PortInUse, AddressUnavailable, BindFailed: from the constructor.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        key: KeyRing | SharedKey,
        ready: Callable[[], str | None],
        status: Callable[[], dict[str, Any]],
        channels: Mapping[str, ChannelHandler] | None = None,
        pages: Mapping[str, Callable[[], Reply]] | None = None,
        reads: Mapping[str, Callable[[str], Reply]] | None = None,
        fallback: "AsgiFallback | None" = None,
        sockets: Path | None = None,
        addresses: Collection[str] = (),
        tls: ServerTls | None = None,
        reserved: bool = False,
    ) -> None:
        check_bind(host, authenticated=True, what="internal listener")
        self.fallback = fallback
        self._reads = reads or {}
        self.channels = channels or {}
        self._pages = {"/metrics": self._metrics, "/status": self._reply_status, **(pages or {})}
        self._keys = KeyRing.of(key)
        self._addresses = frozenset(addresses)
        self._ready = ready
        self._status = status
        self.unproved = Pool[InternalConnection](
            MAX_UNPROVED, lambda _address: MAX_UNPROVED_PER_ADDRESS, grace_s=GRACE_S
        )
        """TCP connections that have not proved a key. Unix sockets are open to this user alone."""
        tcp = bind(host, port, reserved=reserved)
        # Bound by start(): only the owner of the port may replace the socket that is named after it.
        self._sockets = sockets if tcp.getsockname()[0] in unix_sockets.BOUND else None
        self._unix: tuple[socket.socket, Listener] | None = None
        handshakes = HandshakeLimiter("internal", HandshakeLimits.of_links(MAX_UNPROVED_PER_ADDRESS))
        self._listener = Listener((tcp,), self._connection, tls=tls, handshakes=handshakes)

    @property
    def port(self) -> int:
        """The bound port."""
        return self._listener.port

    def start(self) -> None:
        """Begin to accept connections."""
        self._listener.start()
        if self._sockets is not None:
            try:
                sock = unix_sockets.bind(self._sockets, self.port)
            except OSError as error:
                why = error.strerror or str(error)
                log = structlog.get_logger("links")
                log.warning("no Unix socket: TCP only", directory=str(self._sockets), error=why)
            else:
                self._unix = (sock, Listener((sock,), self._connection))
                self._unix[1].start()

    def stop(self) -> None:
        """Accept no more connections; a repeat does nothing."""
        if self._unix is not None:
            (sock, listener), self._unix = self._unix, None
            # Before the port is released: its next owner could create a socket of the same name.
            unix_sockets.remove(sock)
            listener.stop()
        self._listener.stop()

    def admit_unproved(self, connection: InternalConnection) -> Reply | None:
        """Count a new connection; return its refusal if too many others, all younger than 1 s, lack a proved key."""
        if not connection.peer:
            return None
        now = asyncio.get_running_loop().time()
        refusal = self.unproved.join(connection, connection.peer, now)
        if refusal is None:
            self.unproved.set_idle(connection, now)
            return None
        self.record_unproved(connection, "connections without a proof of a key")
        return Reply(503, b"too many connections without a proof of the key\n", headers={"Retry-After": "1"})

    def record_unproved(self, connection: InternalConnection, detail: str) -> None:
        """Record that a connection was closed in favour of others."""
        security_log.record(SecurityEvent.RATE_EXCEEDED, address=connection.peer, code=503, detail=detail)

    def is_public(self, path: str) -> bool:
        """Return whether a path needs no key."""
        return path in health.PATHS

    def challenge(self, authorization: str, own: str) -> ListenerAuth:
        """Return the answer to a challenge on a connection to the address ``own``.

        Raises:
            ChallengeRefused: it cannot be answered.
        """
        return ListenerAuth(authorization, self._find, {own, *self._addresses})

    def refusal(self, method: str, target: str, given: Sequence[str], auth: ListenerAuth | None) -> Reply | None:
        """Return the reply to an unauthorised request, None for an authorised one.

        Args:
            method: that of the request.
            target: that of the request.
            given: its ``Authorization`` headers: there must be one.
            auth: the challenge before it, if there was one.
        """
        path = target.partition("?")[0]
        if len(given) != 1:
            return _unauthorised("a proof of the key is needed")
        if auth is not None:
            if not auth.verify(given[0], method, target):
                return _unauthorised("the proof is wrong")
            found = self._keys.find(auth.key.id)
            roles = found[1] if found else frozenset()
        elif path in BEARER_PATHS:
            roles = self._keys.roles_of_bearer(given[0])
            if not roles:
                return _unauthorised("that is not the key")
        else:
            return _unauthorised("a proof of the key is needed, which itself must not be sent")
        if KeyRole.ADMIN in roles or roles & ROLES.get(path, set()):
            return None
        return Reply(403, b"the roles of this key do not open this path\n")

    def _find(self, key_id: str) -> SharedKey | None:
        found = self._keys.find(key_id)
        return found[0] if found else None

    def answer(self, path: str) -> Reply:
        """Return the reply to a GET, authorised or public."""
        if self.is_public(path):
            return health_reply(path, self._ready)
        for prefix, read in self._reads.items():
            if path.startswith(f"{prefix}/"):
                return read(path.removeprefix(prefix))
        page = self._pages.get(path)
        return page() if page is not None else Reply(404, b"not found\n")

    def _connection(self) -> InternalConnection:
        return InternalConnection(self)

    def _metrics(self) -> Reply:
        body, content_type = metrics.render()
        return Reply(200, body, content_type)

    def _reply_status(self) -> Reply:
        return Reply(200, orjson.dumps(self._status()), "application/json")


def _unauthorised(why: str) -> Reply:
    return Reply(401, f"{why}\n".encode(), headers={"WWW-Authenticate": mutual_auth.SCHEME})


def _head(received: bytes) -> tuple[str, str, list[str]]:
    """Return method, target and ``Authorization`` headers of a request; none if the head is malformed."""
    first, *fields = received.partition(HEAD_END)[0].decode("latin-1").split("\r\n")
    parts = first.split(" ")
    if len(parts) != 3 or any(field[:1] in {" ", "\t"} for field in fields):
        return "", "", []
    pairs = (field.partition(":") for field in fields)
    return parts[0], parts[1], [value.strip() for name, _, value in pairs if name.strip().lower() == "authorization"]
