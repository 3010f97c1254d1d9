"""Constants of docs/traffic.md."""

from typing import Final

MINUTE_MS: Final = 60_000
DAY_MS: Final = 86_400_000

EARLIEST_MS: Final = 1_577_836_800_000
"""2020-01-01: earlier times are in seconds, or from a clock that was not set."""
MAX_AHEAD_MS: Final = DAY_MS
"""Maximum time of an event ahead of our clock."""
HISTORY_MS: Final = 7 * DAY_MS
"""Time before a window from which session events are read."""
ENDED_MS: Final = 300_000
"""Time that the end of a session stays in a condensed history, as its other events may have later times."""
SILENCE_MS: Final = 180_000
"""Silence after which a process counts as dead: three missed reports."""
MIN_HELD_MS: Final = 1000
"""Minimum duration of a subscription to be in a client's set."""
DUPLICATE_OVERLAP_MS: Final = 60_000
"""Overlap beyond which two incarnations of a name are two processes, not a restart."""
BUSY_SHARE: Final = 0.05
"""Share of busy minutes in a window."""
LATE_MS: Final = 300_000
"""Delay after which an event counts as late."""
