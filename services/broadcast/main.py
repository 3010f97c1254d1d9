"""Entry point of a Broadcast node: wires feed reader, feed server and internal listener."""

from collections.abc import Iterable
from typing import Any

from diem.fanout.data_budget import DataBudget
from diem.links.feed_reader import FeedReader
from diem.links.feed_server import FeedServer
from diem.links.health import health_service
from diem.links.service import internal_service, run_until
from diem.process import metrics
from diem.process.key_ring import KeyRing
from diem.process.lifecycle import Lifecycle
from diem.process.metrics import Sample
from diem.process.tls import LinkTls
from diem.process.tracing import TracedUpdates
from diem.protocol import feed
from services.broadcast.node import Node
from services.broadcast.settings import Settings


async def main(settings: Settings, life: Lifecycle) -> None:
    """Serve the store's changes until stopped."""
    key = KeyRing.load(settings.internal_key_file)
    traces = None if life.tracer is None else TracedUpdates(life.tracer)
    node = Node(DataBudget(settings.retained_data_bytes), traces)
    server = FeedServer(node, heartbeats=False, traces=traces)
    node.on_changed, node.on_heartbeat, node.on_new_source = server.changed, server.heartbeat, server.drop_readers
    link_tls = LinkTls(settings.internal_ca_file)
    first, *others = settings.feed_url
    reader = FeedReader(first, key, node, others=others, sockets=settings.internal_sockets, tls=link_tls)

    def why_not_ready() -> str | None:
        if life.stopping.is_set():
            return "draining"
        return None if node.source else "not caught up with the store yet"

    def status() -> dict[str, Any]:
        return {
            "ready": why_not_ready() is None,
            "live": reader.connected and node.source is not None,
            "endpoints": len(node.changes),
            "position": node.changes.sequence + 1,
            "readers": server.readers,
        }

    def samples() -> Iterable[Sample]:
        yield metrics.ENDPOINTS.sample(len(node.changes))
        yield from metrics.retained_data(node.changes.budget)
        yield metrics.UPDATES_RECEIVED.sample(node.received)
        yield metrics.UPDATES_STALE.sample(node.stale)
        yield metrics.FEED_CONNECTED.sample(reader.connected)
        yield metrics.FEED_CONNECTS.sample(reader.connects)
        yield metrics.FEED_POSITION.sample(node.changes.sequence + 1, feed.STORE)
        yield metrics.FEED_READERS.sample(server.readers)
        yield metrics.FEED_SENT.sample(server.sent)

    async def drain() -> None:
        server.stop()

    async with (
        internal_service(
            settings,
            key,
            on_reload=life.on_reload,
            ready=why_not_ready,
            status=status,
            samples=samples,
            channels={"/feed": server},
        ),
        health_service(settings, why_not_ready),
    ):
        await run_until(life.stopping, (reader.run(), server.run()), drain)
