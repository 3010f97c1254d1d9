"""The order of polls: by their due time, and those of new endpoints in turn with them. Pure."""

from heapq import heapify, heappop, heappush
from math import ceil, inf
from typing import Final
from zlib import crc32

MIN_STALE: Final = 64
"""Replaced entries of the heap that are not worth a new heap."""


def next_slot(name: str, after: float, every: float) -> float:
    """Return the first time not before ``after`` at which an endpoint is polled, once ``every`` so many seconds.

    The times of different endpoints are spread over the interval, and are the same in every process.
    """
    phase = every * crc32(name.encode()) / (1 << 32)
    return phase + ceil((after - phase) / every) * every


class PollQueue:
    """Names with the times at which they are due.

    Where more are due than can be polled, new ones and others take turns: neither do many new ones hold up those that
    are displayed, nor does a backlog hold up the first poll of an endpoint.
    """

    def __init__(self) -> None:
        self._due: dict[str, float] = {}
        self._heap: list[tuple[float, str]] = []
        self._new: dict[str, None] = {}
        self._is_new_next = True

    def __contains__(self, name: str) -> bool:
        return name in self._due or name in self._new

    def add(self, name: str, due: float) -> None:
        """Add a name, or change its time."""
        self._due[name] = due
        heappush(self._heap, (due, name))
        if len(self._heap) > 2 * len(self._due) + MIN_STALE:
            self._heap = [(due, name) for name, due in self._due.items()]
            heapify(self._heap)

    def add_new(self, name: str) -> None:
        """Add a new name, which is due at once."""
        self._new[name] = None

    def discard(self, name: str) -> None:
        """Remove a name."""
        self._due.pop(name, None)
        self._new.pop(name, None)

    def pop(self, now: float) -> str | None:
        """Remove and return a name that is due; None without one."""
        is_due = self._next_due <= now
        if self._new and (self._is_new_next or not is_due):
            self._is_new_next = False
            name = next(iter(self._new))
            del self._new[name]
            return name
        self._is_new_next = True
        if not is_due:
            return None
        name = heappop(self._heap)[1]
        del self._due[name]
        return name

    @property
    def next_at(self) -> float:
        """The time at which a name is due; infinite without one."""
        return -inf if self._new else self._next_due

    @property
    def _next_due(self) -> float:
        while self._heap and self._due.get(self._heap[0][1]) != self._heap[0][0]:
            heappop(self._heap)
        return self._heap[0][0] if self._heap else inf
