"""Bound of the data retained with updates: the least recently updated endpoints lose theirs first."""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from diem.protocol.update import MAX_BYTES

MAX_RETAINED_BYTES: Final = 64 * 1024 * 1024
"""Default of the bound of one process."""


class DataBudget:
    """Counts a process's retained updates with data, and selects those to lose it (:meth:`evict`).

    Only updates longer than :data:`MAX_BYTES` count: an update without data may take as much memory. An update stripped
    of its data is a plain notification whose subscribers fetch, so nothing is missed.
    """

    def __init__(self, max_bytes: int = MAX_RETAINED_BYTES) -> None:
        self.max_bytes = max_bytes
        self.bytes = 0
        """Bytes of the counted updates."""
        self.evicted = 0
        """Updates that have lost their data to others."""
        self._sizes: dict[bytes, int] = {}

    def __len__(self) -> int:
        """Return the number of counted updates."""
        return len(self._sizes)

    def retain(self, endpoint: bytes, size: int) -> None:
        """Count a newly retained update of ``size`` bytes."""
        self.bytes -= self._sizes.pop(endpoint, 0)
        if size > MAX_BYTES:
            self._sizes[endpoint] = size
            self.bytes += size

    def evict(self) -> list[bytes]:
        """Return the endpoints whose updates must lose their data, once all retained updates are counted."""
        evicted: list[bytes] = []
        while self.bytes > self.max_bytes:
            oldest = next(iter(self._sizes))
            self.bytes -= self._sizes.pop(oldest)
            evicted.append(oldest)
        self.evicted += len(evicted)
        return evicted

    def release(self, endpoint: bytes) -> None:
        """Stop counting an endpoint that is no longer retained."""
        self.bytes -= self._sizes.pop(endpoint, 0)

    def clear(self) -> None:
        """Stop counting everything."""
        self._sizes.clear()
        self.bytes = 0


Retained = tuple[int, bytes]
"""Version of an endpoint's latest update, and the update or its frame, with data if the budget allows.

A plain tuple: one is made for every update of the system, and a named one takes a sixth of a server's time for it.
"""
WithoutData = Callable[[bytes, bytes], bytes]
"""Returns the value of an endpoint without its data: of updates ``without_data``, of frames ``frame_without_data``."""


def drop_data(retained: dict[bytes, Retained], endpoints: Iterable[bytes], without_data: WithoutData) -> None:
    """Drop the data of retained updates."""
    for endpoint in endpoints:
        if (known := retained.get(endpoint)) is not None:
            version, value = known
            retained[endpoint] = version, without_data(endpoint, value)


def bound_data(
    budget: DataBudget, retained: dict[bytes, Retained], fresh: Mapping[bytes, bytes], without_data: WithoutData
) -> None:
    """Drop data of retained updates to stay within the budget, after ``fresh`` ones were applied."""
    for endpoint, value in fresh.items():
        budget.retain(endpoint, len(value))
    drop_data(retained, budget.evict(), without_data)
