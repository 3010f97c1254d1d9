"""The two clocks of a process behind one interface: a monotonic one for time-outs, a wall clock for versions."""

import time
from typing import Protocol


class Clock(Protocol):
    """Source of time, injected everywhere, so that tests need no sleeps."""

    def monotonic(self) -> float:
        """Return non-decreasing seconds; only differences are meaningful."""
        ...

    def wall_ms(self) -> int:
        """Return Unix time in milliseconds; it may step, so it is used for versions only."""
        ...


def until_next(now: float, period_s: float) -> float:
    """Return the seconds until the next multiple of a period, or the one after it if that is nearer than half of one.

    Timers that are set to it wake an idle process together.
    """
    left_s = period_s - now % period_s
    return left_s if left_s >= period_s / 2 else left_s + period_s


class SystemClock:
    """The machine's clocks."""

    __slots__ = ()

    def monotonic(self) -> float:
        """Return the machine's monotonic clock in seconds."""
        return time.monotonic()

    def wall_ms(self) -> int:
        """Return the machine's wall clock in Unix milliseconds."""
        return time.time_ns() // 1_000_000


class ManualClock:
    """A clock for tests, which moves only by :meth:`advance` and :meth:`step_wall`."""

    __slots__ = ("_monotonic", "_wall_ms")

    def __init__(self, monotonic: float = 0.0, wall_ms: int = 1_700_000_000_000) -> None:
        self._monotonic = monotonic
        self._wall_ms = float(wall_ms)

    def monotonic(self) -> float:
        """Return the monotonic seconds."""
        return self._monotonic

    def wall_ms(self) -> int:
        """Return the Unix milliseconds."""
        return int(self._wall_ms)

    def advance(self, seconds: float) -> None:
        """Advance both clocks. Raises ValueError for a negative span."""
        if seconds < 0:
            raise ValueError(f"a monotonic clock cannot go back by {-seconds} s")
        self._monotonic += seconds
        self._wall_ms += seconds * 1000

    def step_wall(self, seconds: float) -> None:
        """Step the wall clock alone, forwards or back, as an operator or a time server would."""
        self._wall_ms += seconds * 1000
