"""The decision whether to publish a plan."""

from dataclasses import replace

import numpy as np
import pytest

from learning.costs import Costs
from learning.placement.baselines import lpt, murmur2
from learning.placement.objective import loads
from learning.placement.options import PlanOptions, Problem
from learning.placement.publish import (
    EvaluatedPlacement,
    HeldOut,
    HeldOutPart,
    Obstacle,
    choose_candidate,
    evaluate,
    optimism,
)
from tests.support.instances import Recipe, population, sampled
from tests.unit.learning.placement.instances import backend, instance

NOW = EvaluatedPlacement("now", np.zeros(2, np.int32), 2, 100.0, 1.0, 1.0, 0.02, 1000.0, 0.0, 0.0)
BETTER = replace(NOW, name="new", cost=90.0, moved=0.1, move_cost=2.0)


@pytest.mark.parametrize(
    ("now", "candidate", "pays"),
    [
        (NOW, BETTER, True),
        (NOW, replace(BETTER, move_cost=11.0), False),
        (NOW, replace(BETTER, error=4.0), False),
        (NOW, replace(BETTER, error=4.0, move_cost=0.0), False),
        (NOW, replace(BETTER, error=3.0), True),
        (NOW, replace(BETTER, imbalance=1.2), False),
        (replace(NOW, imbalance=1.2), replace(BETTER, cost=101.0), True),
        (replace(NOW, imbalance=1.3), replace(BETTER, imbalance=1.2), True),
        # Within two standard errors of two windows, and at a cost of moves beyond the relief of the fullest server.
        (replace(NOW, imbalance=1.1), replace(BETTER, cost=101.0), False),
        (replace(NOW, imbalance=1.2), replace(BETTER, cost=101.0, move_cost=151.0), False),
        (NOW, replace(BETTER, held_out=HeldOut(NOW, replace(BETTER, cost=101.0), 10.0)), False),
        (NOW, replace(BETTER, held_out=HeldOut(NOW, replace(BETTER, error=4.0), 10.0)), False),
        (NOW, replace(BETTER, held_out=HeldOut(NOW, BETTER, 10.0)), True),
        # In the window it saves less than plans made without some clients did, or more.
        (NOW, replace(BETTER, held_out=HeldOut(NOW, BETTER, 14.0)), False),
        (NOW, replace(BETTER, held_out=HeldOut(NOW, BETTER, 6.0)), False),
        (NOW, replace(NOW, name="same"), False),
        (None, BETTER, True),
        (replace(NOW, overfull=(1, 1)), replace(BETTER, cost=110.0), True),
        (NOW, replace(BETTER, overfull=(1, 1)), False),
        (replace(NOW, overfull=(1, 1)), replace(BETTER, overfull=(1, 1)), False),
        # After the loss of a server only.
        (replace(NOW, overfull=(0, 1)), replace(BETTER, cost=110.0), True),
        (NOW, replace(BETTER, overfull=(0, 1)), False),
        (replace(NOW, overfull=(0, 1)), replace(BETTER, overfull=(0, 1)), True),
    ],
)
def test_a_plan_pays_if_it_saves_more_than_its_moves_cost_and_chance_explains(
    now: EvaluatedPlacement | None, candidate: EvaluatedPlacement, pays: bool
) -> None:
    decision = choose_candidate(now, [candidate], 0.05)
    assert (decision.pays, bool(decision.why)) == (pays, True)


def test_a_plan_that_pays_for_an_uneven_load_only_is_marked() -> None:
    only = choose_candidate(replace(NOW, imbalance=1.2), [replace(BETTER, cost=101.0)], 0.05)
    assert (only.pays, only.balances, only.saves) == (True, True, False)
    assert "saves" not in only.why
    both = choose_candidate(replace(NOW, imbalance=1.2), [BETTER], 0.05)
    assert (both.balances, both.saves) == (True, True)
    assert "balances the load: " in both.why
    assert "; saves 0.010 ms of CPU a second, and its moves cost 0.002 ms" in both.why
    saves = choose_candidate(NOW, [BETTER], 0.05)
    assert (saves.balances, saves.saves) == (False, True)


