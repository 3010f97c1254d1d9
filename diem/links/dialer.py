"""Client side of internal links: dialling with mutual authentication, and a link that reconnects."""

import asyncio
import contextlib
import itertools
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Final, Generic, TypeVar, cast
from urllib.parse import urlsplit

import structlog
from websockets.client import ClientProtocol
from websockets.exceptions import InvalidHandshake
from websockets.http11 import Response
from websockets.typing import Subprotocol
from websockets.uri import parse_uri

from diem.links import refused_peers, unix_sockets
from diem.links.connection import SILENT_LOGGER, Connection
from diem.links.keepalive import CHECK_EVERY_S, LinkMonitor
from diem.links.mutual_auth import (
    HEAD_END,
    MAX_ANSWER_BYTES,
    DialerAuth,
    IncompatiblePeer,
    PeerNotAuthenticated,
    address_of,
)
from diem.process.auth import SharedKey
from diem.process.backoff import Backoff, wait
from diem.process.key_ring import KeyRing, KeyRole
from diem.process.tls import LinkTls
from diem.protocol import feed

CONNECT_TIMEOUT_S: Final = 3.0
DIAL_ERRORS: Final = (OSError, InvalidHandshake, EOFError, PeerNotAuthenticated, IncompatiblePeer)
"""Errors of :func:`dial` worth a retry."""


class Challenge(asyncio.Protocol):
    """First exchange on a connection: nothing else is sent until the peer has proved the key.

    ``authorization`` resolves to the header of the upgrade request, or to the error.

    Args:
        key: the key.
        url: that of the link.
    """

    __slots__ = ("_auth", "_head", "_key", "_url", "authorization", "transport")

    def __init__(self, key: SharedKey, url: str) -> None:
        self._key = key
        self._url = urlsplit(url)
        self._auth: DialerAuth
        self._head = b""
        self.transport: asyncio.Transport
        self.authorization: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the challenge."""
        self.transport = cast("asyncio.Transport", transport)
        self._auth = DialerAuth(self._key, address_of(transport.get_extra_info("peername")))
        self.transport.write(self._auth.challenge(self._url.netloc))

    def data_received(self, data: bytes) -> None:
        """Verify the answer, with no data allowed after it."""
        self._head += data
        ended = self._head.find(HEAD_END) + len(HEAD_END)
        if ended < len(HEAD_END) and len(self._head) <= MAX_ANSWER_BYTES:
            return
        if self.authorization.done():
            self.transport.abort()
            return
        try:
            self._auth.verify(self._head[:ended])
            if len(self._head) > ended:
                raise PeerNotAuthenticated(self._url.netloc, "it sent more than its answer")
            target = (self._url.path or "/") + (f"?{self._url.query}" if self._url.query else "")
            authorization = self._auth.authorization("GET", target)
        except (PeerNotAuthenticated, IncompatiblePeer) as error:
            self._fail(error)
        else:
            self.authorization.set_result(authorization)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - a loss needs no reason
        """Fail if the peer has not answered."""
        self._fail(ConnectionError("connection lost"))

    def _fail(self, error: Exception) -> None:
        if not self.authorization.done():
            self.authorization.set_exception(error)
            # Retrieved, as nobody awaits it if the dialer times out in the same turn of the loop.
            self.authorization.exception()
        self.transport.abort()


class ClientConnection(Connection):
    """A connection dialled by this process; ``opened`` resolves at the end of the handshake, or to its error."""

    __slots__ = ("opened",)

    def __init__(
        self,
        url: str,
        authorization: str,
        *,
        subprotocol: str = feed.SUBPROTOCOL,
        max_size: int = feed.MAX_BATCH_BYTES,
    ) -> None:
        super().__init__(
            ClientProtocol(
                parse_uri(url),
                subprotocols=[Subprotocol(subprotocol)],
                max_size=max_size,
                logger=SILENT_LOGGER,
            )
        )
        self.opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        request = self.client.connect()
        request.headers["Authorization"] = authorization
        self.client.send_request(request)

    @property
    def client(self) -> ClientProtocol:
        """The protocol with its type."""
        protocol = self.protocol
        assert isinstance(protocol, ClientProtocol)  # noqa: S101 - given in the constructor
        return protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the opening handshake."""
        super().connection_made(transport)
        self.flush()

    def on_response(self, response: Response) -> None:
        """Resolve ``opened``; abort a connection whose dialer timed out in this turn of the loop."""
        if self.opened.done():
            self.abort()
            return
        error = self.client.handshake_exc
        if error is None and self.is_open:
            self.opened.set_result(None)
        else:
            self._fail(error or InvalidHandshake(f"HTTP {response.status_code}"))

    def on_closed(self) -> None:
        """Fail ``opened`` if the handshake had not ended."""
        if not self.opened.done():
            self._fail(self.client.handshake_exc or ConnectionError("connection lost"))

    def _fail(self, error: Exception) -> None:
        self.opened.set_exception(error)
        # Retrieved, as nobody awaits it if the dialer times out in the same turn of the loop.
        self.opened.exception()


