"""Client of the metadata service: the current snapshot and every change of it, from any of several services."""

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
MAX_SNAPSHOT_BYTES: Final = 64 << 20
"""A map of 100,000 entries with the longest names has half of that."""
RETRY_BASE_S: Final = 0.1
RETRY_CAP_S: Final = 2.0


ApplySnapshot = Callable[[Snapshot], bool]
"""Apply a snapshot; return False when it is too old, to try the next service."""


class WatchLink(ClientConnection):
    """One link to a metadata service."""

    __slots__ = ("_apply", "lost", "served")

    def __init__(self, url: str, authorization: str, apply: ApplySnapshot) -> None:
        super().__init__(url, authorization, subprotocol=SUBPROTOCOL, max_size=MAX_SNAPSHOT_BYTES)
        self._apply = apply
        self.lost = asyncio.Event()
        self.served = False
        """Whether one of its snapshots was applied."""

    def on_text(self, data: bytes) -> None:
        """Apply a snapshot."""
        if not self.is_open:
            return
        try:
            snapshot = decode(data)
        except BadSnapshot as error:
            self.close(Close.BAD_REQUEST, str(error)[:100])
            return
        if self._apply(snapshot):
            self.served = True
        else:
            # Another service may know more, or this one by the next time.
            self.close(Close.NORMAL, "behind")

    def on_closed(self) -> None:
        """Wake the client, to dial again."""
        super().on_closed()
        self.lost.set()


class SnapshotClient:
    """Keeps one link to one of ``urls``; a link that is silent for 5 s is given up, and the next one is tried."""

    def __init__(
        self,
        urls: Sequence[str],
        key: SharedKey,
        apply: ApplySnapshot,
        *,
        sockets: Path | None = None,
    ) -> None:
        self._urls = urls
        self._sockets = sockets
        self._key = key
        self._apply = apply
        self._monitor = LinkMonitor("metadata service")
        self._log = structlog.get_logger("proxy")
        self.connected = False

    async def run(self) -> None:
        """Receive snapshots until cancelled. Without a service the last one stays in force."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._monitor.run())
            tasks.create_task(self._connect())

    async def _connect(self) -> None:
        attempt = 0
        logged = False
        for url in itertools.cycle(self._urls):
            try:
                link = await dial(url, partial(WatchLink, url, self._key.header, self._apply), sockets=self._sockets)
            except (OSError, InvalidHandshake, EOFError) as error:
                if not logged:
                    logged = True
                    self._log.warning("metadata service unreachable", url=url, error=f"{type(error).__name__}: {error}")
            else:
                logged = False
                await self._read(link, url)
                if link.served:
                    attempt = 0
            await asyncio.sleep(full_jitter(attempt, RETRY_BASE_S, RETRY_CAP_S))
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
