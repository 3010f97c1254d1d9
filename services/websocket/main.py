"""Entry point of a WebSocket server: wires listeners, feed reader and liveness check, and shuts down in order."""

import asyncio
import contextlib
from collections.abc import Iterable
from functools import partial
from typing import Final

from diem.fanout.data_budget import DataBudget
from diem.fanout.feed_hub import FeedHub
from diem.fanout.ownership import Ownership
from diem.links import client_report
from diem.links.client_auth import ClientAuth
from diem.links.client_report import read_clients
from diem.links.edge import Edge, EdgeRules, HubService
from diem.links.edge_connection import EdgeConnection
from diem.links.feed_reader import FeedReader
from diem.links.health import health_service
from diem.links.interest import InterestReporter
from diem.links.internal import READS
from diem.links.proxy_port import PATH as PROXY_PATH
from diem.links.proxy_port import ProxyPort
from diem.links.public_listener import PublicListener, admission
from diem.links.read_reports import reporting
from diem.links.service import freeze_heap, internal_service, run_until
from diem.process import metrics
from diem.process.clock import SystemClock, until_next
from diem.process.key_ring import KeyRing
from diem.process.lifecycle import Lifecycle
from diem.process.metrics import Sample
from diem.process.tls import LinkTls
from diem.protocol.codes import Close
from diem.protocol.watermark import offset_of
from diem.traffic.recording import recording
from services.websocket.retained_reads import read_retained
from services.websocket.server import WebSocketServer
from services.websocket.settings import Settings

CHECK_EVERY_S: Final = 0.5
"""Seconds between two checks of the feed's heartbeats."""
HAND_OVER_SHARE: Final = 0.6
"""Share of the drain time for others to take over the partitions of a group's server, before closing clients."""
HAND_OVER_CHECK_S: Final = 0.25


async def main(settings: Settings, life: Lifecycle) -> None:
    """Serve clients until stopped, then drain them."""
    name = settings.process_name
    key = KeyRing.load(settings.internal_key_file)
    ownership = Ownership() if settings.partitioned else None
    hub = FeedHub(
        limit=settings.subscriptions,
        everyone=settings.mode == "all-to-all",
        ownership=ownership,
        budget=DataBudget(settings.retained_data_bytes) if settings.retained_data_bytes else None,
    )
    clock = SystemClock()
    auth = ClientAuth.of(settings, clock)
    edge = Edge(hub.fanout, admission(settings, settings.number), _edge_rules(settings, name), HubService(hub), auth)
    server = WebSocketServer(hub, edge, clock, ownership, life.tracer)
    proxies = ProxyPort(edge, hub)
    link_tls = LinkTls(settings.internal_ca_file)
    first, *others = settings.feed_url
    reader = FeedReader(first, key, server, others=others, sockets=settings.internal_sockets, tls=link_tls)
    reporter = InterestReporter(
        hub.fanout.registry, settings.interest_url, key, sockets=settings.internal_sockets, tls=link_tls
    )
    public = PublicListener(settings, life, edge, lambda: EdgeConnection(edge))

    async def drain() -> None:
        public.stop()
        edge.draining = True
        began = asyncio.get_running_loop().time()
        if ownership is not None and hub.fanout.registry.entries and reader.leave():
            await _hand_over(server, HAND_OVER_SHARE * life.drain_seconds)
        proxies.close(Close.RESTART, "retry=0")
        await edge.drain(life.drain_seconds - (asyncio.get_running_loop().time() - began))

    async with (
        internal_service(
            settings,
            key,
            on_reload=life.on_reload,
            ready=server.why_not_ready,
            status=lambda: {"mode": settings.mode, "proxies": len(proxies), **server.status()},
            samples=lambda: _samples(server, reader, proxies),
            channels={PROXY_PATH: proxies},
            reads={
                READS: partial(read_retained, hub, ownership),
                client_report.PATH: partial(read_clients, edge, asyncio.get_running_loop().time, server.place),
            },
        ),
        health_service(settings, server.why_not_ready),
    ):
        public.start()
        freeze_heap()
        async with recording(settings, edge), reporting(settings, edge, key, link_tls):
            works = (reader.run(), reporter.run(), edge.run(), auth.run(), proxies.run(), _check_liveness(server))
            await run_until(life.stopping, works, drain)


async def _hand_over(server: WebSocketServer, seconds: float) -> None:
    """Wait until others own this server's partitions, and its clients and proxies are subscribed there."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await server.handed_over.wait()
            while not server.is_left():  # noqa: ASYNC110 - once in a life
                await asyncio.sleep(HAND_OVER_CHECK_S)


async def _check_liveness(server: WebSocketServer) -> None:
    loop = asyncio.get_running_loop()
    while True:
        await asyncio.sleep(until_next(loop.time(), CHECK_EVERY_S))
        server.check_liveness()
        server.measure_next_delay()


def _edge_rules(settings: Settings, name: str) -> EdgeRules:
    return EdgeRules(
        server=name,
        mode=settings.mode,
        subscriptions=settings.subscriptions,
        data=settings.retained_data_bytes > 0,
        compression=settings.compression and settings.retained_data_bytes > 0,
    )


def _samples(server: WebSocketServer, reader: FeedReader, proxies: ProxyPort) -> Iterable[Sample]:
    """Return all samples of one scrape."""
    hub, counts = server.hub, server.hub.state.counts
    yield from server.edge.samples()
    yield metrics.PROXY_LINKS.sample(len(proxies))
    yield metrics.SUBSCRIPTIONS.sample(hub.fanout.registry.entries)
    yield metrics.ENDPOINTS.sample(len(hub.state.retained))
    if hub.state.budget is not None:
        yield from metrics.retained_data(hub.state.budget)
        yield metrics.COMPRESSED_BYTES.sample(hub.fanout.frames.cache.bytes_in_use)
    yield metrics.UPDATES_RECEIVED.sample(counts.consumed)
    yield metrics.UPDATES_STALE.sample(counts.stale)
    yield metrics.UPDATES_FANNED_OUT.sample(hub.fanout.delivered)
    yield metrics.UPDATES_NOT_SUBSCRIBED.sample(hub.fanout.not_subscribed)
    yield metrics.FEED_CONNECTED.sample(reader.connected)
    yield metrics.FEED_LIVE.sample(server.liveness.live)
    if (silence := server.silence_s()) is not None:
        yield metrics.FEED_SILENCE.sample(silence)
    if (delay := server.delay_s()) is not None:
        yield metrics.DELIVERY_DELAY.sample(delay)
    yield metrics.FEED_CONNECTS.sample(reader.connects)
    for name, position in hub.state.positions.items():
        yield metrics.FEED_POSITION.sample(offset_of(position), name)
