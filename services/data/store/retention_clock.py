"""Clocks for ages of retained data and for expiry, robust against jumps of the wall clock."""

import math
from typing import Final

from diem.process.clock import Clock
from services.data.store.write_plan import EARLIEST_MS, LATEST_MS

PACE: Final = 10
"""Maximum speed relative to real time: after a week's pause the time is right again within 17 h, and an hour of a clock
years ahead costs ten hours of retention."""
SLEW: Final = 10
"""Part of the time that passes by which times to live follow a clock that was set."""


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
    """Time for times to live of seconds: the monotonic clock, which approaches the wall clock by a tenth of its pace.

    It begins with the wall clock, or with the time reached in the store if that is later: behind a clock that went back
    while no process ran, nothing lives longer than from the last change on. A jump while one runs makes times to live
    a tenth longer or shorter, for ten times the jump. A clock that cannot be right is not followed.

    Args:
        clock: of this machine.
        reached_ms: the time reached before, in Unix milliseconds; 0: none.
    """

    def __init__(self, clock: Clock, reached_ms: int) -> None:
        self._clock = clock
        self._at = clock.monotonic()
        self._now_ms = float(reached_ms) if reached_ms < LATEST_MS else 0.0
        self._begun = False

    def now_ms(self) -> int:
        """Return the time in Unix milliseconds, which never decreases."""
        wall_ms, now = self._clock.wall_ms(), self._clock.monotonic()
        passed_ms, self._at = (now - self._at) * 1000, now
        self._now_ms += passed_ms
        if EARLIEST_MS <= wall_ms < LATEST_MS:
            behind_ms = wall_ms - self._now_ms
            if self._begun:
                self._now_ms += max(-passed_ms / SLEW, min(passed_ms / SLEW, behind_ms))
            else:
                self._begun, self._now_ms = True, self._now_ms + max(0, behind_ms)
        return int(self._now_ms)
