"""Bound of the data that is retained with updates: endpoints that were not updated for longest lose theirs first."""

from typing import Final

from diem.protocol.update import MAX_BYTES

MAX_RETAINED_BYTES: Final = 64 * 1024 * 1024
"""Default of the bound of one process."""


class DataBudget:
    """Counts the updates with data that a process retains, and says which of them have to lose it (:meth:`evict`).

    Only updates longer than :data:`MAX_BYTES` count: shorter ones take no more memory than one without data may.
    An update that has lost its data is a plain notification, and its subscribers fetch: nothing is missed.
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
        """Count the update of ``size`` bytes that is retained now."""
        self.bytes -= self._sizes.pop(endpoint, 0)
        if size > MAX_BYTES:
            self._sizes[endpoint] = size
            self.bytes += size

    def evict(self) -> list[bytes]:
        """Return the endpoints whose updates have to lose their data, after all that are retained were counted."""
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