@pytest.mark.parametrize(
    ("candidate", "obstacle"),
    [
        (BETTER, None),
        (replace(BETTER, move_cost=11.0), None),
        (replace(NOW, name="same"), None),
        (replace(BETTER, error=4.0), Obstacle.CHANCE),
        (replace(BETTER, held_out=HeldOut(NOW, replace(BETTER, cost=101.0), 10.0)), Obstacle.HOLD_OUT),
        (replace(BETTER, held_out=HeldOut(NOW, replace(BETTER, error=4.0), 10.0)), Obstacle.CHANCE),
        (replace(BETTER, imbalance=1.2), Obstacle.BALANCE),
    ],
    ids=["pays", "moves-cost-more", "same", "chance", "only-in-window", "chance-for-others", "uneven"],
)
def test_what_keeps_a_better_placement_from_being_adopted_is_named(
    candidate: EvaluatedPlacement, obstacle: Obstacle | None
) -> None:
    assert choose_candidate(NOW, [candidate], 0.05).obstacle is obstacle


def test_a_placement_within_the_capacity_of_servers_comes_before_cheaper_and_more_even_ones() -> None:
    within, cheaper = replace(BETTER, imbalance=1.2), replace(BETTER, cost=10.0, overfull=(1, 1))
    for now in (replace(NOW, overfull=(1, 1)), NOW):
        assert choose_candidate(now, [cheaper, within], 0.05).candidate is within


def test_what_servers_can_take_after_a_loss_is_named() -> None:
    relieved = choose_candidate(replace(NOW, overfull=(0, 1)), [BETTER], 0.05)
    assert relieved.why == "relieves a server of more than it can take after the loss of another"
    assert choose_candidate(NOW, [replace(BETTER, overfull=(0, 2))], 0.05).why.startswith("a server would have more ")


def test_savings_are_in_ms_of_cpu_a_second() -> None:
    decision = choose_candidate(replace(NOW, cost=2_000_000.0), [replace(BETTER, cost=500_000.0, error=0.0)], 0.05)
    assert decision.why.startswith("saves 1,500.000 ms of CPU a second, and its moves cost ")
    unsure = choose_candidate(NOW, [replace(BETTER, error=4.0)], 0.05)
    assert ", which may be due to chance (+- 0.0" in unsure.why


def test_a_saving_that_rounds_to_zero_has_no_sign() -> None:
    assert choose_candidate(NOW, [replace(BETTER, cost=NOW.cost + 0.1)], 0.05).why.startswith("saves 0.000 ms")


def test_of_paying_candidates_the_cheapest_including_its_moves_is_chosen() -> None:
    far = replace(BETTER, name="far", cost=80.0, move_cost=13.0)
    assert choose_candidate(NOW, [BETTER, far], 0.05).candidate.name == "new"
    assert choose_candidate(NOW, [BETTER, replace(far, move_cost=10.0)], 0.05).candidate.name == "far"


def test_of_paying_candidates_the_one_that_saves_most_for_other_clients_is_chosen() -> None:
    def held_out(name: str, cost: float, for_others: float) -> EvaluatedPlacement:
        for_them = HeldOut(NOW, replace(BETTER, cost=for_others), NOW.cost - cost)
        return replace(BETTER, name=name, cost=cost, held_out=for_them)

    assert (
        choose_candidate(NOW, [held_out("fits", 70.0, 92.0), held_out("holds", 85.0, 88.0)], 0.05).candidate.name
        == "holds"
    )


def test_savings_of_the_best_of_several_are_told_without_what_chose_it() -> None:
    one, other = replace(BETTER, halves=(80.0, 100.0)), replace(BETTER, cost=91.0, halves=(100.0, 82.0))
    assert optimism([one]) == 0
    # For either half the other one is the best.
    assert optimism([one, other]) == pytest.approx(10.0)
    assert not choose_candidate(NOW, [one, other], 0.05).pays
    assert choose_candidate(NOW, [one, replace(one, cost=89.0)], 0.05).pays


