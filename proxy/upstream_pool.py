"""Links to servers, redialled while needed, and the pool of links to all members."""

import asyncio
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import structlog

from diem.errors import DiemError
from diem.links import refused_peers
from diem.links.dialer import (
    CONNECT_TIMEOUT_S,
    DIAL_ERRORS,
    INCOMPATIBLE_RETRY_S,
    RETRY_BASE_S,
    RETRY_CAP_S,
    STABLE_AFTER_S,
    dial,
)
from diem.links.keepalive import LinkMonitor
from diem.links.mutual_auth import IncompatiblePeer
from diem.process.allow_list import AllowList
from diem.process.auth import SharedKey
from diem.process.backoff import Backoff
from diem.process.key_ring import KeyRing, KeyRole
from diem.process.tls import LinkTls
from proxy.upstream import Upstream, UpstreamListener


@dataclass(eq=False)
class NotAllowed(DiemError):
    """No address of a server may be dialled."""

    template = "no address of {url} is admitted by DIEM_PROXY_ALLOWED"
    retriable = True

    url: str


class UpstreamDialer:
    """Makes links and dials them, each by itself."""

    def __init__(
        self,
        keys: KeyRing | SharedKey,
        sockets: Path | None = None,
        tls: LinkTls | None = None,
        allowed: AllowList | None = None,
    ) -> None:
        self._keys = KeyRing.of(keys)
        self._tls = tls or LinkTls()
        self._allowed = allowed
        self._sockets = sockets
        self.links: dict[UpstreamLink, None] = {}
        """The started links."""

    def link(self, url: str, listener: UpstreamListener, monitor: LinkMonitor) -> "UpstreamLink":
        """Make a link for the pool."""
        return UpstreamLink(url, self, listener, monitor)

    async def dial(self, link: "UpstreamLink") -> None:
        """Dial once.

        Raises:
            OSError: no address within 3 s, or no connection.
            NotAllowed: no address of the server is on the allow-list.
            PeerNotAuthenticated: the answering peer lacks the key.
            InvalidHandshake: the server refused, or does not speak the protocol.
        """
        address = await self._address(link.url)
        key = self._keys.key(KeyRole.FEED)
        await dial(link.url, key, link.connection, sockets=self._sockets, tls=self._tls, address=address)

    async def _address(self, url: str) -> str | None:
        """Return the address to dial instead of the URL's host; None: the URL's host."""
        if self._allowed is None:
            return None
        parts = urlsplit(url)
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            address = await self._allowed.address(parts.hostname or "", parts.port or 0)
        if address is None:
            raise NotAllowed(url)
        return str(address)

    def stop(self) -> None:
        """Close every link."""
        for link in list(self.links):
            link.stop()


class UpstreamLink:
    """Keeps one connection to a server open from :meth:`start` to :meth:`stop`.

    Not a :class:`~diem.links.dialer.Reconnector`: the listener must be called before the first message is.
    """

    def __init__(self, url: str, dialer: UpstreamDialer, listener: UpstreamListener, monitor: LinkMonitor) -> None:
        self.url = url
        self.upstream: Upstream | None = None
        """The open connection, None without one."""
        self._dialer = dialer
        self._listener = listener
        self._monitor = monitor
        self._backoff = Backoff(RETRY_BASE_S, RETRY_CAP_S, stable_s=STABLE_AFTER_S)
        self._opened_at = 0.0
        self._task: asyncio.Task[None] | None = None

    def connection(self, authorization: str) -> Upstream:
        """Create the connection to an authenticated server."""
        return Upstream(self.url, authorization, self._listener, self)

    def start(self) -> None:
        """Dial from now on."""
        self._dialer.links[self] = None
        self._task = asyncio.get_running_loop().create_task(self._dial(0.0))

    def stop(self) -> None:
        """Close the link without calling the listener; idempotent."""
        self._dialer.links.pop(self, None)
        if self._task is not None:
            self._task.cancel()
            self._task = None
        upstream, self.upstream = self.upstream, None
        if upstream is not None:
            self._monitor.discard(upstream)
            upstream.close(1000)

    def connected(self, upstream: Upstream) -> None:
        """Pass an opened connection to the listener."""
        if self not in self._dialer.links:
            upstream.abort()
            return
        self.upstream = upstream
        self._opened_at = asyncio.get_running_loop().time()
        self._monitor.add(upstream)
        structlog.get_logger("proxy").info("server connected", url=self.url)
        self._listener.opened(upstream)

    def disconnected(self, upstream: Upstream) -> None:
        """Report the lost connection to the listener, and redial after the back-off."""
        if upstream is not self.upstream:
            return
        self.upstream = None
        loop = asyncio.get_running_loop()
        self._task = loop.create_task(self._dial(self._backoff.next_delay(loop.time() - self._opened_at)))
        self._monitor.discard(upstream)
        structlog.get_logger("proxy").warning("server lost", url=self.url)
        self._listener.lost(self.url)

    async def _dial(self, delay_s: float) -> None:
        logged = False
        while True:
            await asyncio.sleep(delay_s)
            if self.upstream is not None or self._task is not asyncio.current_task():
                # The previous attempt succeeded in the same event loop iteration as its timeout.
                return
            try:
                await self._dialer.dial(self)
            except IncompatiblePeer as error:
                refused_peers.refuse_versions(urlsplit(self.url).netloc, error.versions)
                delay_s = INCOMPATIBLE_RETRY_S
                continue
            except (*DIAL_ERRORS, NotAllowed) as error:
                if not refused_peers.refuse_key(self.url, error) and not logged:
                    logged = True
                    fault = f"{type(error).__name__}: {error}"
                    level = logging.WARNING if isinstance(error, NotAllowed) else logging.DEBUG
                    structlog.get_logger("proxy").log(level, "server unreachable, retrying", url=self.url, error=fault)
            else:
                refused_peers.accept_key(self.url)
                return
            delay_s = self._backoff.next_delay()


class UpstreamPool:
    """Links to all members, pinged every 2 s and dropped after 5 s of silence; their events go to ``listener``."""

    def __init__(self, dialer: UpstreamDialer, listener: UpstreamListener) -> None:
        self._dialer = dialer
        self._listener = listener
        self._monitor = LinkMonitor("server")
        self._links: dict[str, UpstreamLink] = {}

    @property
    def open(self) -> Sequence[str]:
        """URLs of the servers with an open link."""
        return [url for url, link in self._links.items() if link.upstream is not None]

    def keep(self, urls: Iterable[str]) -> None:
        """Open and close links until exactly these servers have one."""
        wanted = set(urls)
        for url in self._links.keys() - wanted:
            structlog.get_logger("proxy").info("server is no longer a member", url=url)
            link = self._links.pop(url)
            was_open = link.upstream is not None
            link.stop()
            if was_open:
                self._listener.lost(url)
        for url in wanted - self._links.keys():
            link = self._links[url] = self._dialer.link(url, self._listener, self._monitor)
            link.start()

    async def run(self) -> None:
        """Monitor the links until cancelled; :meth:`UpstreamDialer.stop` closes them."""
        await self._monitor.run()
