"""How evenly servers share partitions: by their number (thesis 5.3, "keeping load uniform") and by measured load."""

from collections.abc import Sequence
from fractions import Fraction
from itertools import accumulate
from statistics import fmean
from typing import Final

from metadata.sizing.kafka import shares_partitions

MAX_SUGGESTED: Final = 120
"""Largest suggested count: the most even one that the thesis examines."""
COUNTS: Final = (24, 30, 36, 48, 60, 72, 120)
"""Counts that thesis (24, 36 to 120) and practice (30) recommend, to be compared side by side."""
COMPOSITE_COUNTS: Final = (24, 36, 48, 60, 72, 96, 120, 180, 240, 360, 480, 720, 840)
"""Counts with many divisors: their ranges are equal for many numbers of servers."""
_EQUAL: Final = 1e-9


def uniform_sizes(partitions: int, sizes: Sequence[int]) -> list[int]:
    """Return the numbers of servers that lead equally many partitions each (equation 8)."""
    return [size for size in sizes if shares_partitions(partitions, size)]


def imbalance(partitions: int, servers: int) -> float:
    """Return the largest share over the mean share, ceil(p/n) n/p: 1.0 is even."""
    return float(Fraction(-(-partitions // servers) * servers, partitions))


def mean_imbalance(partitions: int, sizes: Sequence[int]) -> float:
    """Return the mean imbalance over cluster sizes: a finer measure than the number of sizes that divide evenly."""
    return fmean(imbalance(partitions, size) for size in sizes)


def worst_imbalance(partitions: int, sizes: Sequence[int]) -> tuple[float, int]:
    """Return the largest imbalance over cluster sizes, and the size that has it."""
    return max((imbalance(partitions, size), size) for size in sizes)


def better_counts(partitions: int, sizes: Sequence[int], most: int = MAX_SUGGESTED) -> list[int]:
    """Return partition counts that divide more evenly among ``sizes``, each the smallest of its evenness.

    At most three, the most even one last; none is below the largest size, or above ``most`` and twice that size.
    """
    best, found = mean_imbalance(partitions, sizes), []
    for count in range(max(sizes), max(most, 2 * max(sizes)) + 1):
        grade = mean_imbalance(count, sizes)
        if grade < best - _EQUAL:
            best = grade
            found.append(count)
    return found[-3:]


def record_counts(sizes: Sequence[int], most: int) -> list[tuple[int, int]]:
    """Return each count that has more uniform sizes than every smaller one, with the number of these sizes."""
    records: list[tuple[int, int]] = []
    for count in range(1, most + 1):
        uniform = len(uniform_sizes(count, sizes))
        if not records or uniform > records[-1][1]:
            records.append((count, uniform))
    return records


def load_imbalance(loads: Sequence[float], servers: int) -> float:
    """Return the largest load of a server over the mean, for the measured load of each partition; 1.0 without load.

    Each server has a range of partitions, one more for the first ``len(loads) % servers``, as Kafka's RangeAssignor
    assigns a topic.
    """
    total = sum(loads)
    if total <= 0:
        return 1.0
    least, more = divmod(len(loads), servers)
    ends = accumulate(least + (server < more) for server in range(servers))
    prefix = [0.0, *accumulate(loads)]
    marks = [prefix[end] for end in ends]
    fullest = max(after - before for before, after in zip([0.0, *marks], marks, strict=False))
    return fullest * servers / total
