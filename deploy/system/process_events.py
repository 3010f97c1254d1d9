"""History of the processes of a ``diem up``, for later inspection."""

from collections import deque
from typing import Final

from diem.process.clock import Clock
from diem.protocol.update import iso

MAX_EVENTS: Final = 50
MAX_CHARACTERS: Final = 300


class ProcessEvents:
    """The last :data:`MAX_EVENTS` events, the latest first."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._events: deque[dict[str, str]] = deque(maxlen=MAX_EVENTS)

    def add(self, process: str, text: str) -> None:
        """Add an event of this moment."""
        entry = {"time": iso(self._clock.wall_ms()), "process": process, "text": text[:MAX_CHARACTERS]}
        self._events.appendleft(entry)

    def recent(self) -> list[dict[str, str]]:
        """Return the events as JSON values."""
        return list(self._events)
