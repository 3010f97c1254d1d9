"""Retention: delete old versions by number and by age, and old idempotent replies, in batches beside the writes."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from sqlalchemy import bindparam, delete, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from services.data.store.index import EndpointHead
from services.data.store.tables import HISTORY, REQUESTS
from services.data.store.write_plan import WritePlan

SLACK: Final = 8
"""Old versions beyond its number that an endpoint may have for a while: so many share one look for the oldest."""
BATCH: Final = 32
"""Endpoints that have to have too many before one is looked at, and at most four times as many are at once."""
OVERDUE: Final = 2 * SLACK
"""Old versions beyond its number with which one endpoint is looked at by itself: a store may have few of them."""
EXPIRED: Final = 500
"""Versions that are deleted at once because of their age."""
DAY_MS: Final = 24 * 3600 * 1000


class StoredVersion(NamedTuple):
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


FORGET_EVERY: Final = 64
"""Groups between two looks for Idempotency-Keys and old versions that have expired."""
EXPIRE_EVERY: Final = 100
"""Old versions between two looks for expired ones; with those of one more group, as many as a look deletes."""
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


@dataclass(slots=True)
class RetentionTask:
    """Decides, with each group that is written, what is deleted in its transaction."""

    limits: HistoryLimits
    max_keys: int
    retention: Retention
    _until_forget: int = 0
    _until_expire: int = 0

    async def work(self, connection: AsyncConnection, planned: WritePlan, now_ms: int) -> list[str]:
        """Delete what is due; returns the endpoints whose old versions were, for :meth:`committed`."""
        due: list[str] = []
        if planned.heads:
            due = self.retention.due()
            if due:
                await prune(connection, due, self.limits.old)
        if planned.heads or planned.requests:
            await self._sometimes(connection, now_ms, len(planned.replaced) + len(planned.superseded))
        return due

    async def _sometimes(self, connection: AsyncConnection, now_ms: int, replaced: int) -> None:
        self._until_forget -= 1
        self._until_expire -= replaced
        forget = self._until_forget < 0
        if forget or self._until_expire < 0:
            self._until_expire = EXPIRE_EVERY
            await expire(connection, self.limits.oldest_ms(now_ms))
        if forget:
            self._until_forget = FORGET_EVERY
            await forget_requests(connection, before_ms=now_ms - KEY_LIFETIME_MS, at_most=self.max_keys)

    def committed(self, planned: WritePlan, pruned: Iterable[str], missed: Iterable[EndpointHead]) -> None:
        """The group was committed, and before it, without anybody knowing, ``missed``."""
        self.retention.pruned(pruned)
        if self.limits.old:
            superseded = [head.endpoint for head, _ in planned.superseded]
            self.retention.added([*planned.replaced, *superseded, *(head.endpoint for head in missed)])


async def forget_requests(connection: AsyncConnection, *, before_ms: int, at_most: int) -> None:
    """Forget answered requests that are older than ``before_ms``, and the oldest beyond ``at_most``."""
    await connection.execute(_FORGET, {"before": before_ms, "at_most": at_most})


async def count_old(connection: AsyncConnection) -> dict[str, int]:
    """How many old versions each endpoint has."""
    found = await connection.execute(select(HISTORY.c.endpoint, func.count()).group_by(HISTORY.c.endpoint))
    return {row[0]: row[1] for row in found}


async def prune(connection: AsyncConnection, endpoints: Sequence[str], keep: int) -> None:
    """Delete all but the newest ``keep`` old versions of some endpoints."""
    await connection.execute(_PRUNE, [{"name": endpoint, "keep": keep} for endpoint in endpoints])


async def expire(connection: AsyncConnection, before_ms: int) -> None:
    """Delete old versions that were accepted before then: some of the oldest, if there are many."""
    await connection.execute(_EXPIRE, {"before": before_ms})
