"""Count requests to a Data Service by minute, as events in a bounded queue."""

from collections import Counter, deque
from collections.abc import Callable, Sequence
from secrets import token_hex
from typing import Final

from diem.protocol.traffic import MAX_ACCESSED, Accessed, TrafficEvent, Type, encode
from diem.traffic.recorder import FULL

MAX_QUEUED: Final = 500
"""Events that wait: at least 7 minutes of all that is counted, hours of what is usual."""


class AccessCounter:
    """Events of type ``access`` (it is what a flusher carries on), encoded when they are given out.

    When the queue is full the newest are dropped and counted. ``recorded`` is the sum of what was written, what was
    lost and what is ``queued``.

    Args:
        edge: the name of this process in events.
        wall_ms: the clock.
        take: gives what was counted since it was last asked.
    """

    def __init__(
        self,
        edge: str,
        wall_ms: Callable[[], int],
        take: Callable[[], Sequence[Accessed]],
        *,
        max_queued: int = MAX_QUEUED,
    ) -> None:
        self.edge = edge
        self.boot = token_hex(6)
        """Which life of this process it is."""
        self.recorded: Counter[str] = Counter()
        """Events by type."""
        self.lost: Counter[str] = Counter()
        """Events by the reason of their loss."""
        self.trouble = FULL
        """The reason of what is lost now."""
        self._wall_ms = wall_ms
        self._take = take
        self._max_queued = max_queued
        self._since = wall_ms()
        self._queue: deque[TrafficEvent] = deque()
        self._given = 0

    @property
    def queued(self) -> int:
        """Events that were not given out yet."""
        return len(self._queue)

    def count(self) -> None:
        """Take what was counted since the last time; nothing makes no event."""
        until = self._wall_ms()
        if until <= self._since:
            # The wall clock was set back: what is counted belongs to the interval that begins now.
            self._since = until
            return
        counted = self._take()
        for start in range(0, len(counted), MAX_ACCESSED):
            self.recorded[Type.ACCESS] += 1
            if len(self._queue) >= self._max_queued:
                self.lost[self.trouble] += 1
                continue
            part = tuple(counted[start : start + MAX_ACCESSED])
            self._queue.append(
                TrafficEvent(Type.ACCESS, "", until, self.edge, since=self._since, until=until, requests=part)
            )
        self._since = until

    def next(self) -> bytes | None:
        """The oldest event, encoded; None when nothing waits."""
        if not self._queue:
            return None
        self._given += 1
        return encode(self._queue.popleft()._replace(id=f"{self.boot}-{self._given}"))

    def lose(self, events: int, reason: str) -> None:
        """Events that were given out, or wait, are lost."""
        self.lost[reason] += events

    def drop_all(self, reason: str) -> None:
        """Nothing will be given out any more."""
        self.lose(self.queued, reason)
        self._queue.clear()
