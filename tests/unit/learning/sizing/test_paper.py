"""The paper's program: printed algorithms, closed form, HiGHS and exhaustive search agree; MS-CNFL, exact and drawn."""

import random
from collections.abc import Iterator
from fractions import Fraction
from math import ceil

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import Bounds, LinearConstraint, milp  # type: ignore[import-untyped, unused-ignore]

from learning.sizing import paper, rules
from learning.sizing.paper import Point, Program

INSTANCES = 300


def instances() -> Iterator[Program]:
    """Small programs in which each constraint binds now and then, and a third is infeasible."""
    source = random.Random(19)
    for _ in range(INSTANCES):
        yield Program(
            consumers=source.randint(1, 12),
            replicas=source.randint(1, 4),
            brokers=source.randint(2, 9),
            throughput=source.randint(1, 30),
            producer=source.randint(2, 9),
            consumer=source.randint(2, 9),
            handles=source.choice((8, 15, 25)),
            latency_ms=source.choice((6, 12, 40)),
            replication_ms=source.choice((0.5, 1, 2)),
            unavailability_ms=source.choice((10, 30, 200)),
            election_ms=source.randint(1, 9),
        )


def scaled(program: Program) -> tuple[NDArray[np.int64], int]:
    """Return the integer constraint matrix over (P, b), and the fewest partitions, written independently."""
    rows = [
        (program.replicas, -program.handles),
        (program.replicas * int(2 * program.replication_ms), -2 * int(program.latency_ms)),
        (int(program.election_ms), -int(program.unavailability_ms)),
    ]
    least = max(
        ceil(Fraction(int(program.throughput), int(program.producer))),
        ceil(Fraction(int(program.throughput), int(program.consumer))),
        program.consumers,
    )
    return np.array(rows, np.int64), least


