"""Wires a WebSocket server: sockets, feed reader, heartbeat, and an orderly end."""

import asyncio
import gc
import os
import time

from diem import __version__
from diem.fanout.feed_hub import FeedHub
from diem.fanout.ownership import Ownership
from diem.links.edge import Admission, Edge, EdgeRules, HubService, admission_rules
from diem.links.edge_connection import EdgeConnection
from diem.links.feed_reader import FeedReader
from diem.links.internal import InternalListener
from diem.links.listener import Listener
from diem.links.proxy_port import PATH as PROXY_PATH
from diem.links.proxy_port import ProxyPort
from diem.process import metrics
from diem.process.auth import SharedKey
from diem.process.clock import SystemClock
from diem.process.lifecycle import Lifecycle
from diem.process.listeners import allow_connections, bind, check_bind
from diem.protocol.codes import Close
from diem.traffic.recording import recording
from services.websocket import counters
from services.websocket.server import WebSocketServer
from services.websocket.settings import Settings

LOOK_EVERY = 0.5
"""Seconds between two looks at whether the feed beats."""
SEND_BUFFER = 64 * 1024


async def main(settings: Settings, life: Lifecycle) -> None:
    """Serve clients until asked to stop, then let them go."""
    started = time.monotonic()
    name = f"websocket-{settings.number}"
    key = SharedKey.load(settings.internal_key_file)
    ownership = Ownership() if settings.partitioned else None
    hub = FeedHub(limit=settings.connection_subscriptions, everyone=settings.mode == "all-to-all", ownership=ownership)
    edge = Edge(hub.fanout, Admission(admission_rules(settings)), _edge_rules(settings, name), HubService(hub))
    server = WebSocketServer(hub, edge, SystemClock(), ownership)
    proxies = ProxyPort(edge, hub)
    reader = FeedReader(settings.feed_url, key, server, sockets=settings.internal_sockets)

    allow_connections(settings.capacity)
    # Clients without tokens are admitted by origin and address; a public address needs at least configured origins.
    check_bind(settings.host, authenticated=bool(settings.origins), what="client listener")
    public = Listener(bind(settings.host, settings.port), lambda: EdgeConnection(edge), send_buffer=SEND_BUFFER)
    internal = InternalListener(
        settings.internal_host,
        settings.internal_port,
        key=key,
        ready=server.why_not_ready,
        status=lambda: {
            "process": name,
            "pid": os.getpid(),
            "version": __version__,
            "mode": settings.mode,
            "uptime_seconds": round(time.monotonic() - started, 1),
            "proxies": len(proxies),
            **server.status(),
        },
        ends={PROXY_PATH: proxies},
        sockets=settings.internal_sockets,
    )
    forget = metrics.register(lambda: counters.samples(server, reader, proxies))
    await internal.start()
    await public.start()
    # What exists now lives as long as the process: the collector need not look at it again.
    gc.collect()
    gc.freeze()
    async with recording(settings, edge), asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(work) for work in (reader.run(), edge.wheel.run(), proxies.run(), _look(server))]
        await life.stopping.wait()
        public.stop()
        proxies.close(Close.RESTART, "retry=0")
        await edge.drain(life.drain_seconds)
        for task in running:
            task.cancel()
    internal.stop()
    forget()


async def _look(server: WebSocketServer) -> None:
    while True:
        await asyncio.sleep(LOOK_EVERY)
        server.look()


def _edge_rules(settings: Settings, name: str) -> EdgeRules:
    return EdgeRules(
        server=name,
        mode=settings.mode,
        subscriptions=settings.connection_subscriptions,
        drain_seconds=settings.drain_seconds,
    )
