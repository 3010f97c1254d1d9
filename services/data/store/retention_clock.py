"""The time by which ages are measured, which a wall clock that goes ahead and comes back moves little."""

import math
from typing import Final

from diem.process.clock import Clock
from services.data.store.write_plan import EARLIEST_MS

PACE: Final = 10
"""Seconds by which the time advances in a second, at most: after a standstill of a week it is right again within 17 h,
and an hour of a clock that is years ahead costs ten hours of a retention."""


class RetentionClock:
    """The wall clock's time, but never more than :data:`PACE` times as fast as time has passed.

    What is deleted by its age does not come back when a clock is corrected. Compared with the monotonic clock while the
    process runs; between two processes the store keeps the time.

    Args:
        clock: of this machine.
        reached_ms: the time that was reached before, in Unix milliseconds; 0: begin with the first that may be right.
    """

    def __init__(self, clock: Clock, reached_ms: int) -> None:
        self._clock = clock
        self._reached_ms = float(reached_ms)
        self._at = clock.monotonic()

    def reached_ms(self) -> int:
        """Return the greatest time that was reached, which never falls: for the order of what is retained."""
        self._advance()
        return int(self._reached_ms)

    def now_ms(self) -> int:
        """Return the present time: the earlier of the wall clock's and the one that was reached."""
        return min(self._advance(), int(self._reached_ms))

    def _advance(self) -> int:
        wall_ms, now = self._clock.wall_ms(), self._clock.monotonic()
        begun = self._reached_ms >= EARLIEST_MS
        limit_ms = self._reached_ms + (now - self._at) * 1000 * PACE if begun else math.inf
        self._reached_ms, self._at = max(self._reached_ms, min(float(wall_ms), limit_ms)), now
        return wall_ms
