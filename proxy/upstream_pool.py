"""Links to all members, redialled while needed."""

import asyncio
from collections.abc import Iterable, Sequence
from pathlib import Path
from urllib.parse import urlsplit

import structlog

from diem.links.dialer import CONNECT_TIMEOUT_S, Reconnector
from diem.process.allow_list import AllowList
from diem.process.auth import SharedKey
from diem.process.key_ring import KeyRing, KeyRole
from diem.process.tls import LinkTls
from proxy.upstream import Upstream, UpstreamListener


class UpstreamLink(Reconnector[Upstream]):
    """Keeps one connection to a server open; its events go to ``listener``.

    Args:
        allowed: the addresses that may be dialled; None: that of the URL's host.
    """

    def __init__(
        self,
        url: str,
        keys: KeyRing | SharedKey,
        listener: UpstreamListener,
        *,
        sockets: Path | None = None,
        tls: LinkTls | None = None,
        allowed: AllowList | None = None,
    ) -> None:
        super().__init__("server", [url], keys, KeyRole.FEED, logger="proxy", sockets=sockets, tls=tls)
        self._listener = listener
        self._allowed = allowed

    async def _dial(self, url: str, address: str | None = None) -> Upstream:
        """Dial once, at an address that is on the allow-list."""
        if self._allowed is not None:
            parts = urlsplit(url)
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                found = await self._allowed.address(parts.hostname or "", parts.port or 0)
            if found is None:
                raise ConnectionRefusedError(f"no address of {url} is admitted by DIEM_PROXY_ALLOWED")
            address = str(found)
        return await super()._dial(url, address)

    def _connection(self, url: str, authorization: str) -> Upstream:
        return Upstream(url, authorization, self._listener)

    def _on_open(self, link: Upstream, url: str) -> None:
        """Do nothing: the connection has called the listener before its first message."""

    def _on_lost(self, link: Upstream, url: str) -> float:  # noqa: ARG002 - the connection has called the listener
        self._log.warning("server lost", url=url)
        return 0.0


class UpstreamPool:
    """Links to all members, pinged every 2 s and dropped after 5 s of silence; see :class:`UpstreamLink`."""

    def __init__(
        self,
        listener: UpstreamListener,
        keys: KeyRing | SharedKey,
        *,
        sockets: Path | None = None,
        tls: LinkTls | None = None,
        allowed: AllowList | None = None,
    ) -> None:
        self._listener = listener
        self._keys = KeyRing.of(keys)
        self._sockets = sockets
        self._tls = tls
        self._allowed = allowed
        self._links: dict[str, UpstreamLink] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    @property
    def open(self) -> Sequence[str]:
        """URLs of the servers with an open link."""
        return [url for url, link in self._links.items() if link.connected]

    def keep(self, urls: Iterable[str]) -> None:
        """Open and close links until exactly these servers have one."""
        wanted = set(urls)
        for url in self._links.keys() - wanted:
            structlog.get_logger("proxy").info("server is no longer a member", url=url)
            del self._links[url]
            self._tasks.pop(url).cancel()
        for url in wanted - self._links.keys():
            link = self._links[url] = UpstreamLink(
                url, self._keys, self._listener, sockets=self._sockets, tls=self._tls, allowed=self._allowed
            )
            self._tasks[url] = asyncio.get_running_loop().create_task(link.run())

    def stop(self) -> None:
        """Close every link."""
        for task in self._tasks.values():
            task.cancel()
