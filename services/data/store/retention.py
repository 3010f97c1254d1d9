"""Retention: delete old versions by number and by age, and old idempotent replies, in batches beside the writes."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from sqlalchemy import bindparam, delete, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from services.data.store.tables import HISTORY, REQUESTS
from services.data.store.write_plan import WritePlan

SLACK: Final = 8
"""Old versions beyond its number that an endpoint may have for a while: so many share one deletion."""
BATCH: Final = 32
"""Endpoints that must have too many before any is pruned; at most four times as many are pruned at once."""
OVERDUE: Final = 2 * SLACK
"""Old versions beyond its number with which one endpoint is pruned alone: a store may have few endpoints."""
EXPIRED: Final = 500
"""Versions that are deleted at once because of their age."""
DAY_MS: Final = 24 * 3600 * 1000


class StoredVersion(NamedTuple):
    """One version of an endpoint, current or old. ``content`` is its canonical JSON, empty where it was deleted."""

    version: int
    changed_ms: int
    kind: int
    content: bytes


@dataclass(frozen=True, slots=True)
class HistoryLimits:
    """How many versions of an endpoint are retained, the current one included, and for how long after acceptance.

    A Data Service's own values are in ``services/data/settings.py``; the defaults here are those of a store in a test.
    """

    versions: int = 24
    days: float = 7.0

    @property
    def old(self) -> int:
        """Versions beside the current one."""
        return self.versions - 1

    def oldest_ms(self, now_ms: int) -> int:
        """Return the time before which versions are not retained."""
        return now_ms - int(self.days * DAY_MS)


FORGET_EVERY: Final = 64
"""Groups between two deletions of expired Idempotency-Keys and old versions."""
EXPIRE_EVERY: Final = 100
"""Old versions between two deletions of expired ones; with those of one more group, as many as one deletes."""
KEY_LIFETIME_MS: Final = 24 * 3600 * 1000

_PRUNE: Final = delete(HISTORY).where(
    HISTORY.c.endpoint == bindparam("name"),
    HISTORY.c.version
    <= select(HISTORY.c.version)
    .where(HISTORY.c.endpoint == bindparam("name"))
    .order_by(HISTORY.c.version.desc())
    .limit(1)
    .offset(bindparam("keep"))
    .scalar_subquery(),
)
_OLDEST: Final = select(HISTORY.c.sequence, HISTORY.c.changed_ms).order_by(HISTORY.c.sequence).limit(EXPIRED).subquery()
# One by one: of "all up to a number" PostgreSQL expects a third of the table, and plans for that.
_EXPIRE: Final = delete(HISTORY).where(
    HISTORY.c.sequence.in_(select(_OLDEST.c.sequence).where(_OLDEST.c.changed_ms < bindparam("before")))
)
_FORGET: Final = delete(REQUESTS).where(
    (REQUESTS.c.created_ms < bindparam("before"))
    | (
        REQUESTS.c.created_ms
        <= select(REQUESTS.c.created_ms)
        .order_by(REQUESTS.c.created_ms.desc())
        .limit(1)
        .offset(bindparam("at_most"))
        .scalar_subquery()
    )
)


class Retention:
    """Counts the old versions of each endpoint, and deletes, with each group that is written, those that are due.

    Bounded by the endpoints of the store. A count may be too great (age has removed some), never too small.

    Args:
        limits: of the history.
        counts: old versions of each endpoint at the start.
        max_keys: idempotency keys that are retained.
    """

    def __init__(self, limits: HistoryLimits, counts: Mapping[str, int], max_keys: int = 20_000) -> None:
        self._limits = limits
        self._max_keys = max_keys
        self._counts: dict[str, int] = {}
        self._due: dict[str, None] = {}
        self._overdue: set[str] = set()
        self._until_forget = 0
        self._until_expire = 0
        for endpoint, count in counts.items():
            self._count(endpoint, count)

    async def delete_due(self, connection: AsyncConnection, planned: WritePlan, now_ms: int) -> None:
        """Delete what is due in the transaction of a plan; note its endpoints there, for :meth:`committed`."""
        if planned.heads and (due := self.due()):
            planned.pruned = due
            await prune(connection, due, self._limits.old)
        self._until_forget -= 1
        self._until_expire -= len(planned.replaced) + len(planned.superseded)
        forget = self._until_forget < 0
        if forget or self._until_expire < 0:
            self._until_expire = EXPIRE_EVERY
            await expire(connection, self._limits.oldest_ms(now_ms))
        if forget:
            self._until_forget = FORGET_EVERY
            await forget_requests(connection, before_ms=now_ms - KEY_LIFETIME_MS, at_most=self._max_keys)

    def committed(self, planned: WritePlan) -> None:
        """Count the versions that a commit, and commits missed before it, moved into the history or deleted."""
        self.pruned(planned.pruned)
        if self._limits.old:
            superseded = [head.endpoint for head, _ in planned.superseded]
            self.added([*planned.replaced, *superseded, *(head.endpoint for head in planned.missed)])

    def added(self, endpoints: Iterable[str]) -> None:
        """Count one more old version of each endpoint."""
        for endpoint in endpoints:
            self._count(endpoint, self._counts.get(endpoint, 0) + 1)

    def due(self) -> list[str]:
        """Return endpoints whose oldest versions are to be deleted now; none until it is worth a statement."""
        return list(self._due)[: 4 * BATCH] if len(self._due) >= BATCH or self._overdue else []

    def pruned(self, endpoints: Iterable[str]) -> None:
        """Set the counts of endpoints to their limit."""
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


async def forget_requests(connection: AsyncConnection, *, before_ms: int, at_most: int) -> None:
    """Forget answered requests that are older than ``before_ms``, and the oldest beyond ``at_most``."""
    await connection.execute(_FORGET, {"before": before_ms, "at_most": at_most})


async def count_old(connection: AsyncConnection) -> dict[str, int]:
    """Return the number of old versions of each endpoint."""
    found = await connection.execute(select(HISTORY.c.endpoint, func.count()).group_by(HISTORY.c.endpoint))
    return {row[0]: row[1] for row in found}


async def prune(connection: AsyncConnection, endpoints: Sequence[str], keep: int) -> None:
    """Delete all but the newest ``keep`` old versions of some endpoints."""
    await connection.execute(_PRUNE, [{"name": endpoint, "keep": keep} for endpoint in endpoints])


async def expire(connection: AsyncConnection, before_ms: int) -> None:
    """Delete old versions that were accepted before then: some of the oldest, if there are many."""
    await connection.execute(_EXPIRE, {"before": before_ms})
