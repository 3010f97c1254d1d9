"""Counts the requests of one key, or of one address, exactly: never more than its plan, whatever happens; pure.

Per minute a sliding window: a fixed one would let twice the quota pass around its boundary. It counts by whole seconds,
which bounds what it holds by the seconds and not by the quota; the price is that a request is free again up to a
second later than it might be. The minute's count is of this process: a restart begins it anew.

Per day (UTC) units are reserved ahead in the store, in blocks, and handed out from memory: what was not reserved is not
handed out, so a process that is killed loses the rest of its blocks and never hands out a unit twice.
"""

from collections import deque
from collections.abc import Sequence
from enum import Enum, StrEnum, auto
from typing import Final, NamedTuple

from services.data.access.keys import Key
from services.data.access.plans import DAY_S, MINUTE_S, AccessPlan

UNLIMITED: Final = 10**15
"""Units of a day without a limit, which are counted all the same."""
MAX_BLOCK: Final = 200
"""Units that are reserved at once: a commit for so many requests."""
BLOCKS_A_DAY: Final = 50
"""So that a killed process loses at most a twenty-fifth of a small quota: the block in use, and the next one."""


class QuotaOutcome(Enum):
    """What became of a request for one unit."""

    ADMITTED = auto()
    RESERVE = auto()
    """None of the day's units is reserved: reserve some, then ask again."""
    OVER_MINUTE = auto()
    OVER_DAY = auto()


class Limit(NamedTuple):
    """One limit as it stands now."""

    name: str
    """``minute`` or ``day``."""
    quota: int
    window_s: int
    remaining: int
    reset_s: int
    """Seconds until there are more units again; until all are, for the day."""


class RateWindow:
    """Counts within the last 60 seconds; ``now`` is monotonic seconds. Holds at most 61 cells."""

    __slots__ = ("_cells", "_count")

    def __init__(self) -> None:
        self._cells: deque[list[int]] = deque()
        """Second and count, for seconds in which something was counted."""
        self._count = 0

    def add(self, now: float) -> None:
        """Count one."""
        second = int(now)
        if self._cells and self._cells[-1][0] >= second:
            self._cells[-1][1] += 1
        else:
            self._cells.append([second, 1])
        self._count += 1

    def count(self, now: float) -> int:
        """How many there are. The second that began 60 seconds ago still counts: part of it is within the window."""
        before = int(now) - MINUTE_S
        while self._cells and self._cells[0][0] < before:
            self._count -= self._cells.popleft()[1]
        return self._count

    def wait_s(self, now: float) -> float:
        """Seconds until there are fewer; 0 when there are none."""
        return max(0.0, self._cells[0][0] + MINUTE_S + 1 - now) if self.count(now) else 0.0


