"""Improvement of placements by Mt-KaHyPar; tests of the package itself are skipped where it is not installed."""

from collections.abc import Callable

import numpy as np
import pytest

from learning.costs import Costs
from learning.placement import mt_kahypar, polish
from learning.placement.blocks import Block, Floats, Parts
from learning.placement.instance import Instance
from learning.placement.objective import balance, server_of_endpoint
from learning.placement.options import PlanOptions, Problem
from learning.placement.planner import plan
from tests.unit.learning.placement.instances import backend, instance, random_instance

COSTS = Costs(1.0, 1.0, 1000.0)
PAIRS = instance([1.0] * 8, *[([each, each + 1], 10) for each in range(0, 8, 2)])
"""Four pairs of endpoints: two servers suffice for any client if no pair is divided."""
DIVIDED = np.array([0, 1, 0, 1, 2, 3, 2, 3], np.int32)
WHOLE = np.array([0, 0, 1, 1, 2, 2, 3, 3], np.int32)


def problem_of(made: Instance, *servers: int, **options: float) -> Problem:
    return Problem(made, backend(made), COSTS, PlanOptions(servers=servers, **options))  # type: ignore[arg-type]


def improving(
    monkeypatch: pytest.MonkeyPatch, improve: Callable[[Block, Floats, Parts, list[float]], Parts] | Parts
) -> None:
    """Replace Mt-KaHyPar."""

    def run(sets: Block, load: Floats, part: Parts, max_load: list[float], *, seed: int) -> Parts:
        return improve(sets, load, part, max_load) if callable(improve) else improve

    monkeypatch.setattr(mt_kahypar, "version", lambda: "9")
    monkeypatch.setattr(mt_kahypar, "improve", run)


def test_less_fan_out_within_the_limits_is_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    improving(monkeypatch, WHOLE)
    found = polish.polish(problem_of(PAIRS, 4), DIVIDED, 4)
    assert found is not None
    assert found.tolist() == WHOLE.tolist()


@pytest.mark.parametrize("improved", [DIVIDED, DIVIDED[::-1].copy(), np.zeros(8, np.int32)])
def test_no_less_fan_out_and_overload_are_refused(monkeypatch: pytest.MonkeyPatch, improved: Parts) -> None:
    improving(monkeypatch, improved)
    monkeypatch.setattr(polish, "refine", lambda _backend, _load, part, _views, **_: part)
    assert polish.polish(problem_of(PAIRS, 4), DIVIDED, 4) is None


def test_overload_is_repaired(monkeypatch: pytest.MonkeyPatch) -> None:
    improving(monkeypatch, np.zeros(8, np.int32))
    found = polish.polish(problem_of(PAIRS, 4), DIVIDED, 4)
    assert found is not None
    assert np.bincount(found).tolist() == [2, 2, 2, 2]


def test_hot_endpoints_stay_hot_and_are_not_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def improve(sets: Block, load: Floats, part: Parts, max_load: list[float]) -> Parts:
        assert (load.size, part.tolist(), sets.pins.max()) == (6, [0, 1, 0, 1, 0, 1], 5)
        # Two of eight endpoints, all alike, are hot, and consumed twice; their clients have no others.
        assert max_load == [pytest.approx(1.1 * (8 * 1.1 + 2) / 2 - (2 + 2 * 0.1 / 2))] * 2
        return part

    improving(monkeypatch, improve)
    part = np.array([-1, -1, 0, 1, 0, 1, 0, 1], np.int32)
    assert polish.polish(problem_of(PAIRS, 2, epsilon=0.1), part, 2) is None


def test_what_moves_to_another_server_goes_to_its_emptiest_leaf(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two servers have two leaves each; the V-cycle over the leaves changes nothing, that over the servers does."""
    servers = np.array([0, 0, 0, 0, 1, 1, 1, 1], np.int32)
    improving(monkeypatch, lambda _, __, part, limits: servers if len(limits) == 2 else part)
    start = np.array([0, 2, 1, 3, 0, 2, 1, 3], np.int32)
    found = polish.polish(problem_of(PAIRS, 2), start, 4)
    assert found is not None
    assert server_of_endpoint(found, 4, 2).tolist() == servers.tolist()
    assert np.bincount(found).tolist() == [2, 2, 2, 2]
    stays = server_of_endpoint(start, 4, 2) == servers
    assert (found[stays] == start[stays]).all()


def test_without_the_package_plans_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    made = random_instance(1, 40, 200)
    monkeypatch.setattr(mt_kahypar, "version", lambda: None)
    with_it, without = (plan(made, PlanOptions(servers=(4,), polish=each), COSTS) for each in (True, False))
    assert with_it.report == without.report
    assert with_it.report["polished_by"] is None


def test_too_many_pins_and_sets_in_other_processes_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    improving(monkeypatch, WHOLE)
    monkeypatch.setattr(polish, "MAX_PINS", 7)
    assert polish.polish(problem_of(PAIRS, 4), DIVIDED, 4) is None


def test_a_plan_names_what_polished_it(monkeypatch: pytest.MonkeyPatch) -> None:
    made = random_instance(3, 60, 300)
    options = PlanOptions(servers=(4,), partitions=4, hot_budget=0.0, polish=True)
    better = plan(made, PlanOptions(servers=(4,), partitions=4, hot_budget=0.0, seed=3), COSTS).placement
    worse = np.random.default_rng(0).permutation(better)
    improving(monkeypatch, better)
    monkeypatch.setattr("learning.placement.planner.solve", lambda _: (worse, 4))
    assert plan(made, options, COSTS).report["polished_by"] == "Mt-KaHyPar 9"


def test_mt_kahypar_improves_the_same_way_again() -> None:
    pytest.importorskip("mtkahypar")
    made = random_instance(5, 400, 3000, groups=20)
    options = PlanOptions(servers=(4, 8), partitions=8, hot_budget=0.0)
    problem = problem_of(made, 4, 8)
    part = (np.arange(400) % 8).astype(np.int32)
    first, second = (polish.polish(problem, part, 8) for _ in range(2))
    assert first is not None
    assert second is not None
    assert first.tobytes() == second.tobytes()
    load = problem.load(first < 0)
    assert all(balance(load, server_of_endpoint(first, 8, each), each) <= 1.05 + 1e-6 for each in (4, 8))
    assert all(problem.cost(first, 8) < problem.cost(part, 8) for _ in options.servers)


def test_mt_kahypar_takes_weights_beyond_its_integers() -> None:
    pytest.importorskip("mtkahypar")
    weights = np.array([2**40, 2**41 + 1, 3])
    sets = Block(np.array([0, 1, 2, 3, 0, 2], np.int32), np.array([2, 2, 2], np.int32), weights, np.ones(3, np.int64))
    part = mt_kahypar.partition(sets, np.ones(4), 2, 0.05, seed=1)
    assert (part[0] == part[1], part[2] == part[3], part[0] == part[2]) == (True, True, False)
