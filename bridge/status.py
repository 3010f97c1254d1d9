"""Readiness, status and metrics of a bridge."""

import os
import time
from collections.abc import Iterable
from typing import Any

from bridge.feed_endpoint import FeedEndpoint
from bridge.settings import Settings
from bridge.state import BridgeState, GroupState
from diem import __version__
from diem.process import metrics
from diem.process.lifecycle import Lifecycle
from diem.process.metrics import Sample


class BridgeStatus:
    """Looks at a bridge when it is asked."""

    def __init__(self, settings: Settings, life: Lifecycle, shared: BridgeState, serving: FeedEndpoint) -> None:
        self._name = settings.process_name
        self._clone = settings.clone
        self._life = life
        self._shared = shared
        self._serving = serving
        self._started = time.monotonic()

    def why_not_ready(self) -> str | None:
        """Why no reader can be served now; None if one can."""
        if self._life.stopping.is_set():
            return "draining"
        group = self._shared.group
        return self._shared.watch.why_not or self._shared.fault or (group.membership.fault if group else None)

    def status(self) -> dict[str, Any]:
        """The JSON values of ``/status``."""
        shared, serving = self._shared, self._serving
        positions = serving.session.positions if serving.session else None
        own = {"group": shared.own_group, "clone": None}
        return {
            "process": self._name,
            "pid": os.getpid(),
            "version": __version__,
            "ready": self.why_not_ready() is None,
            "live": serving.live,
            "source": shared.watch.source,
            "reader": serving.link is not None,
            "partitions": shared.watch.partitions,
            "position": sum(positions.next.values()) if positions else 0,
            "lag": positions.lag if positions and positions.tracks else None,
            "bad": shared.records.counts.bad,
            "recreated": shared.recreated,
            "uptime_seconds": round(time.monotonic() - self._started, 1),
            **(own if shared.group is None else self._in_group(shared.group)),
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
        """The values of the bridge's metrics."""
        shared, serving, counts = self._shared, self._serving, self._shared.records.counts
        yield metrics.UPDATES_RECEIVED.sample(counts.consumed)
        yield metrics.FEED_SENT.sample(counts.forwarded)
        yield metrics.UPDATES_CONFLATED.sample(counts.conflated)
        yield metrics.UPDATES_BAD.sample(counts.bad)
        yield metrics.UPDATES_TOMBSTONES.sample(counts.tombstones)
        yield metrics.UPDATES_MARKS.sample(counts.marks)
        yield metrics.FEED_READERS.sample(serving.link is not None)
        yield metrics.FEED_LIVE.sample(serving.live)
        yield metrics.CONSUMERS_RECREATED.sample(shared.recreated)
        yield metrics.COMMITS_FAILED.sample(shared.commits.failures)
        if shared.group is not None:
            member = shared.group.membership
            yield metrics.GROUP_JOINED.sample(member.joined)
            yield metrics.GROUP_ASSIGNMENTS.sample(member.assignments)
            yield metrics.GROUP_OWNED.sample(len(member.assigned or ()))
        if serving.session is not None:
            yield metrics.KAFKA_LAG.sample(serving.session.positions.lag)
            for name, next_ in serving.session.positions.next.items():
                yield metrics.FEED_POSITION.sample(next_, name)