class Quota:
    """What is left to one key or address under its plan."""

    __slots__ = ("_beyond", "_minute", "_per_day", "_per_minute", "day", "spare", "total")

    def __init__(self, plan: AccessPlan) -> None:
        self._per_minute = plan.per_minute
        self._per_day = plan.per_day or UNLIMITED
        self._minute = RateWindow()
        self.day = -1
        """The day that the two below are of, in days since 1970; -1 before the first."""
        self.total = 0
        """Units of that day that are reserved in the store, those handed out included."""
        self.spare = 0
        """Of those, the ones that are ours and were not handed out."""
        self._beyond = 0
        """Of those, the ones that we reserved beyond the plan, not knowing how many there were."""

    def acquire(self, now: float, day: int) -> QuotaOutcome:
        """Take one unit of both limits, or none of either.

        Args:
            now: monotonic seconds.
            day: the day it is (UTC), in days since 1970.
        """
        if self._per_minute is not None and self._minute.count(now) >= self._per_minute:
            return QuotaOutcome.OVER_MINUTE
        if self.day != day:
            return QuotaOutcome.RESERVE
        if not self.spare:
            return QuotaOutcome.RESERVE if self.total < self._per_day else QuotaOutcome.OVER_DAY
        self.spare -= 1
        if self._per_minute is not None:
            self._minute.add(now)
        return QuotaOutcome.ADMITTED

    @property
    def whole(self) -> int:
        """All units of a day."""
        return self._per_day

    def block(self, waiting: int = 1) -> int:
        """How many units to reserve when so many requests wait for one."""
        return min(max(waiting, 1, min(MAX_BLOCK, self._per_day // BLOCKS_A_DAY)), self._per_day)

    def is_low(self, day: int) -> bool:
        """Whether the next block should be reserved now, so that no request waits for it."""
        return self.day == day and self.spare < self.block() // 2 and self.total < self._per_day

    def grant(self, day: int, amount: int, total: int) -> None:
        """Units were reserved.

        Args:
            day: of the reservation; units of another day are of no use any more.
            amount: how many were asked for.
            total: how many are reserved in the store since then, by whomever; beyond the plan they are none.
        """
        if day != self.day:
            self.day, self.spare, self._beyond = day, 0, 0
        ours = max(0, min(total, self._per_day) - (total - amount))
        self.spare += ours
        self._beyond += amount - ours
        self.total = total

    def lend(self, day: int, units: int) -> None:
        """Units that the store does not know of are ours: the plan has no limit a day that they could exceed."""
        total = self.total if day == self.day else 0
        self.grant(day, units, total + units)
        # Those of them that are handed out are added to the store when the rest is given back.
        self._beyond -= units

    def release(self) -> tuple[int, int]:
        """Let go of what was not handed out; returns the day, and by how many units the store has too many for it."""
        day, units = self.day, self.spare + self._beyond
        self.day, self.spare, self._beyond = -1, 0, 0
        return day, units

    def used(self, day: int) -> int | None:
        """Units of a day that were handed out, or lost with a process that was killed; None when that is not known."""
        return min(self.total, self._per_day) - self.spare if self.day == day else None

    def limits(self, now: float, wall_ms: int, used: int | None = None) -> list[Limit]:
        """The limits of the plan as they stand, without those that it does not have.

        Args:
            now: monotonic seconds.
            wall_ms: Unix time.
            used: units of the day, where they are known better than here.
        """
        found: list[Limit] = []
        if self._per_minute is not None:
            count = self._minute.count(now)
            reset_s = _up(self._minute.wait_s(now)) if count else MINUTE_S
            found.append(Limit("minute", self._per_minute, MINUTE_S, self._per_minute - count, reset_s))
        if self._per_day != UNLIMITED:
            if used is None:
                used = self.used(day_of(wall_ms)) or 0
            left = max(0, self._per_day - used)
            found.append(Limit("day", self._per_day, DAY_S, left, DAY_S - wall_ms // 1000 % DAY_S))
        return found


def day_of(wall_ms: int) -> int:
    """The day of a Unix time, in days since 1970 (UTC)."""
    return wall_ms // 1000 // DAY_S


def fields(limits: Sequence[Limit]) -> dict[str, str]:
    """RateLimit-Policy and RateLimit as header fields (draft-ietf-httpapi-ratelimit-headers); empty without limits."""
    if not limits:
        return {}
    return {
        "RateLimit-Policy": ", ".join(f'"{limit.name}";q={limit.quota};w={limit.window_s}' for limit in limits),
        "RateLimit": ", ".join(f'"{limit.name}";r={limit.remaining};t={limit.reset_s}' for limit in limits),
    }


def _up(seconds: float) -> int:
    return max(1, -int(-seconds // 1))


class QuotaReason(StrEnum):
    """What was decided on a request."""

    ADMITTED = "admitted"
    UNKNOWN = "unknown"
    """The key is none of ours, or is revoked."""
    NO_PLAN = "no_plan"
    """The plan of the key is not configured any more."""
    READ_ONLY = "read_only"
    PREFIX = "prefix"
    MINUTE = "minute"
    DAY = "day"
    UNAVAILABLE = "unavailable"
    """Nothing is reserved of the day, and the store cannot commit."""


class QuotaDecision(NamedTuple):
    """The decision, and the limits as they stand after it."""

    reason: QuotaReason
    plan: str = ""
    limits: tuple[Limit, ...] = ()
    wait_s: int = 0
    """After how long it is worth another try; 0 when that does not help."""
    key: Key | None = None


class QuotaRequest(NamedTuple):
    """A request, as far as plans are concerned."""

    endpoint: str | None
    """Whose data it asks for; None when it is not about one endpoint."""
    writes: bool = False
    free: bool = False
    """Whether no unit is taken for it."""


REASONS: Final = {
    QuotaOutcome.ADMITTED: QuotaReason.ADMITTED,
    QuotaOutcome.OVER_MINUTE: QuotaReason.MINUTE,
    QuotaOutcome.OVER_DAY: QuotaReason.DAY,
}
