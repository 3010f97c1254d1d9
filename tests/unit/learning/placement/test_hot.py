"""Hot endpoints; the choice itself is tested with plans."""

import numpy as np
import pytest

from learning.costs import SERVER_LIMITS, Costs
from learning.placement import hot
from learning.placement.options import PlanOptions, Problem
from tests.unit.learning.placement.instances import SECONDS, backend, instance, random_instance


@pytest.mark.parametrize("at_a_time", [1, 5, 12])
def test_endpoints_that_cool_go_where_most_of_their_sets_are(monkeypatch: pytest.MonkeyPatch, at_a_time: int) -> None:
    monkeypatch.setattr(hot, "LEAVES", at_a_time)
    made, generator = random_instance(4, 60, 400), np.random.default_rng(1)
    placement = generator.integers(-1, 12, 60).astype(np.int32)
    which = (placement < 0) & (generator.random(60) < 0.7)
    cooled = hot.cool(backend(made), placement, 12, which)
    expected = backend(made).affinity(placement, 12, 1).argmin(1)
    assert which.any()
    assert cooled.tolist() == np.where(which, expected, placement).tolist()


@pytest.mark.parametrize(
    ("capacity", "budget", "expected"),
    [(None, 1.0, []), (4.0, 1.0, [0]), (2.0, 1.0, [0, 1]), (2.0, 0.1, [0]), (2.0, 0.0, [])],
)
def test_endpoints_with_more_subscribers_than_a_server_accepts_are_hot_as_far_as_the_budget_allows(
    capacity: float | None, budget: float, expected: list[int]
) -> None:
    second = int(SECONDS)
    made = instance([0.1, 1.0, 1.0, 1.0, 1.0, 1.0], ([0], 6 * second), *(([each], 3 * second) for each in (1,)))
    limits = None if capacity is None else SERVER_LIMITS._replace(clients=capacity)
    options = PlanOptions(servers=(2,), hot_budget=budget, epsilon=5.0, limits=limits)
    must = hot.mandatory(Problem(made, backend(made), Costs(1.0, 1.0, 1.0), options))
    assert np.flatnonzero(must).tolist() == expected
