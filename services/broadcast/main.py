"""Wires a Broadcast node: its feed reader, its feed server and its internal listener."""

import asyncio
import os
import time
from collections.abc import Iterable
from typing import Any

from diem import __version__
from diem.links.feed_reader import FeedReader
from diem.links.feed_server import FeedServer
from diem.links.internal import InternalListener
from diem.process import metrics
from diem.process.auth import SharedKey
from diem.process.lifecycle import Lifecycle
from diem.process.metrics import Sample
from diem.protocol import feed
from services.broadcast.node import Node
from services.broadcast.settings import Settings


async def main(settings: Settings, life: Lifecycle) -> None:
    """Hand on the store's changes until asked to stop."""
    started = time.monotonic()
    key = SharedKey.load(settings.internal_key_file)
    node = Node()
    server = FeedServer(node, beats=False)
    node.on_changed, node.on_beat, node.on_new_source = server.changed, server.beat, server.drop_readers
    reader = FeedReader(settings.feed_url, key, node, sockets=settings.internal_sockets)

    def why_not_ready() -> str | None:
        if life.stopping.is_set():
            return "draining"
        return None if node.source else "the store has not been caught up with yet"

    def status() -> dict[str, Any]:
        return {
            "process": "broadcast",
            "pid": os.getpid(),
            "version": __version__,
            "ready": why_not_ready() is None,
            "live": reader.connected and node.source is not None,
            "endpoints": len(node.changes),
            "position": node.changes.sequence + 1,
            "readers": server.readers,
            "uptime_seconds": round(time.monotonic() - started, 1),
        }

    def samples() -> Iterable[Sample]:
        yield metrics.ENDPOINTS.sample(len(node.changes))
        yield metrics.UPDATES_RECEIVED.sample(node.received)
        yield metrics.UPDATES_STALE.sample(node.stale)
        yield metrics.FEED_CONNECTED.sample(reader.connected)
        yield metrics.FEED_CONNECTS.sample(reader.connects)
        yield metrics.FEED_POSITION.sample(node.changes.sequence + 1, feed.STORE)
        yield metrics.FEED_READERS.sample(server.readers)
        yield metrics.FEED_SENT.sample(server.sent)

    internal = InternalListener(
        settings.internal_host,
        settings.internal_port,
        key=key,
        ready=why_not_ready,
        status=status,
        ends={"/feed": server},
        sockets=settings.internal_sockets,
    )
    forget = metrics.register(samples)
    await internal.start()
    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(reader.run()), tasks.create_task(server.run())]
        await life.stopping.wait()
        server.stop()
        for task in running:
            task.cancel()
    internal.stop()
    forget()
