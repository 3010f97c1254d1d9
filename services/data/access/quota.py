"""Exact quota of one key or address, never exceeded, even across kills and restarts. Pure.

Per minute: a sliding window, since a fixed one admits twice the quota around its boundary. It counts by whole seconds,
which bounds its memory independently of the quota, at the price of releasing units up to a second late. The count is in
memory: a restart resets it.

Per day (UTC): units are reserved ahead in the store, in blocks, and handed out from memory. A unit that is not reserved
is not handed out, so a killed process loses the rest of its blocks, and no unit is handed out twice.
"""

from collections import deque
from collections.abc import Sequence
from enum import Enum, StrEnum, auto
from typing import Final, NamedTuple

from services.data.access.keys import Key
from services.data.access.plans import DAY_S, MINUTE_S, AccessPlan, RequestLimits

UNLIMITED: Final = 10**15
"""Daily units of a plan without a daily limit, still counted."""
MAX_BLOCK_UNITS: Final = 200
"""Maximum number of units per reservation: requests per commit."""
LEASE_S: Final = 30.0
"""Time after which an unrenewed lease ends: three intervals of reports."""
LEASE_PART: Final = 10
"""Share of the remainder that any process may lease; up to half if it needs more."""
LEAST_LEASE_PART: Final = 20
"""Share of a minute's units below which nothing is leased."""
BLOCKS_PER_DAY: Final = 50
"""Number of blocks of a small quota: a killed process loses two at most (current and next), a twenty-fifth."""


class QuotaOutcome(Enum):
    """Outcome of a request for one unit."""

    ADMITTED = auto()
    RESERVE = auto()
    """No daily units reserved: reserve some, then try again."""
    OVER_MINUTE = auto()
    OVER_DAY = auto()


class Limit(NamedTuple):
    """Current state of one limit."""

    name: str
    """``minute`` or ``day``; ``user_minute`` and ``user_day`` for one user of a key."""
    quota: int
    window_s: int
    remaining: int
    reset_s: int
    """Seconds until more units are available; for the day, until all are."""


class RateWindow:
    """Count within the last 60 seconds; ``now`` is in monotonic seconds. Holds at most 61 cells."""

    __slots__ = ("_cells", "_count")

    def __init__(self) -> None:
        self._cells: deque[list[int]] = deque()
        """Second and count, for seconds with a count."""
        self._count = 0

    def add(self, now: float, units: int = 1) -> None:
        """Count ``units``."""
        second = int(now)
        if self._cells and self._cells[-1][0] >= second:
            self._cells[-1][1] += units
        else:
            self._cells.append([second, units])
        self._count += units

    def remove(self, at: float) -> None:
        """Uncount a unit counted at ``at``; a no-op once that second has left the window."""
        for cell in reversed(self._cells):
            if cell[0] <= int(at):
                if cell[0] == int(at):
                    cell[1] -= 1
                    self._count -= 1
                return

    def count(self, now: float) -> int:
        """Return the count. The second that began 60 seconds ago is included: part of it is within the window."""
        before = int(now) - MINUTE_S
        while self._cells and self._cells[0][0] < before:
            self._count -= self._cells.popleft()[1]
        return self._count

    def wait_s(self, now: float) -> float:
        """Return the seconds until the count falls; 0 when it is 0."""
        return max(0.0, self._cells[0][0] + MINUTE_S + 1 - now) if self.count(now) else 0.0


