"""Evenness of partitions over servers, by their number (thesis 5.3, "keeping load uniform")."""

from collections.abc import Sequence
from fractions import Fraction
from statistics import fmean
from typing import Final

from learning.sizing.kafka import shares_partitions

COUNTS: Final = (12, 24, 30, 36, 48, 60, 72, 120)
"""Counts to be compared side by side: ours for a new topic, and those of thesis (24, 36 to 120) and practice (30)."""
EVEN_ENOUGH: Final = 1.05
"""Mean imbalance that is good enough to prefer a smaller count."""
NEVER_WORSE: Final = 1.2
"""Imbalance that no planned size may exceed: few sizes hide one that is uneven in their mean."""
PLANNED: Final = (1, 2, 3, 4, 6, 12)
"""Default planned numbers of servers: those that divide a new topic evenly (ADR 28)."""
COMPOSITE_COUNTS: Final = (24, 36, 48, 60, 72, 96, 120, 180, 240, 360, 480, 720, 840)
"""Counts with many divisors: their ranges are equal for many numbers of servers."""


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


def planned_sizes(running: int | None = None) -> tuple[int, ...]:
    """Return the default planned numbers of servers: ``PLANNED``, and the running number."""
    return tuple(sorted({*PLANNED, *(() if running is None else (running,))}))


def is_even_enough(partitions: int, sizes: Sequence[int]) -> bool:
    """Return whether a count is even enough for the sizes on the average, and for each of them."""
    return mean_imbalance(partitions, sizes) <= EVEN_ENOUGH and worst_imbalance(partitions, sizes)[0] <= NEVER_WORSE


def even_count(sizes: Sequence[int]) -> int:
    """Return the smallest of the largest size and ``COUNTS`` that is even enough for ``sizes``, else the most even."""
    least = max(sizes)
    counts = sorted(count for count in {least, *COUNTS} if count >= least)
    good = (count for count in counts if is_even_enough(count, sizes))
    return next(good, min(counts, key=lambda count: mean_imbalance(count, sizes)))
