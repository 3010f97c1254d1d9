"""The two clocks of a process behind one seam: a monotonic one for time-outs and a wall clock for versions."""

import time
from typing import Protocol


class Clock(Protocol):
    """Source of time; everything that waits or stamps takes one, so that tests need no sleeping."""

    def monotonic(self) -> float:
        """Return seconds that never go back; only differences mean anything."""
        ...

    def wall_ms(self) -> int:
        """Return Unix time in milliseconds; it may step, so only versions are made from it."""
        ...


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
    """A clock that moves only when told; both of its hands move together."""

    __slots__ = ("_monotonic", "_wall_ms")

    def __init__(self, monotonic: float = 0.0, wall_ms: int = 1_700_000_000_000) -> None:
        self._monotonic = monotonic
        self._wall_ms = float(wall_ms)

    def monotonic(self) -> float:
        """Return the seconds that were given and advanced."""
        return self._monotonic

    def wall_ms(self) -> int:
        """Return the milliseconds that were given, advanced and stepped."""
        return int(self._wall_ms)

    def advance(self, seconds: float) -> None:
        """Move both clocks on. Raises ValueError for a negative span: a monotonic clock cannot go back."""
        if seconds < 0:
            raise ValueError(f"a monotonic clock cannot go back by {-seconds} s")
        self._monotonic += seconds
        self._wall_ms += seconds * 1000

    def step_wall(self, seconds: float) -> None:
        """Step the wall clock alone, forwards or back, as an operator or a time server does."""
        self._wall_ms += seconds * 1000
