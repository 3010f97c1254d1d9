"""Clocks for ages of retained data and for expiry, robust against jumps of the wall clock."""

import math
from typing import Final

from diem.process.clock import Clock
from services.data.store.write_plan import EARLIEST_MS

PACE: Final = 10
"""Maximum speed relative to real time: after a week's pause the time is right again within 17 h, and an hour of a clock
years ahead costs ten hours of retention."""


class RetentionClock:
    """The wall clock's time, but never faster than :data:`PACE` times real time.

    Data deleted by age does not come back when a clock is corrected. Compared with the monotonic clock while the
    process runs; between processes the store keeps the time.

    Args:
        clock: of this machine.
        reached_ms: the time reached before, in Unix milliseconds; 0: start with the first plausible one.
    """

    def __init__(self, clock: Clock, reached_ms: int) -> None:
        self._clock = clock
        self._reached_ms = float(reached_ms)
        self._at = clock.monotonic()

    def reached_ms(self) -> int:
        """Return the greatest time reached, which never decreases, for ordering retained data."""
        self._advance()
        return int(self._reached_ms)

    def now_ms(self) -> int:
        """Return the current time: the earlier of the wall clock's and the time reached."""
        return min(self._advance(), int(self._reached_ms))

    def _advance(self) -> int:
        wall_ms, now = self._clock.wall_ms(), self._clock.monotonic()
        begun = self._reached_ms >= EARLIEST_MS
        limit_ms = self._reached_ms + (now - self._at) * 1000 * PACE if begun else math.inf
        self._reached_ms, self._at = max(self._reached_ms, min(float(wall_ms), limit_ms)), now
        return wall_ms


class SteadyClock:
    """The wall clock's time at the start, continued by the monotonic clock: for times to live of seconds.

    A jump of the wall clock has no effect until the next start of the process.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._start_ms = clock.wall_ms() - clock.monotonic() * 1000

    def now_ms(self) -> int:
        """Return the time in Unix milliseconds."""
        return int(self._start_ms + self._clock.monotonic() * 1000)
