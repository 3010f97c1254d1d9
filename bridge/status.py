"""Readiness, status and metrics of a bridge: every value shown to operators, read from all of its parts."""

from collections.abc import Iterable
from typing import Any

from bridge.feed_endpoint import FeedEndpoint
from bridge.session import BridgeState, GroupState
from diem.process import metrics
from diem.process.lifecycle import Lifecycle
from diem.process.metrics import Sample


class BridgeStatus:
    """Reports the current state of a bridge."""

    def __init__(self, life: Lifecycle, bridge: BridgeState, endpoint: FeedEndpoint, clone: int | None) -> None:
        self._life = life
        self._bridge = bridge
        self._endpoint = endpoint
        self._clone = clone

    def why_not_ready(self) -> str | None:
        """Return the reason why no reader can be served now; None if one can."""
        if self._life.stopping.is_set():
            return "draining"
        group = self._bridge.group
        return self._bridge.watcher.why_not or self._bridge.fault or (group.membership.fault if group else None)

    def status(self) -> dict[str, Any]:
        """Return the bridge's part of ``/status``."""
        bridge, endpoint = self._bridge, self._endpoint
        partitions = endpoint.session.partitions if endpoint.session else None
        positions = partitions.positions if partitions else {}
        own = {"group": bridge.own_group, "clone": None}
        return {
            "ready": self.why_not_ready() is None,
            "live": endpoint.live,
            "source": bridge.watcher.source,
            "reader": endpoint.link is not None,
            "partitions": bridge.watcher.partitions,
            "position": sum(positions.values()),
            "lag": partitions.lag if partitions and positions else None,
            "bad": bridge.records.counts.bad,
            "misplaced": bridge.records.counts.misplaced,
            "recreated": bridge.recreated,
            **(own if bridge.group is None else self._in_group(bridge.group)),
        }

    def _in_group(self, group: GroupState) -> dict[str, Any]:
        member, map_ = group.membership, group.map.map
        return {
            "group": member.group,
            "clone": self._clone,
            "server": member.owner.server,
            "joined": member.joined,
            "generation": member.generation,
            "assigned": None if member.assigned is None else sorted(member.assigned),
            "assignments": member.assignments,
            "epoch": None if map_ is None else map_.head.epoch,
        }

    def samples(self) -> Iterable[Sample]:
        """Yield the values of the bridge's metrics."""
        bridge, endpoint, counts = self._bridge, self._endpoint, self._bridge.records.counts
        yield metrics.UPDATES_RECEIVED.sample(counts.consumed)
        yield metrics.FEED_SENT.sample(counts.forwarded)
        yield metrics.UPDATES_CONFLATED.sample(counts.conflated)
        yield metrics.UPDATES_BAD.sample(counts.bad)
        yield metrics.UPDATES_TOMBSTONES.sample(counts.tombstones)
        yield metrics.UPDATES_MARKS.sample(counts.watermarks)
        yield metrics.UPDATES_MISPLACED.sample(counts.misplaced)
        yield metrics.FEED_READERS.sample(endpoint.link is not None)
        yield metrics.FEED_LIVE.sample(endpoint.live)
        yield metrics.CONSUMERS_RECREATED.sample(bridge.recreated)
        yield metrics.COMMITS_FAILED.sample(bridge.commits.failures)
        if bridge.group is not None:
            member = bridge.group.membership
            yield metrics.GROUP_JOINED.sample(member.joined)
            yield metrics.GROUP_ASSIGNMENTS.sample(member.assignments)
            yield metrics.GROUP_OWNED.sample(len(member.assigned or ()))
        if endpoint.session is not None:
            yield metrics.KAFKA_LAG.sample(endpoint.session.partitions.lag)
            for name, next_ in endpoint.session.partitions.positions.items():
                yield metrics.FEED_POSITION.sample(next_, name)