class Quota:
    """Remaining quota of one key, user or address under its plan."""

    __slots__ = ("_beyond", "_debt", "_leases", "_minute", "_per_day", "_per_minute", "day", "spare", "total")

    def __init__(self, plan: AccessPlan | RequestLimits) -> None:
        self._per_minute = plan.per_minute
        self._per_day = plan.per_day or UNLIMITED
        self._minute = RateWindow()
        self._debt = 0
        """Units charged beyond the minutes so far: later ones have so many less, until it is paid."""
        self._leases: dict[str, tuple[int, float]] = {}
        """Process -> units that it may hand out until it reports, and when this ends; bounded by those that report."""
        self.day = -1
        """Day of :attr:`total` and :attr:`spare`, in days since 1970; -1 before the first."""
        self.total = 0
        """Units of the day reserved in the store, by any process, handed out or not."""
        self.spare = 0
        """Units reserved by this process and not handed out yet."""
        self._beyond = 0
        """Units that this process reserved beyond the plan, because the total was unknown."""

    def acquire(self, now: float, day: int) -> QuotaOutcome:
        """Consume one unit of both limits, or none of either.

        Args:
            now: monotonic seconds.
            day: the current day (UTC), in days since 1970.
        """
        leased = self._leased(now)
        if self._per_minute is not None and self._of_minute(now) + leased >= self._per_minute:
            return QuotaOutcome.OVER_MINUTE
        if self.day != day:
            return QuotaOutcome.RESERVE
        if leased and min(self.total, self._per_day) - self.spare + leased >= self._per_day:
            return QuotaOutcome.OVER_DAY
        if not self.spare:
            return QuotaOutcome.RESERVE if self.total < self._per_day else QuotaOutcome.OVER_DAY
        self.spare -= 1
        if self._per_minute is not None:
            self._minute.add(now)
        return QuotaOutcome.ADMITTED

    def refund(self, at: float, day: int) -> None:
        """Refund a unit acquired at ``at`` on ``day``."""
        self._minute.remove(at)
        if day == self.day:
            self.spare += 1

    def missing(self, day: int, units: int) -> int:
        """Return how many of these consumed units are not reserved by this process."""
        return max(0, units - self.spare) if day == self.day else units

    def charge(self, now: float, day: int, units: int, *, missing: int, total: int | None) -> None:
        """Consume units handed out elsewhere, even beyond the plan: excess units of the minute become a debt.

        Args:
            now: monotonic seconds.
            day: on which they count.
            units: how many there are.
            missing: units of these that were :meth:`missing` and added to the store; the rest is taken from the
                reserve.
            total: units of the day in the store afterwards; None: the store was not queried.
        """
        if self._per_minute is not None:
            room = min(units, max(0, self._per_minute - self._of_minute(now)))
            self._minute.add(now, room)
            self._debt += units - room
        if total is not None:
            self.grant(day, 0, total)
        if day == self.day:
            self.spare = max(0, self.spare - (units - missing))

    def left(self, now: float, day: int) -> int | None:
        """Return the remaining units under both limits, without leased ones; None: the plan has no limit."""
        left: list[int] = []
        if self._per_minute is not None:
            left.append(self._per_minute - self._of_minute(now))
        if self._per_day != UNLIMITED:
            left.append(self._per_day - (self.used(day) or 0))
        return max(0, min(left) - self._leased(now)) if left else None

    def lease(self, process: str, now: float, day: int, wanted: int) -> int | None:
        """Replace a process's lease: the units it may hand out before its next report.

        At most half of the remainder is granted: the other half is for other processes and for requests. So n processes
        that each want everything end up with equal shares, and one more remains.

        Args:
            process: its name.
            now: monotonic seconds.
            day: the current day.
            wanted: units; 0 only ends its lease.

        Returns:
            The units; None: the plan has no limit.
        """
        self._leases.pop(process, None)
        left = self.left(now, day)
        if left is None:
            return None
        if not wanted or left < self._least_lease:
            return 0
        units = max(-(-left // LEASE_PART), min(wanted, -(-left // 2)))
        self._leases[process] = units, now + LEASE_S
        return units

    @property
    def _least_lease(self) -> int:
        # Do not resume clients' data for every single freed unit.
        return max(1, (self._per_minute or 0) // LEAST_LEASE_PART)

    def _leased(self, now: float) -> int:
        if not self._leases:
            return 0
        for process in [process for process, (_, until) in self._leases.items() if until <= now]:
            del self._leases[process]
        return sum(units for units, _ in self._leases.values())

    def _of_minute(self, now: float) -> int:
        """Return the units of the last 60 seconds, after paying the debt with freed units."""
        count = self._minute.count(now)
        if self._debt and self._per_minute is not None and (paid := min(self._debt, self._per_minute - count)) > 0:
            self._minute.add(now, paid)
            self._debt -= paid
            count += paid
        return count

    @property
    def whole(self) -> int:
        """Units of a whole day."""
        return self._per_day

    def block(self, waiting: int = 1) -> int:
        """Return the number of units to reserve for ``waiting`` requests."""
        return min(max(waiting, 1, min(MAX_BLOCK_UNITS, self._per_day // BLOCKS_PER_DAY)), self._per_day)

    def is_low(self, day: int) -> bool:
        """Return whether the next block should be reserved now, ahead of the requests."""
        return self.day == day and self.spare < self.block() // 2 and self.total < self._per_day

    def grant(self, day: int, amount: int, total: int) -> None:
        """Add reserved units.

        Args:
            day: of the reservation; units of another day are dropped.
            amount: reserved units.
            total: units of the day reserved in the store by any process; those beyond the plan are void.
        """
        if day != self.day:
            self.day, self.spare, self._beyond = day, 0, 0
        ours = max(0, min(total, self._per_day) - (total - amount))
        self.spare += ours
        self._beyond += amount - ours
        self.total = total

    def lend(self, day: int, units: int) -> None:
        """Add units without reserving them in the store; only for plans without a daily limit."""
        total = self.total if day == self.day else 0
        self.grant(day, units, total + units)
        # Those handed out are added to the store when the rest is released.
        self._beyond -= units

    def release(self) -> tuple[int, int]:
        """Drop unused units; return the day, and the excess in the store's count for it."""
        day, units = self.day, self.spare + self._beyond
        self.day, self.spare, self._beyond = -1, 0, 0
        return day, units

    def used(self, day: int) -> int | None:
        """Return the units of a day handed out, or lost with a killed process; None when unknown."""
        return min(self.total, self._per_day) - self.spare if self.day == day else None

    def limits(self, now: float, wall_ms: int, used: int | None = None, prefix: str = "") -> list[Limit]:
        """Return the current state of the plan's limits.

        Args:
            now: monotonic seconds.
            wall_ms: Unix time.
            used: used units of the day, if read from the store by the caller.
            prefix: of the limits' names.
        """
        found: list[Limit] = []
        leased = self._leased(now)
        if self._per_minute is not None:
            count = self._of_minute(now)
            reset_s = _up(self._minute.wait_s(now)) if count else MINUTE_S
            reset_s += self._debt // self._per_minute * MINUTE_S
            count += leased
            found.append(
                Limit(f"{prefix}minute", self._per_minute, MINUTE_S, max(0, self._per_minute - count), reset_s)
            )
        if self._per_day != UNLIMITED:
            if used is None:
                used = self.used(day_of(wall_ms)) or 0
            left = max(0, self._per_day - used - leased)
            found.append(Limit(f"{prefix}day", self._per_day, DAY_S, left, DAY_S - wall_ms // 1000 % DAY_S))
        return found


def day_of(wall_ms: int) -> int:
    """Return the day of a Unix time, in days since 1970 (UTC)."""
    return wall_ms // 1000 // DAY_S


def rate_limit_fields(limits: Sequence[Limit]) -> dict[str, str]:
    """Return the fields RateLimit-Policy and RateLimit (draft-ietf-httpapi-ratelimit-headers); none without limits."""
    if not limits:
        return {}
    return {
        "RateLimit-Policy": ", ".join(f'"{limit.name}";q={limit.quota};w={limit.window_s}' for limit in limits),
        "RateLimit": ", ".join(f'"{limit.name}";r={limit.remaining};t={limit.reset_s}' for limit in limits),
    }


def _up(seconds: float) -> int:
    return max(1, -int(-seconds // 1))


class QuotaReason(StrEnum):
    """Decision on a request, with its reason."""

    ADMITTED = "admitted"
    UNKNOWN = "unknown"
    """The key is unknown."""
    REVOKED = "revoked"
    EXPIRED = "expired"
    UNVERIFIED = "unverified"
    """The client token is invalid or expired."""
    NO_PLAN = "no_plan"
    """The plan of the key is no longer configured."""
    ORIGIN = "origin"
    """The key excludes pages of the client's origin."""
    READ_ONLY = "read_only"
    WRITE_ONLY = "write_only"
    """A read with a write key."""
    PREFIX = "prefix"
    MINUTE = "minute"
    DAY = "day"
    USER_MINUTE = "user_minute"
    """Too many requests of one user of the key in a minute."""
    USER_DAY = "user_day"
    TOKENS = "tokens"
    """Too many tokens issued for the key, in all or for one user."""
    UNAVAILABLE = "unavailable"
    """No daily units are reserved, and the store cannot commit."""


class QuotaDecision(NamedTuple):
    """Decision on a request, and the state of the limits after it."""

    reason: QuotaReason
    plan: str = ""
    limits: tuple[Limit, ...] = ()
    wait_s: int = 0
    """Seconds to wait before a retry; 0 when waiting does not help."""
    key: Key | None = None
    granted: tuple[tuple[str, ...], ...] = ()
    """Lists of prefixes (of plan and token), each of which must cover the reader's endpoints; none: everything."""


class QuotaRequest(NamedTuple):
    """The part of a request relevant to plans."""

    endpoint: str | None
    """The requested endpoint; None for other resources."""
    writes: bool = False
    free: bool = False
    """True if the request consumes no unit."""
    mints: bool = False
    """True if it requests a client token, counted separately."""
    origin: str | None = None
    """Origin of the requesting page, with a key or token; None: no page, or the service's own."""


USER_PREFIX: Final = "user_"
"""Prefix of the names of a user's limits and refusal reasons."""
REASONS: Final = {
    QuotaOutcome.ADMITTED: QuotaReason.ADMITTED,
    QuotaOutcome.OVER_MINUTE: QuotaReason.MINUTE,
    QuotaOutcome.OVER_DAY: QuotaReason.DAY,
}
"""For a key or an address."""
USER_REASONS: Final = {
    QuotaOutcome.ADMITTED: QuotaReason.ADMITTED,
    QuotaOutcome.OVER_MINUTE: QuotaReason.USER_MINUTE,
    QuotaOutcome.OVER_DAY: QuotaReason.USER_DAY,
}
"""For one user of a key."""
