"""Which edges have not delivered what was written: by version, for each edge and partition; pure.

Times are seconds of a monotonic clock. An edge may skip versions: a later one stands for those before it.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

LATE_AFTER_S: Final = 10.0
"""Usual age of a write that an edge should have delivered."""
MAX_WRITES: Final = 600
"""Most remembered writes of a partition: of an edge that is late for longer, the oldest are forgotten."""


class Late(NamedTuple):
    """An edge that is late."""

    edge: str
    partitions: tuple[int, ...]
    """Those that are late; none if it is not connected, and was never seen to have any."""
    seconds: float
    """Age of the oldest write that was not delivered, or of the lost connection."""
    connected: bool
    reason: str
    """Why the last attempt to connect or to subscribe failed; empty if that is not known."""


class _Write(NamedTuple):
    version: int
    at: float


@dataclass
class _Delivery:
    """Deliveries of one partition by one edge."""

    since: float
    """From here on writes are due."""
    notified: int = 0
    """Greatest version that was delivered, or that the edge said it has."""
    confirmed: bool = False
    """Whether the edge has confirmed the subscription: only later updates show its delay."""
    delay_s: float | None = None
    """Of the last update."""


@dataclass
class _Edge:
    partial: bool
    lost_at: float | None
    """When the connection was lost; None while there is one."""
    reason: str = ""
    answered: bool = False
    """Whether it has confirmed or refused anything."""
    deliveries: dict[int, _Delivery] = field(default_factory=dict)


class LatenessTracker:
    """Compares what was written with what edges deliver.

    Args:
        partitions: their number; an edge that is not partial has to deliver all.
        late_after_s: age of a write that is late.
    """

    def __init__(self, partitions: int, late_after_s: float = LATE_AFTER_S) -> None:
        self._partitions = range(partitions)
        self._late_after_s = late_after_s
        self._writes: dict[int, deque[_Write]] = {each: deque(maxlen=MAX_WRITES) for each in self._partitions}
        self._edges: dict[str, _Edge] = {}

    @property
    def edges(self) -> list[str]:
        """Return the names of the edges."""
        return list(self._edges)

    def partitions_of(self, edge: str) -> int:
        """Return the number of partitions that an edge has to deliver."""
        return len(self._edges[edge].deliveries)

    def add(self, edge: str, now: float, *, partial: bool) -> None:
        """Add an edge, which is not connected yet. ``partial``: it has to deliver what it confirms alone."""
        added = self._edges[edge] = _Edge(partial, now)
        if not partial:
            added.deliveries = {partition: _Delivery(now) for partition in self._partitions}

    def remove(self, edge: str) -> None:
        """Forget an edge that is no longer part of the system."""
        del self._edges[edge]

    def written(self, versions: Mapping[int, int], now: float) -> None:
        """Apply a write that was accepted: partition -> version."""
        for partition, version in versions.items():
            self._writes[partition].append(_Write(version, now))

    def opened(self, edge: str) -> None:
        """Apply an opened connection."""
        found = self._edges[edge]
        found.lost_at, found.reason = None, ""

    def lost(self, edge: str, now: float, reason: str = "") -> None:
        """Apply a lost connection, or an attempt that failed."""
        found = self._edges[edge]
        found.lost_at = now if found.lost_at is None else found.lost_at
        found.reason = reason or found.reason

    def confirmed(self, edge: str, partition: int, version: int, now: float) -> None:
        """Apply a confirmed subscription: the edge has this version, and delivers later ones."""
        found = self._edges[edge]
        found.answered = True
        delivery = found.deliveries.setdefault(partition, _Delivery(now))
        delivery.confirmed = True
        delivery.notified = max(delivery.notified, version)

    def refused(self, edge: str, partition: int, reason: str) -> None:
        """Apply a subscription that was refused, or has ended: a partial edge need not deliver the partition."""
        found = self._edges[edge]
        found.answered = True
        if found.partial:
            found.deliveries.pop(partition, None)
        else:
            found.reason = reason

    def delivered(self, edge: str, partition: int, version: int, delay_s: float) -> None:
        """Apply an update that arrived ``delay_s`` after its commit."""
        delivery = self._edges[edge].deliveries.get(partition)
        if delivery is not None and version > delivery.notified:
            delivery.notified = version
            if delivery.confirmed:
                delivery.delay_s = max(0.0, delay_s)

    def is_measured(self) -> bool:
        """Return whether every edge is connected, and has delivered an update of each partition that it has."""
        return bool(self._edges) and all(
            edge.lost_at is None
            and edge.answered
            and all(each.delay_s is not None for each in edge.deliveries.values())
            for edge in self._edges.values()
        )

    def delays(self, now: float) -> Iterator[tuple[str, float]]:
        """Yield each edge with the longest delay of its partitions: of the last update, or of the one that is due."""
        for name, edge in self._edges.items():
            known = [
                max(each.delay_s or 0.0, self._waiting_s(partition, each, now))
                for partition, each in edge.deliveries.items()
                if each.delay_s is not None
            ]
            if known:
                yield name, max(known)

    def late(self, now: float) -> Iterator[Late]:
        """Yield the edges that are late."""
        for name, edge in self._edges.items():
            waiting = {partition: self._waiting_s(partition, each, now) for partition, each in edge.deliveries.items()}
            partitions = tuple(sorted(each for each, seconds in waiting.items() if seconds >= self._late_after_s))
            lost_s = 0.0 if edge.lost_at is None else now - edge.lost_at
            if partitions or lost_s >= self._late_after_s:
                seconds = max(lost_s, *(waiting[each] for each in partitions), 0.0)
                yield Late(name, partitions, seconds, edge.lost_at is None, edge.reason)

    def _waiting_s(self, partition: int, delivery: _Delivery, now: float) -> float:
        """Return the age of the oldest write that was not delivered; 0 if all were."""
        due: Iterable[_Write] = (write for write in self._writes[partition] if write.version > delivery.notified)
        oldest = next(iter(due), None)
        return 0.0 if oldest is None else now - max(oldest.at, delivery.since)