def test_a_placement_with_fewer_servers_for_each_client_saves_sends_behind_proxies() -> None:
    made = instance([1.0] * 4, *(([0, 1], 100), ([2, 3], 100)) * 20)
    apart, together = np.array([0, 1, 0, 1], np.int32), np.array([0, 0, 1, 1], np.int32)
    costs = Costs(5.0, 10.0, 0.0)
    for saving, pays in ((0.0, False), (10.0, True)):
        counted = replace(costs, proxy_merged_saving_us=saving)
        options = PlanOptions(servers=(2,), current_partitions=2, horizon_s=1e6)
        problem = Problem(made, backend(made), costs, options, verdict_costs=counted)
        now, found = (evaluate(problem, each, 2, current=apart, name="any") for each in (apart, together))
        decision = choose_candidate(now, [found], 0.05)
        assert (decision.pays, now.cost > found.cost) == (pays, pays)
        # Every client has a server fewer: there is no difference between them.
        assert found.error == pytest.approx(0.0)


def test_figures_for_clients_held_out_are_extrapolated_to_plans_from_all_clients() -> None:
    made = instance([1.0] * 4, *(([0, 1], 100), ([2, 3], 100)) * 20)
    problem = Problem(made, backend(made), Costs(5.0, 10.0, 1.0), PlanOptions(servers=(2,), current_partitions=2))
    parts = [HeldOutPart(problem, NOW, replace(BETTER, cost=cost, error=2.0), 20.0) for cost in (88.0, 92.0) * 2]
    halves = [HeldOutPart(problem, NOW, replace(BETTER, cost=cost), 22.0) for cost in (94.0, 96.0)]
    plain, found = HeldOut.of(parts, [], 0.25), HeldOut.of(parts, halves, 0.25)
    assert plain.found.cost == pytest.approx(90.0)
    slope = ((4 / 3) ** 0.5 - 1) / (2**0.5 - (4 / 3) ** 0.5)
    # From a half to three quarters of the clients gains 5: what it lacks is as one over their square root.
    assert found.found.cost == pytest.approx(90.0 - 5.0 * slope)
    assert found.now is not None
    assert found.now.cost == pytest.approx(NOW.cost)
    assert found.saved_in_window == pytest.approx(20.0 - 2.0 * slope)
    assert sum(weight for weight, _ in found.parts) == pytest.approx(1.0)
    wide, narrow = 2.0 / np.sqrt(4), 1.0 / np.sqrt(2)
    assert found.found.error == pytest.approx(np.hypot((1 + slope) * wide, slope * narrow))


def test_a_share_of_the_cost_is_to_be_saved_beyond_chance() -> None:
    assert choose_candidate(NOW, [replace(BETTER, error=1.0)], 0.05, least=0.07).pays
    assert not choose_candidate(NOW, [replace(BETTER, error=2.0)], 0.05, least=0.07).pays


def test_savings_from_a_sample_are_those_of_all_within_a_larger_error() -> None:
    whole = population(Recipe(endpoints=200, clients=8000, communities=10, seed=1))
    costs, options = Costs(5.0, 10.0, 2.0), PlanOptions(servers=(4,), current_partitions=4)

    def saving(halvings: int) -> tuple[float, float]:
        made = sampled(whole, halvings)
        problem, current = Problem(made, backend(made), costs, options), murmur2(made.endpoints, 4)
        placements = current, lpt(loads(made, costs), 4)
        now, found = (evaluate(problem, each, 4, current=current, name="any") for each in placements)
        return now.cost - found.cost, found.error

    (of_all, error), (of_sample, larger) = saving(0), saving(4)
    assert larger == pytest.approx(4 * error, rel=0.15)
    assert abs(of_all - of_sample) < 3 * larger
    assert error > 0
