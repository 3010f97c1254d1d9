"""Balance of a number of partitions over servers, and the number that a cluster supports (thesis, section 5).

All partitions count as equally busy: where measured loads are known, the busiest server's share is the better measure.
"""

from collections.abc import Sequence
from statistics import fmean
from typing import Final

ELECTION_S: Final = 0.005
"""Time to elect one leader (thesis, t_elect); with a quorum of controllers no metadata is fetched (t_meta = 0)."""
REPLICATION_S: Final = 0.00002
"""Time by which one more replicated partition delays the others (thesis, t_repl)."""
MOST_CONSIDERED: Final = 120
"""Largest count that is suggested: the most even one that the thesis looks at."""


def imbalance(partitions: int, servers: int) -> float:
    """Return the largest share over the mean share, ceil(P/n) n/P: 1.0 is even; 1.5 is half as much again."""
    return -(-partitions // servers) * servers / partitions


def graded(partitions: int, sizes: Sequence[int]) -> float:
    """Return the mean imbalance over cluster sizes: a finer measure than how many of them divide evenly."""
    return fmean(imbalance(partitions, size) for size in sizes)


def better_counts(partitions: int, sizes: Sequence[int], most: int = MOST_CONSIDERED) -> list[int]:
    """Return counts that share more evenly among `sizes`: each is the smallest that is as even as it is.

    At most three, the most even one last, none below the largest size and none beyond `most` or twice that size.
    """
    best, found = graded(partitions, sizes), []
    for count in range(max(sizes), max(most, 2 * max(sizes)) + 1):
        grade = graded(count, sizes)
        if grade < best - 1e-9:
            best = grade
            found.append(count)
    return found[-3:]


def unavailable_s(led: int) -> float:
    """Return how long the partitions of a lost broker may be without a leader (thesis, equation 11)."""
    return ELECTION_S * led


def replication_delay_s(partitions: int, replicas: float, brokers: int) -> float:
    """Return what replication adds to the time of a record (thesis, equation 10); 0 where nothing is replicated."""
    if brokers < 2:
        return 0.0
    return REPLICATION_S * (replicas - 1) * partitions / (brokers * (brokers - 1))
