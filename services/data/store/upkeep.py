"""What a store deletes as it goes, in batches: old versions by number and by age, and answered requests."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import bindparam, delete, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from services.data.store.history import EXPIRED, HistoryLimits, Retention
from services.data.store.plan import Plan
from services.data.store.state import Head
from services.data.store.tables import HISTORY, REQUESTS

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
class Upkeep:
    """Decides, with each group that is written, what is deleted in its transaction."""

    limits: HistoryLimits
    max_keys: int
    retention: Retention
    _until_forget: int = 0
    _until_expire: int = 0

    async def work(self, connection: AsyncConnection, planned: Plan, now_ms: int) -> list[str]:
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

    def committed(self, planned: Plan, pruned: Iterable[str], missed: Iterable[Head]) -> None:
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
