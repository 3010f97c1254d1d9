"""Evenness of partitions over servers, by their number (thesis 5.3, "keeping load uniform")."""

from collections.abc import Sequence
from fractions import Fraction
from statistics import fmean
from typing import Final

from learning.sizing.kafka import shares_partitions

COUNTS: Final = (12, 24, 30, 36, 48, 60, 72, 120)
"""Numbers of partitions to choose from: ours for a new topic, and those of thesis (24, 36 to 120) and practice (30)."""
EVEN_ENOUGH: Final = 1.05
"""Mean imbalance that is good enough to prefer a smaller count."""
NEVER_WORSE: Final = 1.2
"""Imbalance that no planned size may exceed: few sizes hide one that is uneven in their mean."""
PLANNED: Final = (1, 2, 3, 4, 6, 12)
"""Default planned numbers of servers: those that divide a new topic evenly (ADR 28)."""


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


def planned_sizes(*running: int | None) -> tuple[int, ...]:
    """Return the default planned numbers of servers: ``PLANNED``, and those that run, if any are known."""
    return tuple(sorted({*PLANNED, *filter(None, running)}))


def is_even_enough(partitions: int, sizes: Sequence[int], together: Sequence[int] = ()) -> bool:
    """Return whether a count is even enough for the sizes on the average, and for each of them.

    One placement must be even for all of the sizes ``together``.
    """
    return (
        mean_imbalance(partitions, sizes) <= EVEN_ENOUGH
        and worst_imbalance(partitions, sizes)[0] <= NEVER_WORSE
        and all(imbalance(partitions, size) <= EVEN_ENOUGH for size in together)
    )


def choose_count(
    sizes: Sequence[int],
    fewest: int = 1,
    most: int | None = None,
    present: int | None = None,
    together: Sequence[int] = (),
) -> int:
    """Return the number of partitions for planned numbers of servers: that of `recommend`, `size`, `check` and `plan`.

    The ``present`` one if it is within the bounds and even enough, else the smallest such one of ``COUNTS`` and the
    lower bound, else the most even one.

    Args:
        sizes: planned numbers of servers; each needs a partition.
        fewest: lower bound.
        most: upper bound; None: there is none.
        present: number of partitions of the topic, if there is one.
        together: sizes for which one placement must be even (:func:`is_even_enough`).
    """
    least = max(fewest, *sizes)
    counts = sorted({least, *COUNTS, *filter(None, [present])})
    fitting = [count for count in counts if least <= count and (most is None or count <= most)]
    good = [count for count in fitting if is_even_enough(count, sizes, together)]
    if present is not None and present in good:
        return present
    return next(iter(good), min(fitting or counts, key=lambda count: mean_imbalance(count, sizes)))
