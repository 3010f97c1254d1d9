"""Constants of docs/traffic.md."""

from typing import Final

MINUTE_MS: Final = 60_000
DAY_MS: Final = 86_400_000

EARLIEST_MS: Final = 1_577_836_800_000
"""2020-01-01: earlier times are in seconds, or from a clock that was not set."""
MAX_AHEAD_MS: Final = DAY_MS
"""Largest time by which an event may be ahead of our clock."""
HISTORY_MS: Final = 7 * DAY_MS
"""Events of sessions are read from this long before a window."""
ENDED_MS: Final = 300_000
"""The end of a session stays in a condensed history for this long: its other events may have later times."""
SILENCE_MS: Final = 180_000
"""A process silent for longer counts as dead: it missed three reports."""
MIN_HELD_MS: Final = 1000
"""An endpoint that a client was subscribed to for less is not in its set."""
DUPLICATE_OVERLAP_MS: Final = 60_000
"""Two incarnations of a name that overlap for longer are two processes, not a restart."""
BUSY_SHARE: Final = 0.05
"""Share of a window's minutes that are its busy ones."""
LATE_MS: Final = 300_000
"""An event that arrives this much after its time is late."""
MAX_PAIRS: Final = 1000
"""Rows of the table of pairs."""
LARGE_SET: Final = 256
"""Sets with more endpoints are left out of the pairs, whose number grows with the square."""
