"""Start of the search for free ports."""

import random
from collections.abc import Callable
from typing import Final

OWN_RANGE: Final = range(24_000, 30_000)
"""Below the range from which systems take the ports of outgoing connections; the children of composites and the tests
have ranges of their own."""


def documented(default: int) -> int:
    """Start the search at the documented port."""
    return default


def scattered(rng: random.Random) -> Callable[[int], int]:
    """Start each search at a random port, so that several of us on one machine hardly ever meet."""
    return lambda _default: rng.choice(OWN_RANGE)
