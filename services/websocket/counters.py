"""Metrics of a WebSocket server."""

from collections.abc import Iterable

from diem.links.feed_reader import FeedReader
from diem.links.proxy_port import ProxyPort
from diem.process import metrics
from diem.process.metrics import Sample
from services.websocket.server import WebSocketServer


def samples(server: WebSocketServer, reader: FeedReader, proxies: ProxyPort) -> Iterable[Sample]:
    """All samples of one scrape."""
    hub, counts = server.hub, server.hub.state.counts
    yield from server.edge.samples()
    yield metrics.PROXY_LINKS.sample(len(proxies))
    yield metrics.SUBSCRIPTIONS.sample(hub.fanout.registry.entries)
    yield metrics.ENDPOINTS.sample(len(hub.state.retained))
    yield metrics.UPDATES_RECEIVED.sample(counts.consumed)
    yield metrics.UPDATES_STALE.sample(counts.stale)
    yield metrics.UPDATES_FANNED_OUT.sample(hub.fanout.delivered)
    yield metrics.UPDATES_NOT_SUBSCRIBED.sample(hub.fanout.not_subscribed)
    yield metrics.FEED_CONNECTED.sample(reader.connected)
    yield metrics.FEED_LIVE.sample(server.liveness.live)
    yield metrics.FEED_CONNECTS.sample(reader.connects)
    for name, position in hub.state.positions.items():
        yield metrics.FEED_POSITION.sample(position, name)
