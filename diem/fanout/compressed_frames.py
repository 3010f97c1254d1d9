"""Compressed frames of the latest updates, each compressed once for all receivers."""

from collections.abc import Callable
from typing import Final

from diem.fanout.data_budget import DataBudget
from diem.protocol.update import MAX_BYTES

MAX_COMPRESSED_BYTES: Final = 16 * 1024 * 1024
"""Default of the bound of one process."""


class CompressedFrames:
    """The compressed frame of each endpoint's latest update, for clients that subscribe after it was sent.

    Bounded in bytes, updates included: the least recently updated endpoints are evicted, and compressed again on
    demand. Updates not longer than the maximum without data (:data:`MAX_BYTES`) are not kept.

    Args:
        compress: returns the compressed frame of an endpoint's update.
    """

    def __init__(self, compress: Callable[[bytes, bytes], bytes], max_bytes: int = MAX_COMPRESSED_BYTES) -> None:
        self._compress = compress
        self._budget = DataBudget(max_bytes)
        self._frames: dict[bytes, tuple[bytes, bytes]] = {}

    def __len__(self) -> int:
        return len(self._frames)

    @property
    def bytes_in_use(self) -> int:
        """Bytes of the frames and their source updates."""
        return self._budget.bytes

    def get(self, endpoint: bytes, update: bytes) -> bytes:
        """Return the frame of an ``update`` of ``endpoint``."""
        if len(update) <= MAX_BYTES:
            return self._compress(endpoint, update)
        known = self._frames.get(endpoint)
        # Retained updates are the published objects themselves, so identity suffices.
        if known is not None and known[0] is update:
            return known[1]
        frame = self._compress(endpoint, update)
        self._frames[endpoint] = update, frame
        self._budget.retain(endpoint, len(update) + len(frame))
        for forgotten in self._budget.evict():
            del self._frames[forgotten]
        return frame
