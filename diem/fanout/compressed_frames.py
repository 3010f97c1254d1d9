"""Compressed frames of the latest updates, each made once for all who are sent it."""

from collections.abc import Callable
from typing import Final

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
        self.bytes = 0
        """Bytes of the frames, and of the updates that they were made of."""
        self._compress = compress
        self._max_bytes = max_bytes
        self._frames: dict[bytes, tuple[bytes, bytes]] = {}

    def __len__(self) -> int:
        return len(self._frames)

    def get(self, endpoint: bytes, update: bytes) -> bytes:
        """Return the frame of an ``update`` of ``endpoint``."""
        if len(update) <= MAX_BYTES:
            return self._compress(endpoint, update)
        frames = self._frames
        known = frames.get(endpoint)
        if known is not None:
            # Retained updates are the objects that were published: equal ones need not be compared.
            if known[0] is update:
                return known[1]
            del frames[endpoint]
            self.bytes -= len(known[0]) + len(known[1])
        frame = self._compress(endpoint, update)
        frames[endpoint] = update, frame
        self.bytes += len(update) + len(frame)
        while self.bytes > self._max_bytes:
            oldest, forgotten = frames.pop(next(iter(frames)))
            self.bytes -= len(oldest) + len(forgotten)
        return frame