C = TypeVar("C", bound=ClientConnection)


async def dial(
    url: str,
    key: SharedKey,
    connection: Callable[[str], C],
    *,
    sockets: Path | None = None,
    tls: LinkTls | None = None,
    address: str | None = None,
) -> C:
    """Connect to ``ws(s)://host:port/path`` and finish the opening handshake; redirects and proxies are not followed.

    A port of this machine is reached through its Unix socket in ``sockets``, if that answers.

    Args:
        url: that of the link.
        key: proved by both ends.
        connection: makes the connection from its ``Authorization`` header.
        sockets: directory of Unix sockets.
        tls: of ``wss`` URLs; None: the system's authorities decide.
        address: IP address to connect to instead of resolving the URL's host, which a certificate must still name.

    Raises:
        OSError: the connection failed or was lost.
        TimeoutError: the handshake took longer than 3 s.
        PeerNotAuthenticated: the answering peer did not prove the key.
        IncompatiblePeer: it shares no version of the internal protocol with this process.
        InvalidHandshake: the answer was not 101.
    """
    made: C | None = None
    challenge: Challenge | None = None
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            challenge = await _connect(url, key, sockets, tls or LinkTls(), address)
            made = connection(await challenge.authorization)
            transport = challenge.transport
            if transport.is_closing():
                raise ConnectionError("connection lost")
            transport.set_protocol(made)
            made.connection_made(transport)
            await made.opened
    except BaseException:
        if challenge is not None:
            challenge.transport.abort()
        if made is not None:
            made.opened.cancel()
        raise
    return made


async def _connect(
    url: str, key: SharedKey, sockets: Path | None, tls: LinkTls, address: str | None = None
) -> Challenge:
    parts = urlsplit(url)
    secure = parts.scheme == "wss"
    host, port = address or parts.hostname or "", parts.port or (443 if secure else 80)
    loop = asyncio.get_running_loop()
    path = unix_sockets.find_socket(sockets, host, port)
    challenge = partial(Challenge, key, url)
    if path is not None:
        # A killed process leaves its socket behind, which refuses connections.
        with contextlib.suppress(OSError):
            return (await loop.create_unix_connection(challenge, os.fspath(path)))[1]
    if not secure:
        return (await loop.create_connection(challenge, host, port))[1]
    return (await loop.create_connection(challenge, host, port, ssl=tls.context, server_hostname=parts.hostname))[1]


RETRY_BASE_S: Final = 0.1
RETRY_CAP_S: Final = 2.0
"""Longest delay between two attempts, so that internal links heal fast."""
INCOMPATIBLE_RETRY_S: Final = 5.0
"""Seconds before an incompatible peer is redialled: soon enough for a link within 10 s of either's replacement."""
STABLE_AFTER_S: Final = 5.0
"""Seconds that a link must be open to reset the backoff."""


LONG_READ_S: Final = 0.05
"""Time to send what one read has brought, from which on the other work of a process would wait too long."""
YIELD_SHARE: Final = 0.5
"""Pause after such a read, as a share of it: two thirds of an overloaded process are for updates."""
LONGEST_YIELD_S: Final = 1.0


