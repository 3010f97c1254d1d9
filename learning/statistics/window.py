"""A window of time in milliseconds: [start, end)."""

import math
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from diem.errors import ConfigurationError
from diem.protocol.update import iso
from learning.statistics.constants import BUSY_SHARE, MINUTE_MS

_LATEST: Final = 253_370_764_800_000
"""9999-01-01: days around a window are read, too, and ``datetime`` ends with that year."""


@dataclass(frozen=True, slots=True)
class Window:
    """A non-empty interval, in Unix ms.

    Raises:
        ConfigurationError: the interval is empty, or outside the years 1970 to 9998.
    """

    start: int
    end: int

    def __post_init__(self) -> None:
        if self.start < 0 or self.end > _LATEST:
            raise ConfigurationError("the window is not within the years 1970 to 9998")
        if self.start >= self.end:
            raise ConfigurationError(f"the window is empty: {iso(self.start)} is not before {iso(self.end)}")

    @property
    def ms(self) -> int:
        """Length in ms."""
        return self.end - self.start

    @property
    def name(self) -> str:
        """Default name of the window's statistics: its end, in UTC."""
        return f"{datetime.fromtimestamp(self.end / 1000, UTC):%Y%m%d-%H%M%S}"

    @property
    def busy_minutes(self) -> int:
        """Number of the window's busy minutes (docs/traffic.md section 3.3), at least 1."""
        return math.ceil(BUSY_SHARE * math.ceil(self.ms / MINUTE_MS))

    def since(self, recorded: int | None) -> "Window":
        """Return the window without the whole minutes at its start before recording began.

        Args:
            recorded: the time from which there are records (Unix ms), before the end; None: unknown.
        """
        if recorded is None or recorded <= self.start:
            return self
        return Window(self.start + (recorded - self.start) // MINUTE_MS * MINUTE_MS, self.end)

    def clip(self, start: int, end: int) -> tuple[int, int]:
        """Clip an interval to the window; empty when the end is not after the start."""
        return max(start, self.start), min(end, self.end)
