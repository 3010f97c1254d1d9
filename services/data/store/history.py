"""Which old versions are kept: up to a number for each endpoint and up to an age. Deleted in batches, not per write."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

SLACK: Final = 8
"""Old versions beyond its number that an endpoint may have for a while: so many share one look for the oldest."""
BATCH: Final = 32
"""Endpoints that have to have too many before one is looked at, and at most four times as many are at once."""
OVERDUE: Final = 2 * SLACK
"""Old versions beyond its number with which one endpoint is looked at by itself: a store may have few of them."""
EXPIRED: Final = 500
"""Versions that are deleted at once because of their age."""
DAY_MS: Final = 24 * 3600 * 1000


class Kept(NamedTuple):
    """One version of an endpoint: the current one, or an old one. ``content`` is empty where it was deleted."""

    version: int
    changed_ms: int
    kind: int
    content: bytes


@dataclass(frozen=True, slots=True)
class HistoryLimits:
    """How many versions of an endpoint are kept, the current one among them, and for how long after acceptance."""

    versions: int = 24
    days: float = 7.0

    @property
    def old(self) -> int:
        """Versions beside the current one."""
        return self.versions - 1

    def oldest_ms(self, now_ms: int) -> int:
        """What was accepted before is not kept."""
        return now_ms - int(self.days * DAY_MS)


class Retention:
    """Counts the old versions of each endpoint, and says which endpoints have too many. Pure.

    Bounded by the endpoints of the store. A count may be too great (age has removed some), never too small.
    """

    def __init__(self, limits: HistoryLimits, counts: Mapping[str, int]) -> None:
        self._limits = limits
        self._counts: dict[str, int] = {}
        self._due: dict[str, None] = {}
        self._overdue: set[str] = set()
        for endpoint, count in counts.items():
            self._count(endpoint, count)

    def added(self, endpoints: Iterable[str]) -> None:
        """These have one old version more each."""
        for endpoint in endpoints:
            self._count(endpoint, self._counts.get(endpoint, 0) + 1)

    def due(self) -> list[str]:
        """Endpoints whose oldest versions are to be deleted now; none until it is worth a statement."""
        return list(self._due)[: 4 * BATCH] if len(self._due) >= BATCH or self._overdue else []

    def pruned(self, endpoints: Iterable[str]) -> None:
        """These have as many as they may."""
        for endpoint in endpoints:
            self._due.pop(endpoint, None)
            self._overdue.discard(endpoint)
            self._counts[endpoint] = self._limits.old

    def _count(self, endpoint: str, count: int) -> None:
        self._counts[endpoint] = count
        if count >= self._limits.old + SLACK:
            self._due[endpoint] = None
        if count >= self._limits.old + OVERDUE:
            self._overdue.add(endpoint)
