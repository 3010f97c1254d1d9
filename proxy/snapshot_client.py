"""Follows a metadata service's watch: the snapshot at once, and on every change; from any of several services."""

import asyncio
import itertools
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import structlog
from websockets.exceptions import InvalidHandshake

from diem.links.dialer import ClientConnection, dial
from diem.links.keepalive import LinkMonitor
from diem.process.auth import SharedKey
from diem.process.backoff import full_jitter
from diem.protocol.assignment import BadSnapshot, Snapshot, decode
from diem.protocol.codes import Close

SUBPROTOCOL: Final = "diem.watch.v1"
MAX_SNAPSHOT: Final = 64 << 20
"""Bytes: a map of 100,000 entries with the longest names has half of that."""
RETRY_BASE: Final = 0.1
RETRY_CAP: Final = 2.0


Take = Callable[[Snapshot], bool]
"""Whether the snapshot is of use; a service whose is not is left for the next one."""


class WatchLink(ClientConnection):
    """One link to a metadata service."""

    __slots__ = ("_take", "lost", "served")

    def __init__(self, url: str, authorization: str, take: Take) -> None:
        super().__init__(url, authorization, subprotocol=SUBPROTOCOL, max_size=MAX_SNAPSHOT)
        self._take = take
        self.lost = asyncio.Event()
        self.served = False
        """Whether a snapshot was taken from it."""

    def on_text(self, data: bytes) -> None:
        """A snapshot."""
        if not self.is_open:
            return
        try:
            snapshot = decode(data)
        except BadSnapshot as error:
            self.close(Close.BAD_REQUEST, str(error)[:100])
            return
        if self._take(snapshot):
            self.served = True
        else:
            # Another service may know more, or this one by the next time.
            self.close(Close.NORMAL, "behind")

    def on_closed(self) -> None:
        """Let the watch dial again."""
        super().on_closed()
        self.lost.set()


class SnapshotClient:
    """Keeps one link to one of ``urls``; a link that is silent for 5 s is given up, and the next one is tried."""

    def __init__(
        self,
        urls: Sequence[str],
        key: SharedKey,
        take: Take,
        *,
        sockets: Path | None = None,
    ) -> None:
        self._urls = urls
        self._sockets = sockets
        self._key = key
        self._take = take
        self._monitor = LinkMonitor("metadata service")
        self._log = structlog.get_logger("proxy")
        self.connected = False

    async def run(self) -> None:
        """Watch until cancelled. Without a service everything goes on with the last snapshot."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._monitor.run())
            tasks.create_task(self._follow())

    async def _follow(self) -> None:
        attempt = 0
        said = False
        for url in itertools.cycle(self._urls):
            try:
                link = await dial(url, partial(WatchLink, url, self._key.header, self._take), sockets=self._sockets)
            except (OSError, InvalidHandshake, EOFError) as error:
                if not said:
                    said = True
                    self._log.warning("metadata service unreachable", url=url, error=f"{type(error).__name__}: {error}")
            else:
                said = False
                await self._read(link, url)
                if link.served:
                    attempt = 0
            await asyncio.sleep(full_jitter(attempt, RETRY_BASE, RETRY_CAP))
            attempt += 1

    async def _read(self, link: WatchLink, url: str) -> None:
        self._log.info("metadata service connected", url=url)
        self.connected = True
        self._monitor.add(link)
        try:
            await link.lost.wait()
            if link.served:
                self._log.warning("metadata service lost: routing goes on with the last snapshot", url=url)
        finally:
            self.connected = False
            self._monitor.discard(link)
            link.abort()