class LinkConnection(ClientConnection):
    """A connection of a :class:`Reconnector`, which awaits its loss."""

    __slots__ = ("lost",)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the opening handshake, and watch for the loss of the connection."""
        self.lost = asyncio.Event()
        super().connection_made(transport)

    def yield_after(self, began: float) -> None:
        """Pause reading if what this read has brought took long since ``began`` (monotonic, in seconds) to be sent.

        Without a pause a process whose updates fill its core would do nothing else but one turn of the loop between
        two: a new client needs four. Meanwhile updates gather, of which only the latest are sent.
        """
        spent = monotonic() - began
        if spent > LONG_READ_S and not self.transport.is_closing():
            self.transport.pause_reading()
            asyncio.get_running_loop().call_later(min(YIELD_SHARE * spent, LONGEST_YIELD_S), self._resume)

    def _resume(self) -> None:
        if not self.transport.is_closing():
            self.transport.resume_reading()

    def on_closed(self) -> None:
        """Wake the reconnector."""
        super().on_closed()
        self.lost.set()


K = TypeVar("K", bound=LinkConnection)


class Reconnector(ABC, Generic[K]):
    """Keeps one link to ``peer`` open: dials ``urls`` in turn, with full jitter at most 2 s apart.

    A link that is silent for 5 s is cut (:class:`LinkMonitor`). Subclasses create the connection and handle its opening
    and loss.
    """

    def __init__(
        self,
        peer: str,
        urls: Sequence[str],
        keys: KeyRing | SharedKey,
        role: KeyRole,
        *,
        logger: str,
        sockets: Path | None = None,
        tls: LinkTls | None = None,
    ) -> None:
        self._peer = peer
        self._urls = urls
        self._keys = KeyRing.of(keys)
        self._role = role
        self._sockets = sockets
        self._tls = tls or LinkTls()
        self._monitor = LinkMonitor(peer)
        self._backoff = Backoff(RETRY_BASE_S, RETRY_CAP_S, stable_s=STABLE_AFTER_S)
        self._log = structlog.get_logger(logger)
        self.connected = False
        self.connects = 0
        """Links that were opened so far."""

    @abstractmethod
    def _connection(self, url: str, authorization: str) -> K:
        """Create the connection to an authenticated peer."""

    @abstractmethod
    def _on_open(self, link: K, url: str) -> None:
        """Handle an opened link."""

    @abstractmethod
    def _on_lost(self, link: K, url: str) -> float:
        """Handle the loss of a link; return the seconds by which to postpone the next attempt."""

    async def run(self) -> None:
        """Keep the link until cancelled."""
        logged = False
        for url in itertools.cycle(self._urls):
            uptime_s = 0.0
            try:
                link = await self._dial(url)
            except IncompatiblePeer as error:
                refused_peers.refuse_versions(urlsplit(url).netloc, error.versions)
                await asyncio.sleep(INCOMPATIBLE_RETRY_S)
            except DIAL_ERRORS as error:
                if not refused_peers.refuse_key(url, error) and not logged:
                    logged = True
                    fault = f"{type(error).__name__}: {error}"
                    self._log.warning(f"{self._peer} unreachable, retrying", url=url, error=fault)
            else:
                logged = False
                refused_peers.accept_key(url)
                self._log.info(f"{self._peer} connected", url=url)
                opened_at = asyncio.get_running_loop().time()
                await self._until_lost(link, url)
                uptime_s = asyncio.get_running_loop().time() - opened_at
                await asyncio.sleep(self._on_lost(link, url))
            await asyncio.sleep(self._backoff.next_delay(uptime_s))

    async def _dial(self, url: str, address: str | None = None) -> K:
        key, make = self._keys.key(self._role), partial(self._connection, url)
        return await dial(url, key, make, sockets=self._sockets, tls=self._tls, address=address)

    async def _until_lost(self, link: K, url: str) -> None:
        self.connected = True
        self.connects += 1
        self._monitor.add(link)
        try:
            self._on_open(link, url)
            while not await wait(link.lost, CHECK_EVERY_S):
                self._monitor.tick()
        finally:
            self.connected = False
            self._monitor.discard(link)
            link.abort()
