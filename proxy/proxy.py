"""A proxy without its client sockets: readiness, snapshots, status and metrics."""

from collections.abc import Iterable
from typing import Any, Final

import structlog

from diem.links.edge import Edge
from diem.links.edge_connection import EdgeConnection
from diem.links.epochs import EpochGuard
from diem.process import metrics
from diem.process.clock import Clock
from diem.process.metrics import Sample
from diem.protocol.assignment import Snapshot
from diem.protocol.codes import Close
from diem.protocol.update import iso
from proxy.routing import Router
from proxy.shared import SharedProxy
from proxy.upstream_pool import UpstreamPool

UNREACHABLE_S: Final = 10.0
"""Seconds without a reachable server after which clients are disconnected: another proxy may reach one."""


MAX_SHOWN: Final = 10
"""Servers named in one line of the log."""


class ProxyClientConnection(EdgeConnection):
    """One client of a proxy."""

    __slots__ = ("_resend_stale_status",)

    def __init__(self, edge: Edge, service: SharedProxy) -> None:
        super().__init__(edge)
        self._resend_stale_status = service.resend_stale_status

    def on_ping_due(self) -> None:
        """Send a ping and a global status every 25 s, then the stale endpoints: the status reports all as live."""
        super().on_ping_due()
        if not self.session.blocked:
            self._resend_stale_status(self)


class Proxy:
    """Applies snapshots of the metadata service, and admits clients."""

    def __init__(
        self,
        *,
        edge: Edge,
        router: Router,
        pool: UpstreamPool,
        service: SharedProxy,
        clock: Clock,
    ) -> None:
        self.edge = edge
        self.service = service
        self.pool = pool
        self._router = router
        self._clock = clock
        self._epochs = EpochGuard()
        self._unreachable_since: float | None = None
        self._warned: frozenset[str] = frozenset()
        """Servers outside of the allow-list that were logged."""
        self._log = structlog.get_logger("proxy")
        edge.publish_status(live=False, since=iso(clock.wall_ms()))

    def apply_snapshot(self, snapshot: Snapshot) -> bool:
        """Route by a new snapshot; the first makes the proxy ready. Return False if it is too old."""
        head, was_behind = snapshot.map.head, self._epochs.behind
        if not self._epochs.admits(head.epoch, self._clock.monotonic(), head.partitions):
            if not was_behind:
                self._log.warning("metadata service has an older map", epoch=head.epoch)
            return False
        first = self._router.snapshot is None
        self._router.apply(snapshot)
        self._warn_of_refused()
        self._keep_links()
        self.service.rerouted()
        if first:
            # Links to the others take a moment; clients can wait for them.
            self.edge.ready = bool(self._router.members) or not self._router.refused
            self.edge.publish_status(live=True, since=iso(self._clock.wall_ms()))
            self._log.info("ready", epoch=head.epoch, servers=sorted(self._router.members))
        return True

    def _warn_of_refused(self) -> None:
        """Log the servers outside the allow-list, and again only when the set changes."""
        refused = self._router.refused
        if refused - self._warned:
            shown = sorted(refused)[:MAX_SHOWN]
            self._log.warning(
                f"{len(refused)} servers are outside of DIEM_PROXY_ALLOWED and ignored, with their endpoints; "
                "add their addresses if they are yours",
                servers=shown,
            )
        self._warned = refused

    def _keep_links(self) -> None:
        """Keep links to all members, and to former members still serving an endpoint."""
        self.pool.keep([*self._router.members, *self.service.load])

    def check(self) -> None:
        """Drop unneeded links, and disconnect the clients when no server is reachable; called every second."""
        if self._router.snapshot is None:
            return
        self._keep_links()
        now = self._clock.monotonic()
        if self.pool.open:
            self._unreachable_since = None
            self.edge.ready = True
        elif self._unreachable_since is None:
            self._unreachable_since = now
        elif self.edge.ready and now - self._unreachable_since >= UNREACHABLE_S:
            self._log.warning("no server can be reached: clients are disconnected", clients=len(self.edge.connections))
            self.edge.ready = False
            for client in list(self.edge.connections):
                client.close(Close.NO_UPSTREAM, "retry=2000")

    def why_not_ready(self) -> str | None:
        """Return the reason why the proxy is not ready, None when it is."""
        if self.edge.draining:
            return "draining"
        if self._router.snapshot is None:
            return "no snapshot of the metadata service has arrived yet"
        if self.edge.ready:
            return None
        if self._router.refused and not self._router.members:
            return f"all {len(self._router.refused)} servers are outside of DIEM_PROXY_ALLOWED"
        return "no server can be reached"

    def status(self) -> dict[str, Any]:
        """Return the proxy's part of ``/status``."""
        snapshot = self._router.snapshot
        return {
            "ready": self.why_not_ready() is None,
            "epoch": None if snapshot is None else snapshot.map.head.epoch,
            "servers": sorted(self._router.members),
            "servers_refused": sorted(self._router.refused),
            "servers_open": sorted(self.pool.open),
            "upstreams": len(self.pool.open),
            **self.edge.status(),
            "subscriptions": self.subscriptions(),
            "endpoints": len(self.service.relocator.routes),
            "stale": self.stale_endpoints(),
        }

    def place(self, endpoint: bytes) -> dict[str, Any]:
        """Return what the proxy knows of an endpoint: its retained version, its server, and whether it is stale."""
        held, route = self.service.relay.retained.get(endpoint), self.service.relocator.routes.get(endpoint.decode())
        known = {} if route is None else {"server": route.home, "stale": route.stale}
        return {"version": held[0] if held else None, **known}

    def stale_endpoints(self) -> int:
        """Return the number of endpoints whose server is unreachable or not live."""
        return self.service.relocator.stale

    def subscriptions(self) -> int:
        """Return the number of subscriptions (pairs of client and endpoint)."""
        return self.edge.fanout.registry.entries


def samples(proxy: Proxy) -> Iterable[Sample]:
    """Yield all samples of one scrape."""
    yield from proxy.edge.samples()
    yield metrics.SUBSCRIPTIONS.sample(proxy.subscriptions())
    yield metrics.STALE_ENDPOINTS.sample(proxy.stale_endpoints())
    relay, fanout = proxy.service.relay, proxy.edge.fanout
    yield metrics.ENDPOINTS.sample(len(relay.retained))
    if relay.budget is not None:
        yield from metrics.retained_data(relay.budget)
        yield metrics.COMPRESSED_BYTES.sample(fanout.frames.cache.bytes_in_use)
    yield metrics.UPDATES_RECEIVED.sample(relay.counts.consumed)
    yield metrics.UPDATES_STALE.sample(relay.counts.stale)
    yield metrics.UPDATES_FANNED_OUT.sample(fanout.delivered)
    yield metrics.UPDATES_NOT_SUBSCRIBED.sample(fanout.not_subscribed)
    yield metrics.UPDATES_CONFLATED.sample(relay.conflated)
