"""Choose the number of partitions: the fewest with an even load at every planned number of servers."""

from collections.abc import Iterator, Sequence
from typing import Final

from metadata.placement.baselines import lpt
from metadata.placement.blocks import Floats
from metadata.placement.objective import balance
from metadata.placement.ranges import laid_out

COMPOSITE: Final = (24, 36, 48, 60, 72, 96, 120, 180, 240, 360, 480, 720, 840)
"""Numbers with many divisors: their ranges are equal for many numbers of servers."""


def partitions(load: Floats, servers: Sequence[int], least: int, epsilon: float) -> int:
    """The smallest candidate whose load is within ``epsilon`` of even for all planned ``servers``, as ranges of leaves.

    Judged by the real loads, laid on leaves as evenly as they can be (LPT): neither a partition more on one server than
    on another nor an endpoint that is heavy for a leaf may be in the way. Without such a number, the best balanced one.
    """
    worst: dict[int, float] = {}
    for count in _candidates(max(least, *servers)):
        part = lpt(load, count)
        worst[count] = max(balance(load, laid_out(part, count, each), each) for each in servers)
        if worst[count] <= 1 + epsilon:
            return count
    return min(worst, key=lambda count: (round(worst[count], 3), count))


def _candidates(least: int) -> Iterator[int]:
    yield least
    yield from (count for count in COMPOSITE if least < count <= max(8 * least, COMPOSITE[0]))
