"""Wires a proxy: the edge, the links to servers, the watch of the metadata service, and an orderly end."""

import asyncio
import gc
import os
import time

from diem import __version__
from diem.fanout.fanout import Fanout
from diem.links.acceptor import Listener
from diem.links.edge import Edge, EdgeRules
from diem.links.gate import Gate, gate_rules
from diem.links.internal import InternalListener
from diem.process import metrics
from diem.process.auth import SharedKey
from diem.process.clock import SystemClock
from diem.process.lifecycle import Lifecycle
from diem.process.listeners import bind, check_bind
from diem.process.open_files import allow_connections
from diem.traffic.recording import recording
from proxy import counters
from proxy.allowed import Allowed
from proxy.passthrough import PassthroughProxy
from proxy.proxy import Proxy, ProxyClientConnection
from proxy.routing import Router
from proxy.settings import Settings
from proxy.shared import SharedProxy
from proxy.snapshot_client import SnapshotClient
from proxy.upstream_pool import Dialler, UpstreamPool

LOOK_EVERY = 1.0
SEND_BUFFER = 64 * 1024


async def main(settings: Settings, life: Lifecycle) -> None:
    """Serve clients until asked to stop, then let them go."""
    started = time.monotonic()
    name = settings.process_name
    key = SharedKey.load(settings.internal_key_file)
    fanout = Fanout()
    clock, later = SystemClock(), asyncio.get_running_loop().call_later
    dialler = Dialler(key, settings.internal_sockets)
    standing = UpstreamPool(dialler)
    router = Router(settings.clone, Allowed(settings.allowed), lambda url: service.load[url])
    service: SharedProxy | PassthroughProxy
    if settings.mode == "shared":
        service = SharedProxy(fanout, router, standing, clock, later, limit=settings.subscriptions)
    else:
        service = PassthroughProxy(
            fanout.stats, router, dialler, clock, later, upstreams=settings.upstreams, limit=settings.subscriptions
        )
    standing.receiver = service
    edge = Edge(fanout, Gate(gate_rules(settings)), _edge_rules(settings), service)
    proxy = Proxy(edge=edge, router=router, standing=standing, service=service, watch=lambda: watch, clock=clock)
    watch = SnapshotClient(settings.metadata_urls, key, proxy.take, sockets=settings.internal_sockets)

    allow_connections(settings.capacity, settings.upstreams if settings.mode == "passthrough" else 0)
    # Clients without tokens are admitted by origin and address; a public address needs at least configured origins.
    check_bind(settings.host, authenticated=bool(settings.origins), what="client listener")
    public = Listener(
        bind(settings.host, settings.port), lambda: ProxyClientConnection(edge, service.remind), send_buffer=SEND_BUFFER
    )
    internal = InternalListener(
        settings.internal_host,
        settings.internal_port,
        key=key,
        ready=proxy.why_not_ready,
        status=lambda: {
            "process": name,
            "pid": os.getpid(),
            "version": __version__,
            "mode": settings.mode,
            "uptime_seconds": round(time.monotonic() - started, 1),
            **proxy.status(),
        },
        sockets=settings.internal_sockets,
    )
    forget = metrics.register(lambda: counters.samples(proxy))
    await internal.start()
    await public.start()
    # What exists now lives as long as the process: the collector need not look at it again.
    gc.collect()
    gc.freeze()
    async with recording(settings, edge), asyncio.TaskGroup() as tasks:
        works = [watch.run(), standing.run(), edge.wheel.run(), _look(proxy)]
        if isinstance(service, PassthroughProxy):
            works.append(service.wheel.run())
        running = [tasks.create_task(work) for work in works]
        await life.stopping.wait()
        public.stop()
        await edge.drain(life.drain_seconds)
        for task in running:
            task.cancel()
    dialler.stop()
    internal.stop()
    forget()


async def _look(proxy: Proxy) -> None:
    while True:
        await asyncio.sleep(LOOK_EVERY)
        proxy.look()


def _edge_rules(settings: Settings) -> EdgeRules:
    return EdgeRules(
        server=settings.process_name,
        mode=settings.scaling,
        subscriptions=settings.subscriptions,
        drain_seconds=settings.drain_seconds,
    )
