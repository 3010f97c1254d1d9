"""Readiness, status and metrics of the Data Service."""

import asyncio
import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from diem.links.feed_server import FeedServer
from diem.process import metrics
from diem.process.lifecycle import Lifecycle
from services.data.sources.runner import SourceRunner
from services.data.store.store import Store

if TYPE_CHECKING:
    from services.data.publisher import Publisher

DISK_EVERY_S: Final = 15.0
"""Seconds between measurements of the disk."""


class DataReport:
    """Readiness, status and metrics of this process; :meth:`measure_disk` refreshes the disk's."""

    def __init__(
        self,
        mode: str,
        life: Lifecycle,
        store: Store,
        sources: SourceRunner,
        publisher: "Publisher | None",
        *,
        state_dir: Path,
    ) -> None:
        self._mode = mode
        self._life = life
        self._store = store
        self._sources = sources
        self._publisher = publisher
        self._state_dir = state_dir
        self._disk = _disk_of(state_dir)

    async def measure_disk(self) -> None:
        """Measure the state directory's file system periodically, in a thread: a network file system may hang."""
        while True:
            await asyncio.sleep(DISK_EVERY_S)
            self._disk = await asyncio.to_thread(_disk_of, self._state_dir)

    def why_not_ready(self) -> str | None:
        """Return the reason why no requests should be routed here; None when ready."""
        if self._life.stopping.is_set():
            return "draining"
        return self._store.failure

    def status(self) -> dict[str, Any]:
        """Return the service's own part of ``/status``."""
        store = self._store
        return {
            "mode": self._mode,
            "ready": self.why_not_ready() is None,
            "live": store.failure is None,
            "failure": store.failure,
            "store": store.id,
            "endpoints": len(store.index.names),
            "sequence": store.changes.sequence,
            "changes": store.writer.counts.changes,
            "commits": store.writer.counts.commits,
            "queued": len(store.writer),
            "sources": self._sources.status(),
            "publisher": self._publisher.status() if self._publisher else None,
        }

    def samples(self, feed: FeedServer) -> Iterable[metrics.Sample]:
        """Return the process's metrics, without the disk's while it cannot be measured."""
        store = self._store
        yield metrics.ENDPOINTS.sample(len(store.changes))
        yield from metrics.retained_data(store.changes.budget)
        yield metrics.STORE_SEQUENCE.sample(store.changes.sequence)
        yield metrics.STORE_COMMITS.sample(store.writer.counts.commits)
        yield metrics.STORE_CHANGES.sample(store.writer.counts.changes)
        yield metrics.STORE_UNCHANGED.sample(store.writer.counts.unchanged)
        yield metrics.STORE_FAILURES.sample(store.writer.counts.failures)
        yield metrics.STORE_QUEUE.sample(len(store.writer))
        if (disk := self._disk) is not None:
            yield metrics.DISK_FREE.sample(disk.f_bavail * disk.f_frsize)
            yield metrics.DISK_SIZE.sample(disk.f_blocks * disk.f_frsize)
        yield metrics.FEED_READERS.sample(feed.readers)
        yield metrics.FEED_SENT.sample(feed.sent)
        if self._publisher is not None:
            yield from self._publisher.samples()


def _disk_of(directory: Path) -> os.statvfs_result | None:
    """Return the state of the directory's file system; None if it cannot be read."""
    try:
        return os.statvfs(directory)
    except OSError:
        return None
