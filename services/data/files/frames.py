"""Frames between ``reader`` and ``worker``, and the bounds of the latter."""

import struct
from typing import Final, NamedTuple

FRAME: Final = struct.Struct(">LQ")
"""Lengths of a head, and of the content after it."""
CONVERT, SUGGEST = "convert", "suggest"


class Bounds(NamedTuple):
    """Of the conversion of one file."""

    memory_bytes: int = 2 * 1024 * 1024 * 1024
    """Address space of the process."""
    cpu_s: int = 60
    wall_s: float = 120.0


DEFAULT_BOUNDS: Final = Bounds()
