"""Detection of edges with undelivered writes: by version, per edge and partition; pure.

Times are seconds of a monotonic clock. An edge may skip versions: a later one covers earlier ones.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from deploy.terminal import amount
from diem.client import Event

MAX_WRITES: Final = 600
"""Maximum number of remembered writes: for edges late for longer, the oldest are forgotten."""
MAX_SHOWN: Final = 12
"""Maximum number of partitions named in a line."""


class Late(NamedTuple):
    """A late edge."""

    partitions: tuple[int, ...]
    """The late ones; none if disconnected without ever having any."""
    since: float
    """Time of the oldest undelivered write, or of the connection loss."""
    connected: bool
    reason: str = ""
    """Reason of the last failed attempt to connect or subscribe; empty if unknown."""

    def line(self, edge: str, now: float) -> str:
        """Return the line about it."""
        number, seconds = len(self.partitions), now - self.since
        shown = ", ".join(map(str, self.partitions[:MAX_SHOWN])) + (", ..." if number > MAX_SHOWN else "")
        if self.connected:
            text = f"nothing for {seconds:.0f} s of {'partition' if number == 1 else 'partitions'} {shown}"
        else:
            text = f"not connected for {seconds:.0f} s"
            text += f" ({amount(number, 'partition')}: {shown})" if number else ""
        return f"{edge} is late: {text}" + (f": {self.reason}" if self.reason else "")


class Writes:
    """The accepted writes, each of all endpoints."""

    def __init__(self) -> None:
        self._kept: deque[tuple[float, Mapping[str, int]]] = deque(maxlen=MAX_WRITES)

    def add(self, versions: Mapping[str, int], now: float) -> None:
        """Remember a write: endpoint -> version."""
        self._kept.append((now, versions))

    def due_since(self, name: str, version: int) -> float | None:
        """Return the time of the oldest write after this version; None without one."""
        first = bisect_right(self._kept, version, key=lambda write: write[1].get(name, 0))
        return self._kept[first][0] if first < len(self._kept) else None


@dataclass
class Delivery:
    """Deliveries of one partition by one edge."""

    since: float
    """Time from which writes are due."""
    version: int = 0
    """Greatest version delivered or reported by the edge."""
    confirmed: bool = False
    """True once the edge has confirmed the subscription: only later updates show its delay."""
    delay_s: float | None = None
    """Of the last update."""


@dataclass
class WatchedEdge:
    """Deliveries of one edge, by its clients' events."""

    names: Mapping[str, int]
    """Endpoint -> partition."""
    lost_at: float | None
    """Time of the connection loss, at first the start; None while connected."""
    partial: bool = False
    """True if it must deliver only confirmed endpoints."""
    several: bool = False
    """True with several connections: losing one is no disconnection, and shows as late updates."""
    reason: str = ""
    answered: bool = False
    """True once it has confirmed or refused anything."""
    deliveries: dict[str, Delivery] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.partial:
            self.deliveries = {name: Delivery(self.lost_at or 0.0) for name in self.names}

    def apply(self, event: Event, now: float, unix_s: float) -> None:
        """Apply an event; an update's version is the Unix time of its commit in ms."""
        name, version = event.endpoint or "", event.version or 0
        delivery = self.deliveries.get(name)
        match event.kind:
            case "open":
                self.lost_at, self.reason = None, ""
            case "closed" if not self.several:
                self.lost_at = now if self.lost_at is None else self.lost_at
                self.reason = event.message or self.reason
            case "subscribed":
                self.answered = True
                delivery = self.deliveries.setdefault(name, Delivery(now))
                delivery.confirmed = True
                delivery.version = max(delivery.version, version)
            case "rejected":
                self.answered = True
                if self.partial:
                    self.deliveries.pop(name, None)
                else:
                    self.reason = event.message
            case "update" if delivery is not None and version > delivery.version:
                delivery.version = version
                if delivery.confirmed:
                    delivery.delay_s = max(0.0, unix_s - version / 1000)

    def is_measured(self) -> bool:
        """Return whether it is connected and has delivered an update of each of its partitions."""
        measured = all(each.delay_s is not None for each in self.deliveries.values())
        return self.lost_at is None and self.answered and measured

    def delay_s(self, writes: Writes, now: float) -> float | None:
        """Return the longest delay of its partitions, of the last or the due update; None if unknown."""
        waiting = self._due(writes)
        known = [
            max(each.delay_s, now - waiting.get(name, now))
            for name, each in self.deliveries.items()
            if each.delay_s is not None
        ]
        return max(known, default=None)

    def late(self, writes: Writes, now: float, late_after_s: float) -> Late | None:
        """Return its late partitions; None without any."""
        due = {name: at for name, at in self._due(writes).items() if now - at >= late_after_s}
        lost = [] if self.lost_at is None or now - self.lost_at < late_after_s else [self.lost_at]
        if not due and not lost:
            return None
        partitions = tuple(sorted(self.names[name] for name in due))
        return Late(partitions, min([*due.values(), *lost]), self.lost_at is None, self.reason)

    def _due(self, writes: Writes) -> dict[str, float]:
        """Return the endpoints with undelivered writes, and the times since when they are due."""
        found = ((name, each, writes.due_since(name, each.version)) for name, each in self.deliveries.items())
        return {name: max(at, each.since) for name, each, at in found if at is not None}