def exhaustive(program: Program) -> tuple[Point | None, Point | None]:
    """Return the solution with the fewest brokers and most partitions, and the one with the most of both."""
    rows, least = scaled(program)
    brokers = np.arange(program.replicas, program.brokers + 1)
    counts = np.arange(least, program.brokers * program.handles // program.replicas + 1)
    if not brokers.size or not counts.size:
        return None, None
    kept = (rows[:, 0, None, None] * counts[:, None] + rows[:, 1, None, None] * brokers <= 0).all(axis=0)
    points = [Point(int(counts[i]), int(brokers[j])) for i, j in np.argwhere(kept)]
    if not points:
        return None, None
    return min(points, key=lambda each: (each.brokers, -each.partitions)), max(points)


def highs(program: Program) -> int | None:
    """Return the most partitions by HiGHS; None if it finds the program infeasible."""
    rows, least = scaled(program)
    if program.replicas > program.brokers:
        return None
    bounds = Bounds([least, program.replicas], [np.inf, program.brokers])
    found = milp([-1, 0], constraints=LinearConstraint(rows, ub=0), bounds=bounds, integrality=[1, 1])
    assert found.status in {0, 2}
    return round(-found.fun) if found.status == 0 else None


def test_printed_algorithms_closed_form_highs_and_exhaustive_search_agree() -> None:
    infeasible, bindings = 0, set()
    for program in instances():
        fewest, most = exhaustive(program)
        assert paper.bro_min(program) == paper.fewest_brokers(program) == fewest, program
        assert paper.bro_max(program) == paper.most_partitions(program) == most, program
        assert highs(program) == (None if most is None else most.partitions), program
        infeasible += most is None
        bindings.add(program.binding(program.brokers))
    # Otherwise the instances would not show anything.
    assert INSTANCES / 10 < infeasible < INSTANCES / 2
    assert len(bindings) == 3


def test_feasible_points_are_all_solutions() -> None:
    program = Program(consumers=3, replicas=2, brokers=3, throughput=1, handles=6, latency_ms=4)
    expected = {(3, 2), (4, 2), (3, 3), (4, 3), (5, 3), (6, 3)}
    assert {tuple(point) for point in paper.feasible_points(program)} == expected


def test_the_example_of_figure_1_fits() -> None:
    # Four consumers, four brokers, four partitions in three replicas.
    program = Program(consumers=4, replicas=3, brokers=4, throughput=4, producer=1, consumer=1)
    assert Point(4, 4) in set(paper.feasible_points(Program(4, 3, 4, 4, 1, 1, handles=3)))
    assert paper.fewest_brokers(program) == paper.bro_min(program)


FIGURE_2 = {
    100: (200, 5), 200: (200, 5), 300: (320, 8), 400: (400, 10), 401: (440, 11), 500: (520, 13), 600: (600, 15),
    700: (720, 18), 800: (800, 20),
}  # fmt: skip
FIGURE_3 = {5: (208.8, 3, 477, 348), 10: (417.2, 5.5, 611, 379), 20: (833.8, 10.5, 750, 397),
            30: (1250.5, 15.5, 833, 403), 50: (2083.8, 25.5, 938, 409)}  # fmt: skip
FIGURE_4 = {1: (4000, 967.2, 174, 92), 2: (2000, 933.8, 336, 178), 3: (1333, 900.5, 486, 257),
            4: (1000, 867.2, 624, 330), 5: (800, 833.8, 750, 397), 10: (400, 667.2, 1200, 635),
            11: (363, 634.1, 1255, 664), 15: (266, 518.9, 1400, 741), 20: (200, 417.2, 1501, 795)}  # fmt: skip


@pytest.mark.parametrize("consumers", FIGURE_2)
def test_points_of_figure_2(consumers: int) -> None:
    program = Program(consumers, 5, 20)
    assert paper.fewest_brokers(program) == FIGURE_2[consumers]
    assert paper.most_partitions(program) == (800, 20)
    assert program.metrics(800, 20) == {"latency": 200, "unavailability": 200, "OS load": 200}
    assert program.binding(20) == "replication latency"


@pytest.mark.parametrize("brokers", FIGURE_3)
def test_points_of_figure_3(brokers: int) -> None:
    program = Program(200, 5, brokers)
    assert paper.fewest_brokers(program) == (200, 5)
    assert paper.most_partitions(program) == (40 * brokers, brokers)
    found = rules.expected(program)
    means = (found.partitions, found.brokers, found.latency_ms, found.latency_of_means_ms)
    assert means == pytest.approx(FIGURE_3[brokers], abs=0.51)
    assert found.partitions == pytest.approx(FIGURE_3[brokers][0], abs=0.051)


@pytest.mark.parametrize("replicas", FIGURE_4)
def test_points_of_figure_4(replicas: int) -> None:
    program, (most, *means) = Program(200, replicas, 20), FIGURE_4[replicas]
    assert paper.fewest_brokers(program) == (200, replicas)
    assert paper.most_partitions(program) == (most, 20)
    found = rules.expected(program)
    assert (found.partitions, found.latency_ms, found.latency_of_means_ms) == pytest.approx(means, abs=0.51)


@pytest.mark.parametrize(
    ("brokers", "replicas", "consumers", "probabilities"),
    [
        (20, 5, 200, (0.714, 0.080, 0.144, 0.200, 0.843)),
        (20, 5, 400, (0.714, 0.080, 0.280, 0.200, 0.932)),
        (20, 3, 200, (0.591, 0.088, 0.127, 0.099, 0.712)),
        (20, 10, 200, (0.805, 0.060, 0.189, 0.451, 0.952)),
        (20, 20, 200, (0.850, 0.030, 0.278, 0.950, 1.0)),
        (40, 10, 400, (0.809, 0.071, 0.189, 0.225, 0.954)),
    ],
)
def test_a_draw_of_the_benchmark_often_breaks_a_constraint(
    brokers: int, replicas: int, consumers: int, probabilities: tuple[float, ...]
) -> None:
    found = rules.violations(Program(consumers, replicas, brokers))
    exactly = (found.latency, found.unavailability, found.throughput, found.brokers, found.any)
    assert exactly == pytest.approx(probabilities, abs=0.003)


def test_exact_figures_of_the_benchmark_are_those_of_its_draws() -> None:
    program, number = Program(200, 5, 20), 20_000
    points = list(rules.draws(program, number, seed=1))
    assert points == list(rules.draws(program, number, seed=1))
    exactly, probabilities = rules.expected(program), rules.violations(program)
    assert sum(point.partitions for point in points) / number == pytest.approx(exactly.partitions, rel=0.02)
    assert sum(point.brokers for point in points) / number == pytest.approx(exactly.brokers, rel=0.02)
    kept = sum(
        point.brokers >= program.replicas and program.fewest <= point.partitions <= program.most(point.brokers)
        for point in points
    )
    # Five standard errors.
    assert 1 - kept / number == pytest.approx(probabilities.any, abs=5 * 0.5 / number**0.5)


def test_the_conclusion_flips_with_the_replication_time_of_the_cited_report() -> None:
    printed, cited = Program(200, 3, 20), Program(200, 3, 20, replication_ms=0.02)
    assert (paper.most_partitions(printed), printed.binding(20)) == ((1333, 20), "replication latency")
    assert (paper.most_partitions(cited), cited.binding(20)) == ((8000, 20), "unavailability")
    # "MS-CNFL is violating the latency constraint": in no draw at all, up to r = 5.
    assert rules.violations(printed).latency > 0.5
    assert [rules.violations(Program(200, r, 20, replication_ms=0.02)).latency for r in (2, 3, 4, 5)] == [0, 0, 0, 0]
