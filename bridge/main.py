"""Wires a bridge: the watch over its topic, its serving end and its internal listener."""

import asyncio
import logging
import os
import time
from collections.abc import Iterable
from typing import Any

from bridge.badlog import BadLog
from bridge.records import Records
from bridge.serving import Serving
from bridge.session import Shared
from bridge.settings import Settings
from bridge.watch import Watch
from diem import __version__
from diem.links.internal import InternalListener
from diem.process import metrics
from diem.process.auth import SharedKey
from diem.process.lifecycle import Lifecycle
from diem.process.metrics import Sample


async def main(settings: Settings, life: Lifecycle) -> None:
    """Serve the updates topic to one server until asked to stop."""
    started = time.monotonic()
    # The client library writes a line for each of its attempts, ten in a second; the bridge says itself what is wrong.
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    key = SharedKey.load(settings.internal_key_file)
    options = settings.kafka()
    # Faults of the TLS set-up end the process now; later they would look like a cluster that is away.
    options.client_arguments()
    watch = Watch(options)
    records = Records(BadLog(time.monotonic))
    shared = Shared(options, options.names.x_group(settings.number), watch, records)
    serving = Serving(shared)
    watch.on_changed = serving.source_changed

    def why_not_ready() -> str | None:
        if life.stopping.is_set():
            return "draining"
        return watch.why_not or shared.fault

    def status() -> dict[str, Any]:
        positions = serving.session.positions if serving.session else None
        return {
            "process": settings.process_name,
            "pid": os.getpid(),
            "version": __version__,
            "ready": why_not_ready() is None,
            "live": serving.live,
            "source": watch.source,
            "reader": serving.link is not None,
            "partitions": len(watch.names),
            "position": sum(positions.next.values()) if positions else 0,
            "lag": positions.lag if positions and positions.tracks else None,
            "bad": records.counts.bad,
            "recreated": shared.recreated,
            "uptime_seconds": round(time.monotonic() - started, 1),
        }

    def samples() -> Iterable[Sample]:
        counts = records.counts
        yield metrics.UPDATES_RECEIVED.sample(counts.consumed)
        yield metrics.FEED_SENT.sample(counts.forwarded)
        yield metrics.UPDATES_CONFLATED.sample(counts.conflated)
        yield metrics.UPDATES_BAD.sample(counts.bad)
        yield metrics.UPDATES_TOMBSTONES.sample(counts.tombstones)
        yield metrics.UPDATES_MARKS.sample(counts.marks)
        yield metrics.FEED_READERS.sample(serving.link is not None)
        yield metrics.FEED_LIVE.sample(serving.live)
        yield metrics.CONSUMERS_RECREATED.sample(shared.recreated)
        yield metrics.COMMITS_FAILED.sample(shared.commits.failures)
        if serving.session is not None:
            yield metrics.KAFKA_LAG.sample(serving.session.positions.lag)
            for name, next_ in serving.session.positions.next.items():
                yield metrics.FEED_POSITION.sample(next_, name)

    internal = InternalListener(
        settings.internal_host, settings.internal_port, key=key, ready=why_not_ready, status=status, feed=serving
    )
    forget = metrics.register(samples)
    await internal.start()
    async with asyncio.TaskGroup() as tasks:
        watching = tasks.create_task(watch.run())
        tasks.create_task(serving.run())
        await life.stopping.wait()
        serving.stop()
        watching.cancel()
    internal.stop()
    forget()
