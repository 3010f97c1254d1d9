"""Retention: which old versions by number and age, and old idempotent replies, are deleted in batches with writes."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, takewhile
from typing import Final

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from services.data.limits import DAY_MS, MAX_KEYS, HistoryLimits
from services.data.store.index import GREATEST, EndpointHead
from services.data.store.tables import HISTORY
from services.data.store.write_plan import LAST_VERSION, WritePlan

SLACK: Final = 8
"""Old versions allowed beyond an endpoint's limit, so that one statement deletes several."""
BATCH: Final = 32
"""Endpoints over :data:`SLACK` before any is pruned; at most four times as many are pruned at once."""
OVERDUE: Final = 2 * SLACK
"""Old versions beyond the limit at which even a single endpoint is pruned: a store may have few endpoints."""
EXPIRED_PER_STATEMENT: Final = 1500
"""Maximum number of expired versions deleted per statement."""
FORGOTTEN_AT_ONCE: Final = 400
"""Maximum number of deleted endpoints forgotten per transaction."""


FORGET_EVERY: Final = 64
"""Groups of writes between two deletions of expired idempotency keys and versions."""
EXPIRE_EVERY: Final = 1000
"""Versions replaced between two deletions of expired ones; plus one group, the limit of one statement."""
KEY_LIFETIME_MS: Final = DAY_MS


@dataclass(slots=True)
class Deletions:
    """Rows to delete in the transaction of a group of writes.

    Attributes:
        pruned: endpoints of which the newest ``keep`` old versions stay. expired_ms: old versions from before this go,
        at most :data:`EXPIRED_PER_STATEMENT` and the oldest first; None: none. replies_ms: replies to requests from
        before this go, and of ``writers`` the oldest beyond ``max_replies``; None: none.
    """

    pruned: Sequence[str]
    keep: int
    expired_ms: int | None
    replies_ms: int | None
    writers: Sequence[str]
    max_replies: int

    @property
    def any(self) -> bool:
        """True if there is something to delete."""
        return bool(self.pruned) or self.expired_ms is not None or self.replies_ms is not None


class Retention:
    """Counts the old versions of each endpoint, and decides which ones go with the next group of writes.

    Bounded by the endpoints of the store. A count may be too high (expired versions are not subtracted), never too low.

    Args:
        limits: of the history.
        counts: number of old versions by endpoint at the start. max_keys: remembered idempotency keys per writer.
        released: deleted endpoints may be forgotten up to this sequence.
    """

    def __init__(
        self, limits: HistoryLimits, counts: Mapping[str, int], max_keys: int = MAX_KEYS, *, released: int = GREATEST
    ) -> None:
        self._limits = limits
        self.released = released
        """Deleted endpoints may be forgotten up to this sequence: for others, the publisher has to write tombstones."""
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

    def deletions(self, now_ms: int) -> Deletions:
        """Return the rows to delete with the next group of writes."""
        forget = self._until_forget <= 0
        expire = forget or self._until_expire < 0
        return Deletions(
            pruned=self.due(),
            keep=self._limits.old,
            expired_ms=self._limits.oldest_ms(now_ms) if expire else None,
            replies_ms=now_ms - KEY_LIFETIME_MS if forget else None,
            writers=sorted(self._writers) if forget else (),
            max_replies=self._max_keys,
        )

    def forgettable(self, gone: Iterable[EndpointHead], now_ms: int) -> list[EndpointHead]:
        """Return the next deleted endpoints to forget: those whose last version has expired, too.

        ``gone``: in the order of sequence, which is kept. One deleted under a clock that was ahead thus delays the
        others; so does one without versions left, above which no new endpoint could start.
        """
        due = takewhile(lambda head: head.sequence <= self.released, self.expired(gone, now_ms))
        return list(islice(due, FORGOTTEN_AT_ONCE))

    def expired(self, gone: Iterable[EndpointHead], now_ms: int) -> Iterator[EndpointHead]:
        """Return those that are old enough, whether or not they are released."""
        before_ms = self._limits.oldest_ms(now_ms)
        return takewhile(lambda head: head.changed_ms < before_ms and head.version < LAST_VERSION, gone)

    def forgotten(self, endpoints: Iterable[str]) -> None:
        """Drop the counts of forgotten endpoints."""
        for endpoint in endpoints:
            self._counts.pop(endpoint, None)
            self._due.pop(endpoint, None)
            self._overdue.discard(endpoint)

    def deleted(self, deletions: Deletions) -> None:
        """Record that the deletions were committed."""
        self.reset_counts(deletions.pruned)
        if deletions.expired_ms is not None:
            self._until_expire = EXPIRE_EVERY
        if deletions.replies_ms is not None:
            self._until_forget = FORGET_EVERY
            self._writers.clear()

    def committed(self, planned: WritePlan) -> None:
        """Update counts after a commit: versions moved into the history, even by missed commits."""
        if planned.heads or planned.requests:
            self._until_forget -= 1
            self._until_expire -= len(planned.replaced) + len(planned.superseded)
            self._writers.update(writer for _, writer in planned.requests)
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


async def count_old(connection: AsyncConnection) -> dict[str, int]:
    """Return the number of old versions of each endpoint."""
    found = await connection.execute(select(HISTORY.c.endpoint, func.count()).group_by(HISTORY.c.endpoint))
    return {row[0]: row[1] for row in found}
