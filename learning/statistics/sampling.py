"""Sampling of clients where a window has more subscriptions than a plan is made from (ADR 20).

By a hash of the client: windows sample the same clients, as far as their pseudonyms are the same, and a smaller sample
is a part of a larger one.
"""

from typing import Final
from zlib import crc32

MAX_SUBSCRIPTIONS: Final = 20_000_000
"""Most subscriptions that a plan is made from: by instance B (docs/placement.md) 3 minutes of CPU time and 5 GiB."""
HASH_BITS: Final = 32


def count_halvings(subscriptions: int, most: int) -> int:
    """Return how often the clients of a window are halved until its subscriptions are about ``most`` or fewer."""
    return (max(subscriptions - 1, 0) // most).bit_length()


def is_sampled(client: str, halvings: int) -> bool:
    """Return whether a client is in the sample."""
    return crc32(client.encode()) >> (HASH_BITS - halvings) == 0
