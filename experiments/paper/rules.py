"""MS-CNFL, the benchmark of the paper (section VI-B): two vendors' upper limits, read as uniform random draws.

P = min(X, Y) with X uniform on 1 ... 1000 B / r and Y on 1 ... 100 B, and b uniform on 1 ... B. Nobody recommends to
draw a limit at random; here it is computed exactly, because averages hide how often a draw breaks a constraint.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from math import floor
from typing import Final

from experiments.paper.program import Point, Program

MICROSOFT: Final = 1000
"""Replicas per broker that Microsoft recommends at most."""
CONFLUENT: Final = 100
"""Partitions per broker that the paper reads into Confluent's "100 x b x r", which is 100 B per broker."""


@dataclass(frozen=True, slots=True)
class Expected:
    """Exact means of MS-CNFL over its draws."""

    partitions: float
    brokers: float
    latency_ms: float
    """Mean of the draws' latencies."""
    latency_of_means_ms: float
    """Latency at the mean partitions and the mean brokers, which is lower."""
    unavailability_ms: float
    handles: float


@dataclass(frozen=True, slots=True)
class Violations:
    """Exact probabilities that a draw breaks a constraint."""

    latency: float
    unavailability: float
    os_load: float
    throughput: float
    """P below max(T/Tp, T/Tc, c)."""
    brokers: float
    """Fewer brokers than replicas."""
    any: float


def upper_limits(program: Program) -> tuple[int, int]:
    """Return the largest values of the two draws."""
    return MICROSOFT * program.brokers // program.replicas, CONFLUENT * program.brokers


def draws(program: Program, number: int, seed: int) -> Iterator[Point]:
    """Yield random choices of MS-CNFL."""
    source = random.Random(seed)
    first, second = upper_limits(program)
    for _ in range(number):
        partitions = min(source.randint(1, first), source.randint(1, second))
        yield Point(partitions, source.randint(1, program.brokers))


def above(program: Program, partitions: int) -> Fraction:
    """Return the probability that MS-CNFL draws more partitions."""
    first, second = upper_limits(program)
    least = max(0, partitions)
    return Fraction(max(0, first - least) * max(0, second - least), first * second)


def expected(program: Program) -> Expected:
    """Return the means of MS-CNFL: E[P] is the sum of P(P > k) over k >= 0; E[P/b] = E[P] E[1/b], b is independent."""
    first, second = upper_limits(program)
    most = min(first, second)
    # The sum of (first - k) (second - k) for k = 0 ... most - 1, with the sums of k and of its squares.
    ones, squares = most * (most - 1) // 2, (most - 1) * most * (2 * most - 1) // 6
    partitions = Fraction(most * first * second - (first + second) * ones + squares, first * second)
    brokers = Fraction(program.brokers + 1, 2)
    inverse = sum((Fraction(1, count) for count in range(1, program.brokers + 1)), Fraction(0)) / program.brokers
    of_ratios = program.metrics(partitions * inverse, 1)
    of_means = program.metrics(partitions, brokers)
    return Expected(
        float(partitions),
        float(brokers),
        of_ratios["latency"],
        of_means["latency"],
        of_ratios["unavailability"],
        of_ratios["OS load"],
    )


def violations(program: Program) -> Violations:
    """Return the probability that a draw breaks each constraint, and any of them."""
    sums = dict.fromkeys(("OS load", "replication latency", "unavailability", "brokers", "any"), Fraction(0))
    for brokers in range(1, program.brokers + 1):
        for name, limit in program.limits(brokers):
            sums[name] += above(program, floor(limit))
        few = brokers < program.replicas
        allowed = above(program, program.fewest - 1) - above(program, program.most(brokers))
        sums["brokers"] += few
        sums["any"] += 1 if few else 1 - max(Fraction(0), allowed)
    mean = {name: float(value / program.brokers) for name, value in sums.items()}
    throughput = float(1 - above(program, program.fewest - 1))
    return Violations(
        latency=mean["replication latency"],
        unavailability=mean["unavailability"],
        os_load=mean["OS load"],
        throughput=throughput,
        brokers=mean["brokers"],
        any=mean["any"],
    )
