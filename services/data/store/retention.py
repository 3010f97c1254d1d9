"""Retention: deletes old versions by number and age, and old idempotent replies, in batches beside the writes."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice, takewhile
from typing import Final

from sqlalchemy import bindparam, delete, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from services.data.limits import DAY_MS, MAX_KEYS, HistoryLimits
from services.data.store.index import EndpointHead
from services.data.store.tables import HISTORY, REQUESTS
from services.data.store.write_plan import LAST_VERSION, WritePlan

SLACK: Final = 8
"""Old versions allowed beyond an endpoint's limit, so that one statement deletes several."""
BATCH: Final = 32
"""Endpoints over :data:`SLACK` before any is pruned; at most four times as many are pruned at once."""
OVERDUE: Final = 2 * SLACK
"""Old versions beyond the limit at which even a single endpoint is pruned: a store may have few endpoints."""
EXPIRED_PER_STATEMENT: Final = 500
"""Maximum number of expired versions deleted per statement."""
FORGOTTEN_AT_ONCE: Final = 400
"""Maximum number of deleted endpoints forgotten per transaction."""


FORGET_EVERY: Final = 64
"""Groups of writes between two deletions of expired idempotency keys and versions."""
EXPIRE_EVERY: Final = 100
"""Versions replaced between two deletions of expired ones; plus one group, the limit of one statement."""
KEY_LIFETIME_MS: Final = DAY_MS

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
_OLDEST: Final = (
    select(HISTORY.c.sequence, HISTORY.c.changed_ms)
    .order_by(HISTORY.c.sequence)
    .limit(EXPIRED_PER_STATEMENT)
    .subquery()
)
# By a list of sequences: for "all up to a number" PostgreSQL plans for a third of the table.
_EXPIRE: Final = delete(HISTORY).where(
    HISTORY.c.sequence.in_(select(_OLDEST.c.sequence).where(_OLDEST.c.changed_ms < bindparam("before")))
)
_FORGET: Final = delete(REQUESTS).where(REQUESTS.c.created_ms < bindparam("before"))
_FORGET_EXCESS: Final = delete(REQUESTS).where(
    REQUESTS.c.writer == bindparam("of"),
    REQUESTS.c.created_ms
    <= select(REQUESTS.c.created_ms)
    .where(REQUESTS.c.writer == bindparam("of"))
    .order_by(REQUESTS.c.created_ms.desc())
    .limit(1)
    .offset(bindparam("at_most"))
    .scalar_subquery(),
)


class Retention:
    """Counts the old versions of each endpoint, and deletes excess and expired ones in the transactions of writes.

    Bounded by the endpoints of the store. A count may be too high (expired versions are not subtracted), never too low.

    Args:
        limits: of the history.
        counts: number of old versions by endpoint at the start. max_keys: remembered idempotency keys per writer.
        forgets: whether deleted endpoints are forgotten.
    """

    def __init__(
        self, limits: HistoryLimits, counts: Mapping[str, int], max_keys: int = MAX_KEYS, *, forgets: bool = True
    ) -> None:
        self._limits = limits
        self._forgets = forgets
        self._max_keys = max_keys
        self._counts: dict[str, int] = {}
        self._due: dict[str, None] = {}
        self._overdue: set[str] = set()
        self._until_forget = 0
        self._writers: set[str] = set()
        """Writers with new idempotency keys."""
        self._until_expire = 0
        for endpoint, count in counts.items():
            self._count(endpoint, count)

    async def delete_due(self, connection: AsyncConnection, planned: WritePlan, now_ms: int) -> None:
        """Delete due rows in the transaction of a plan; record the pruned endpoints in the plan."""
        if planned.heads and (due := self.due()):
            planned.pruned = due
            await prune(connection, due, self._limits.old)
        self._until_forget -= 1
        self._until_expire -= len(planned.replaced) + len(planned.superseded)
        self._writers.update(writer for _, writer in planned.requests)
        forget = self._until_forget < 0
        if forget or self._until_expire < 0:
            self._until_expire = EXPIRE_EVERY
            await expire(connection, self._limits.oldest_ms(now_ms))
        if forget:
            self._until_forget = FORGET_EVERY
            before_ms, writers = now_ms - KEY_LIFETIME_MS, sorted(self._writers)
            await forget_requests(connection, before_ms=before_ms, writers=writers, at_most=self._max_keys)
            self._writers.clear()

    def forgettable(self, gone: Iterable[EndpointHead], now_ms: int) -> list[EndpointHead]:
        """Return the next deleted endpoints to forget: those whose last version has expired, too.

        ``gone``: in the order of sequence, which is kept. One deleted under a clock that was ahead thus delays the
        others; so does one without versions left, above which no new endpoint could start.
        """
        before_ms = self._limits.oldest_ms(now_ms)
        due = takewhile(lambda head: head.changed_ms < before_ms and head.version < LAST_VERSION, gone)
        return list(islice(due, FORGOTTEN_AT_ONCE)) if self._forgets else []

    def forgotten(self, endpoints: Iterable[str]) -> None:
        """Drop the counts of forgotten endpoints."""
        for endpoint in endpoints:
            self._counts.pop(endpoint, None)
            self._due.pop(endpoint, None)
            self._overdue.discard(endpoint)

    def committed(self, planned: WritePlan) -> None:
        """Update counts after a commit: versions moved into the history, even by missed commits, and pruned ones."""
        self.reset_counts(planned.pruned)
        if self._limits.old:
            superseded = [head.endpoint for head, _ in planned.superseded]
            self.add([*planned.replaced, *superseded, *(head.endpoint for head in planned.missed)])

    def add(self, endpoints: Iterable[str]) -> None:
        """Count one more old version of each endpoint."""
        for endpoint in endpoints:
            self._count(endpoint, self._counts.get(endpoint, 0) + 1)

    def due(self) -> list[str]:
        """Return the endpoints to prune now; empty until enough of them share a statement, or one is overdue."""
        return list(self._due)[: 4 * BATCH] if len(self._due) >= BATCH or self._overdue else []

    def reset_counts(self, endpoints: Iterable[str]) -> None:
        """Reset the counts of pruned endpoints to the limit."""
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


async def forget_requests(connection: AsyncConnection, *, before_ms: int, writers: Sequence[str], at_most: int) -> None:
    """Delete replies to requests from before ``before_ms``, and of ``writers`` the oldest beyond ``at_most``."""
    await connection.execute(_FORGET, {"before": before_ms})
    if writers:
        await connection.execute(_FORGET_EXCESS, [{"of": writer, "at_most": at_most} for writer in writers])


async def count_old(connection: AsyncConnection) -> dict[str, int]:
    """Return the number of old versions of each endpoint."""
    found = await connection.execute(select(HISTORY.c.endpoint, func.count()).group_by(HISTORY.c.endpoint))
    return {row[0]: row[1] for row in found}


async def prune(connection: AsyncConnection, endpoints: Sequence[str], keep: int) -> None:
    """Delete all but the newest ``keep`` old versions of some endpoints."""
    await connection.execute(_PRUNE, [{"name": endpoint, "keep": keep} for endpoint in endpoints])


async def expire(connection: AsyncConnection, before_ms: int) -> None:
    """Delete old versions accepted before ``before_ms``: at most :data:`EXPIRED_PER_STATEMENT`, the oldest first."""
    await connection.execute(_EXPIRE, {"before": before_ms})
