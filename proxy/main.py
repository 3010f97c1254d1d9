"""Entry point of a proxy: wires the client edge, the links to servers and the snapshot client; shuts down in order."""

import asyncio
from functools import partial

from diem.fanout.data_budget import DataBudget
from diem.fanout.fanout import Fanout
from diem.links import client_report
from diem.links.client_auth import ClientAuth
from diem.links.client_report import read_clients
from diem.links.edge import Edge, EdgeRules
from diem.links.health import health_service
from diem.links.public_listener import PublicListener, admission
from diem.links.read_reports import reporting
from diem.links.service import freeze_heap, internal_service, run_until
from diem.process.allow_list import AllowList
from diem.process.clock import SystemClock
from diem.process.key_ring import KeyRing
from diem.process.lifecycle import Lifecycle
from diem.process.tls import LinkTls
from diem.traffic.recording import recording
from proxy.proxy import Proxy, ProxyClientConnection, samples
from proxy.routing import Router
from proxy.settings import Settings
from proxy.shared import SharedProxy
from proxy.snapshot_client import SnapshotClient
from proxy.upstream_pool import UpstreamPool

CHECK_EVERY_S = 1.0


async def main(settings: Settings, life: Lifecycle) -> None:
    """Serve clients until stopped, then drain them."""
    key = KeyRing.load(settings.internal_key_file)
    fanout = Fanout(framed=True)
    clock, later = SystemClock(), asyncio.get_running_loop().call_later
    link_tls = LinkTls(settings.internal_ca_file)
    allowed = AllowList(settings.allowed)
    router = Router(settings.clone, allowed)
    budget = DataBudget(settings.retained_data_bytes) if settings.retained_data_bytes else None
    service = SharedProxy(fanout, router, clock, later, limit=settings.subscriptions, budget=budget)
    pool = UpstreamPool(service, key, sockets=settings.internal_sockets, tls=link_tls, allowed=allowed)
    auth = ClientAuth.of(settings, clock)
    edge = Edge(fanout, admission(settings, settings.number), _edge_rules(settings), service, auth)
    proxy = Proxy(edge=edge, router=router, pool=pool, service=service, clock=clock)
    snapshots = SnapshotClient(
        settings.metadata_urls, key, proxy.apply_snapshot, sockets=settings.internal_sockets, tls=link_tls
    )
    public = PublicListener(settings, life, edge, lambda: ProxyClientConnection(edge, service))

    async def drain() -> None:
        public.stop()
        await edge.drain(life.drain_seconds)

    async with (
        internal_service(
            settings,
            key,
            on_reload=life.on_reload,
            ready=proxy.why_not_ready,
            status=lambda: {"metadata": snapshots.connected, **proxy.status()},
            samples=lambda: samples(proxy),
            reads={client_report.PATH: partial(read_clients, edge, asyncio.get_running_loop().time, proxy.place)},
        ),
        health_service(settings, proxy.why_not_ready),
    ):
        public.start()
        freeze_heap()
        async with recording(settings, edge), reporting(settings, edge, key, link_tls):
            await run_until(life.stopping, [snapshots.run(), edge.run(), auth.run(), _check(proxy)], drain)
        pool.stop()


async def _check(proxy: Proxy) -> None:
    while True:
        await asyncio.sleep(CHECK_EVERY_S)
        proxy.check()


def _edge_rules(settings: Settings) -> EdgeRules:
    return EdgeRules(
        server=settings.process_name,
        mode=settings.scaling,
        subscriptions=settings.subscriptions,
        data=settings.retained_data_bytes > 0,
        compression=settings.compression and settings.retained_data_bytes > 0,
    )
