"""A window of time, at milliseconds: [start, end)."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from diem.errors import ConfigurationError
from diem.protocol.update import iso

_SPAN: Final = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)(s|m|h|d)")
_LATEST: Final = 253_370_764_800_000
"""9999-01-01: days around a window are looked at, too, and calendars end soon after."""
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


@dataclass(eq=False)
class BadWindow(ConfigurationError):
    """The given window is invalid."""

    template = "{reason}"

    reason: str


@dataclass(frozen=True, slots=True)
class Window:
    """Unix ms; not empty."""

    start: int
    end: int

    def __post_init__(self) -> None:
        if self.start < 0 or self.end > _LATEST:
            raise BadWindow("the window is not within the years 1970 to 9998")
        if self.start >= self.end:
            raise BadWindow(f"the window is empty: {iso(self.start)} is not before {iso(self.end)}")

    @property
    def ms(self) -> int:
        """Its length."""
        return self.end - self.start

    @property
    def name(self) -> str:
        """Default name of its statistics: its end, in UTC."""
        return f"{datetime.fromtimestamp(self.end / 1000, UTC):%Y%m%d-%H%M%S}"

    def clip(self, start: int, end: int) -> tuple[int, int]:
        """Clip an interval to the window; empty when the end is not after the start."""
        return max(start, self.start), min(end, self.end)


def parse_time(text: str) -> int:
    """Parse ISO 8601, as UTC when it names no zone, to Unix ms.

    Raises:
        BadWindow: it is none.
    """
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise BadWindow(f"{text!r} is no time: write 2026-01-31T14:00:00Z") from None
    return round((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp() * 1000)


def parse_span(text: str) -> int:
    """Parse a length of time such as `90s`, `15m`, `1h` or `7d` to ms.

    Raises:
        BadWindow: it is none.
    """
    match = _SPAN.fullmatch(text)
    if match is None or not (ms := round(float(match[1]) * _SECONDS[match[2]] * 1000)):
        raise BadWindow(f"{text!r} is no length of time: write 90s, 15m, 1h or 7d")
    return ms
