"""Compressed frames of the latest updates, each made once for all who are sent it."""

from collections.abc import Callable
from typing import Final

from diem.fanout.data_budget import DataBudget
from diem.protocol.update import MAX_BYTES

MAX_COMPRESSED_BYTES: Final = 16 * 1024 * 1024
"""Default of the bound of one process."""


class CompressedFrames:
    """The compressed frame of the latest update of each endpoint, for those who subscribe after it was sent.

    Bounded in bytes, updates included: endpoints that were not updated for longest are forgotten, and compressed again
    when they are needed. Updates that are no longer than one without data may be (:data:`MAX_BYTES`) are not kept.

    Args:
        compress: returns the frame of an endpoint's update.
    """

    def __init__(self, compress: Callable[[bytes, bytes], bytes], max_bytes: int = MAX_COMPRESSED_BYTES) -> None:
        self._compress = compress
        self._budget = DataBudget(max_bytes)
        self._frames: dict[bytes, tuple[bytes, bytes]] = {}

    def __len__(self) -> int:
        return len(self._frames)

    @property
    def bytes_in_use(self) -> int:
        """Bytes of the frames, and of the updates that they were made of."""
        return self._budget.bytes

    def get(self, endpoint: bytes, update: bytes) -> bytes:
        """Return the frame of an ``update`` of ``endpoint``."""
        if len(update) <= MAX_BYTES:
            return self._compress(endpoint, update)
        known = self._frames.get(endpoint)
        # Retained updates are the objects that were published: equal ones need not be compared.
        if known is not None and known[0] is update:
            return known[1]
        frame = self._compress(endpoint, update)
        self._frames[endpoint] = update, frame
        self._budget.retain(endpoint, len(update) + len(frame))
        for forgotten in self._budget.evict():
            del self._frames[forgotten]
        return frame
