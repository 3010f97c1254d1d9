"""The publish rule."""

from dataclasses import replace

import numpy as np
import pytest

from metadata.placement.report import EvaluatedPlacement, choose

NOW = EvaluatedPlacement("now", np.zeros(2, np.int32), 2, 100.0, 1.0, 1.0, 0.0, 0.0)
BETTER = replace(NOW, name="new", cost=90.0, moved=0.1, price=2.0)


@pytest.mark.parametrize(
    ("now", "found", "pays"),
    [
        (NOW, BETTER, True),
        (NOW, replace(BETTER, price=11.0), False),
        (NOW, replace(BETTER, error=6.0), False),
        (NOW, replace(BETTER, uneven=1.2), False),
        (replace(NOW, uneven=1.2), replace(BETTER, cost=101.0), True),
        (replace(NOW, uneven=1.3), replace(BETTER, uneven=1.2), True),
        (NOW, replace(NOW, name="same"), False),
        (None, BETTER, True),
    ],
)
def test_a_plan_is_adopted_when_it_saves_more_than_its_moves_and_chance(
    now: EvaluatedPlacement | None, found: EvaluatedPlacement, pays: bool
) -> None:
    verdict = choose(now, [found], 0.05)
    assert (verdict.pays, bool(verdict.why)) == (pays, True)


def test_of_those_that_pay_the_cheapest_with_its_moves_is_taken() -> None:
    far = replace(BETTER, name="far", cost=80.0, price=13.0)
    assert choose(NOW, [BETTER, far], 0.05).of.name == "new"
    assert choose(NOW, [BETTER, replace(far, price=10.0)], 0.05).of.name == "far"
