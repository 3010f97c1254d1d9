"""Wires the Data Service: store, sources, the public REST server and the internal listener with the feed."""

import asyncio
import gc
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import structlog

from diem import __version__
from diem.links.feed_server import FeedServer
from diem.links.internal import InternalListener
from diem.process import metrics
from diem.process.auth import SharedKey
from diem.process.clock import SystemClock
from diem.process.lifecycle import Lifecycle
from diem.process.listeners import bind, check_bind, is_loopback
from services.data.api import Api, ApiOptions
from services.data.api.guard import LOOPBACK_NAMES
from services.data.api.plan import Rate
from services.data.server import make_server
from services.data.settings import Settings
from services.data.sources import config
from services.data.sources.keeper import Keeper
from services.data.store import Store, StoreLimits, WriterLimits

_logger = structlog.get_logger(__name__)

DEFAULT_CONFIG: Final = Path(__file__).parent / "default.toml"


async def main(settings: Settings, life: Lifecycle) -> None:
    """Serve data, take changes and tell readers of the feed, until asked to stop.

    Raises:
        DiemError: a file, a port or the store cannot be used.
    """
    clock = SystemClock()
    write_key = SharedKey.load(settings.write_key_file)
    internal_key = SharedKey.load(settings.internal_key_file)
    keeper = Keeper.configured(config.load(settings.config or DEFAULT_CONFIG), clock)
    check_bind(settings.host, authenticated=True, what="public listener")
    public = bind(settings.host, settings.port)
    store = await Store.open(settings.database_url.get_secret_value(), clock=clock, limits=_store_limits(settings))
    api = Api(store, write_key, keeper.claims.owner_of, _api_options(settings), clock)
    process = _Process(settings, life, store, keeper)
    server = make_server(
        api,
        connections=settings.connections,
        drain_s=settings.drain_seconds / 2,
        trusted_proxies=[str(network) for network in settings.trusted_proxies],
    )
    async with store.serving():
        feed, internal = serve_feed(settings, internal_key, store, process)
        forget = metrics.register(lambda: [*process.samples(feed), *api.samples(), *keeper.samples()])
        try:
            await internal.start()
            _logger.info("serving", host=settings.host, port=public.getsockname()[1], internal_port=internal.port)
            # What exists now lives as long as the process: the collector need not look at it again.
            gc.collect()
            gc.freeze()
            async with asyncio.TaskGroup() as tasks:
                background = [tasks.create_task(keeper.run(store.put)), tasks.create_task(feed.run())]
                await server.run_until(life.stopping, public)
                # Sources end before the store does; readers have been sent everything that was committed.
                for task in background:
                    task.cancel()
        finally:
            feed.stop()
            internal.stop()
            forget()


def serve_feed(
    settings: Settings, key: SharedKey, store: Store, process: "_Process"
) -> tuple[FeedServer, InternalListener]:
    """The feed of the store's changes on the internal listener, with health, metrics and status."""
    feed = FeedServer(store)
    store.subscribe(feed.changed)
    internal = InternalListener(
        settings.internal_host,
        settings.internal_port,
        key=key,
        ready=process.why_not_ready,
        status=process.status,
        feed=feed,
    )
    return feed, internal


class _Process:
    """What this process says of itself."""

    def __init__(self, settings: Settings, life: Lifecycle, store: Store, keeper: Keeper) -> None:
        self._settings = settings
        self._life = life
        self._store = store
        self._keeper = keeper
        self._started = time.monotonic()

    def why_not_ready(self) -> str | None:
        """Why no request should come here; None when they may."""
        if self._life.stopping.is_set():
            return "draining"
        return self._store.failure

    def status(self) -> dict[str, Any]:
        """The process's status."""
        store = self._store
        return {
            "process": self._settings.process_name,
            "pid": os.getpid(),
            "version": __version__,
            "mode": self._settings.mode,
            "ready": self.why_not_ready() is None,
            "live": store.failure is None,
            "failure": store.failure,
            "store": store.id,
            "endpoints": len(store.changes),
            "sequence": store.changes.sequence,
            "queued": store.queued,
            "sources": self._keeper.status(),
            "uptime_seconds": round(time.monotonic() - self._started, 1),
        }

    def samples(self, feed: FeedServer) -> Iterable[metrics.Sample]:
        """The process's metrics."""
        store = self._store
        yield metrics.ENDPOINTS.sample(len(store.changes))
        yield metrics.STORE_SEQUENCE.sample(store.changes.sequence)
        yield metrics.STORE_COMMITS.sample(store.counts.commits)
        yield metrics.STORE_CHANGES.sample(store.counts.changes)
        yield metrics.STORE_UNCHANGED.sample(store.counts.unchanged)
        yield metrics.STORE_FAILURES.sample(store.counts.failures)
        yield metrics.STORE_QUEUE.sample(store.queued)
        yield metrics.FEED_READERS.sample(feed.readers)
        yield metrics.FEED_SENT.sample(feed.sent)


def _store_limits(settings: Settings) -> StoreLimits:
    return StoreLimits(
        busy_timeout_s=settings.busy_timeout,
        cache_bytes=settings.cache_bytes,
        writer=WriterLimits(max_endpoints=settings.max_endpoints),
    )


def _api_options(settings: Settings) -> ApiOptions:
    anonymous = settings.anonymous_reads
    return ApiOptions(
        page_dir=settings.page_dir,
        hosts=LOOPBACK_NAMES | {settings.host} | frozenset(settings.hosts),
        mode=settings.mode,
        servers=settings.websocket_servers,
        anonymous=is_loopback(settings.host) if anonymous == "auto" else anonymous == "on",
        rate=Rate(settings.read_rate, settings.read_burst),
        loopback_rate=Rate(settings.read_rate_loopback, settings.read_burst_loopback),
    )
