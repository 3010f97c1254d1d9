"""The paper's program (equations 7 to 13) with its two algorithms as printed, their closed form, and all of its points.

The program: partitions P and brokers b, P at a maximum, with P >= max(T/Tp, T/Tc, c), P r <= b Hmax, P r l_r <= b L,
P u <= b U and r <= b <= B. All inputs are integers or exact decimals, so that no comparison depends on rounding.

Two integer variables are no hard problem: for each b the largest P is a minimum of three quotients, which grows with b.
So the optimum is at b = B, and the fewest brokers follow from the lower bound of P. BroMax and BroMin, called
heuristics, return exactly these.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, floor
from typing import NamedTuple

from learning.sizing.kafka import Number, exact


class Point(NamedTuple):
    """A solution: partitions and brokers."""

    partitions: int
    brokers: int


@dataclass(frozen=True, slots=True)
class Program:
    """Inputs of the program, by the paper's symbols; the defaults are those of its evaluation (section VI)."""

    consumers: int
    """c"""
    replicas: int
    """r"""
    brokers: int
    """B, the most that there are"""
    throughput: Number = 100
    """T, MB/s"""
    producer: Number = 10
    """Tp, MB/s of one partition"""
    consumer: Number = 20
    """Tc, MB/s of one partition"""
    handles: int = 10_000
    """Hmax, open files that a broker may have"""
    latency_ms: Number = 200
    """L"""
    replication_ms: Number = 1
    """l_r, for one partition; the report that the paper cites has 0.02 ms (20 ms for 1,000 partitions)"""
    unavailability_ms: Number = 2000
    """U"""
    election_ms: Number = 5
    """u"""

    @property
    def fewest(self) -> int:
        """The fewest partitions: ceil(max(T/Tp, T/Tc, c)) (equation 8)."""
        throughput = exact(self.throughput)
        return ceil(max(throughput / exact(self.producer), throughput / exact(self.consumer), Fraction(self.consumers)))

    def most(self, brokers: int) -> int:
        """Return the most partitions on ``brokers`` brokers (equations 9 to 11)."""
        return min(floor(limit) for _, limit in self.limits(brokers))

    def limits(self, brokers: int) -> Iterator[tuple[str, Fraction]]:
        """Yield the upper bounds of P on ``brokers`` brokers with their names."""
        yield "OS load", Fraction(brokers * self.handles, self.replicas)
        yield "replication latency", brokers * exact(self.latency_ms) / (self.replicas * exact(self.replication_ms))
        yield "unavailability", brokers * exact(self.unavailability_ms) / exact(self.election_ms)

    def binding(self, brokers: int) -> str:
        """Return the name of the strictest upper bound on ``brokers`` brokers."""
        return min(self.limits(brokers), key=lambda named: named[1])[0]

    def metrics(self, partitions: Number, brokers: Number) -> dict[str, float]:
        """Return the panels c to e of the figures for a point: latency and unavailability in ms, handles per broker."""
        density = exact(partitions) / exact(brokers)
        return {
            "latency": float(density * self.replicas * exact(self.replication_ms)),
            "unavailability": float(density * exact(self.election_ms)),
            "OS load": float(density * self.replicas),
        }


def bro_min(program: Program) -> Point | None:
    """Return the solution with the fewest brokers, by algorithm 1 as printed; None if there is none."""
    return _search(program, range(program.replicas, program.brokers + 1))


def bro_max(program: Program) -> Point | None:
    """Return the solution with the most partitions, by algorithm 2 as printed; None if there is none."""
    return _search(program, range(program.brokers, program.replicas - 1, -1))


def _search(program: Program, brokers: range) -> Point | None:
    """Try brokers in order, and for each of them partitions downwards from the limit of open files (lines 1 to 4)."""
    latency, unavailability = exact(program.latency_ms), exact(program.unavailability_ms)
    replication, election = program.replicas * exact(program.replication_ms), exact(program.election_ms)
    fewest = program.fewest
    for count in brokers:
        partitions = count * program.handles // program.replicas
        while partitions >= fewest:
            in_time = partitions * replication <= count * latency
            if in_time and partitions * election <= count * unavailability:
                return Point(partitions, count)
            partitions -= 1
    return None


def fewest_brokers(program: Program) -> Point | None:
    """Return what ``bro_min`` returns, in closed form: the fewest brokers whose limits admit the fewest partitions."""
    fewest = Fraction(program.fewest)
    # Every limit is proportional to the brokers.
    needed = max(ceil(fewest / limit) for _, limit in program.limits(1))
    brokers = max(program.replicas, needed)
    return Point(program.most(brokers), brokers) if brokers <= program.brokers else None


def most_partitions(program: Program) -> Point | None:
    """Return what ``bro_max`` returns, in closed form: the optimum of the program, on all brokers."""
    if program.brokers < program.replicas or program.most(program.brokers) < program.fewest:
        return None
    return Point(program.most(program.brokers), program.brokers)


def feasible_points(program: Program) -> Iterator[Point]:
    """Yield every solution of the program, by trying all: for small programs."""
    most = program.brokers * program.handles // program.replicas
    latency, unavailability = exact(program.latency_ms), exact(program.unavailability_ms)
    replication, election = program.replicas * exact(program.replication_ms), exact(program.election_ms)
    fewest = program.fewest
    for brokers in range(program.replicas, program.brokers + 1):
        for partitions in range(fewest, most + 1):
            if (
                partitions * program.replicas <= brokers * program.handles
                and partitions * replication <= brokers * latency
                and partitions * election <= brokers * unavailability
            ):
                yield Point(partitions, brokers)
