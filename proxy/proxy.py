"""One proxy without its sockets to clients: what it routes by, which mode it is in, and whether it is of any use."""

from collections.abc import Callable
from typing import Any, Final

import structlog

from diem.links.edge import Edge
from diem.links.edge_connection import EdgeConnection
from diem.links.epochs import Epochs
from diem.process.clock import Clock
from diem.protocol.assignment import Snapshot
from diem.protocol.codes import Close
from diem.protocol.update import iso
from proxy.passthrough import PassthroughProxy
from proxy.relocation import Relocator
from proxy.routing import Router
from proxy.shared import SharedProxy
from proxy.snapshot_client import SnapshotClient
from proxy.upstream_pool import UpstreamPool

NOBODY_FOR: Final = 10.0
"""Seconds without any server after which clients are sent away: another proxy may reach some."""


class ProxyClientConnection(EdgeConnection):
    """One client of a proxy."""

    __slots__ = ("_remind",)

    def __init__(self, edge: Edge, remind: Callable[["EdgeConnection"], None]) -> None:
        super().__init__(edge)
        self._remind = remind

    def turn(self, *, due: bool) -> None:
        """The status every 25 s speaks for all endpoints: what is stale nevertheless follows it."""
        super().turn(due=due)
        if due and not self.session.blocked:
            self._remind(self)


class Proxy:
    """Takes snapshots, and tells the edge whether clients may come."""

    def __init__(
        self,
        *,
        edge: Edge,
        router: Router,
        standing: UpstreamPool,
        service: SharedProxy | PassthroughProxy,
        watch: Callable[[], SnapshotClient],
        clock: Clock,
    ) -> None:
        self.edge = edge
        self.service = service
        self.standing = standing
        self._router = router
        self._watch = watch
        self._clock = clock
        self._epochs = Epochs()
        self._alone_since: float | None = None
        self._log = structlog.get_logger("proxy")
        edge.say_status(live=False, since=iso(clock.wall_ms()))

    def take(self, snapshot: Snapshot) -> bool:
        """Route by a new snapshot, unless it is older than the last one; clients are taken from the first one on."""
        head, was_behind = snapshot.map.head, self._epochs.behind
        if not self._epochs.admits(head.epoch, self._clock.monotonic(), head.partitions):
            if not was_behind:
                self._log.warning("metadata service has an older map", epoch=head.epoch)
            return False
        first = self._router.snapshot is None
        self._router.take(snapshot)
        if self._router.refused:
            self._log.warning("servers outside of the allow-list are ignored", servers=self._router.refused)
        self.keep()
        self.service.rerouted()
        if first:
            self.edge.ready = True
            self.edge.say_status(live=True, since=iso(self._clock.wall_ms()))
            self._log.info("ready", epoch=head.epoch, servers=sorted(self._router.members))
        return True

    def keep(self) -> None:
        """Have links to all members, and to who else still serves something."""
        self.standing.keep([*self._router.members, *self.service.load])

    def look(self) -> None:
        """Once a second: drop links that nothing needs, and notice when no server can be reached at all."""
        if self._router.snapshot is None:
            return
        self.keep()
        now = self._clock.monotonic()
        if self.standing.open:
            self._alone_since = None
            self.edge.ready = True
        elif self._alone_since is None:
            self._alone_since = now
        elif self.edge.ready and now - self._alone_since >= NOBODY_FOR:
            self._log.warning("no server can be reached: clients are sent away", clients=len(self.edge.connections))
            self.edge.ready = False
            for client in list(self.edge.connections):
                client.close(Close.NO_UPSTREAM, "retry=2000")

    def why_not_ready(self) -> str | None:
        """Why no clients should be sent here."""
        if self.edge.draining:
            return "draining"
        if self._router.snapshot is None:
            return "the metadata service has not told yet who owns what"
        return None if self.edge.ready else "no server can be reached"

    def followers(self) -> list[Relocator]:
        """All that follow: one, or one for each client."""
        if isinstance(self.service, SharedProxy):
            return [self.service.follower]
        return [passenger.follower for passenger in self.service.passengers.values()]

    def status(self) -> dict[str, Any]:
        """The part of ``/status`` that is this proxy's own."""
        snapshot = self._router.snapshot
        followers = self.followers()
        return {
            "ready": self.why_not_ready() is None,
            "metadata": self._watch().connected,
            "epoch": None if snapshot is None else snapshot.map.head.epoch,
            "servers": sorted(self._router.members),
            "servers_refused": self._router.refused,
            "servers_open": sorted(self.standing.open),
            "upstreams": len(self.standing.open) + (0 if isinstance(self.service, SharedProxy) else self.service.lines),
            "clients": len(self.edge.connections),
            "subscriptions": self.subscriptions(),
            "endpoints": len({name for follower in followers for name in follower}),
            "stale": sum(follower.stale for follower in followers),
        }

    def subscriptions(self) -> int:
        """Pairs of a client and an endpoint."""
        if isinstance(self.service, SharedProxy):
            return self.edge.fanout.registry.entries
        return sum(len(passenger.wanted) for passenger in self.service.passengers.values())
