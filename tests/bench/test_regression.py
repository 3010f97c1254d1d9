"""The fit behind ``make bench-cost``."""

import random

import pytest

from tests.bench.regression import Estimate, fit, predicted

BLOCKS = [{"seconds": 1.0, "frames": float(frames), "updates": float(n)} for frames in (0, 40, 90) for n in (0, 7, 30)]
TRUE = {"seconds": 0.01, "frames": 2e-5, "updates": 3e-4}


def costs(rng: random.Random | None = None) -> list[float]:
    exact = [sum(TRUE[name] * amount for name, amount in block.items()) for block in BLOCKS]
    return [cost * (1 + (rng.gauss(0, 0.02) if rng else 0)) for cost in exact]


def test_finds_what_each_thing_costs_when_nothing_disturbs() -> None:
    found = fit(BLOCKS, costs(), costs())
    assert {name: each.value for name, each in found.items()} == pytest.approx(TRUE)
    assert max(each.error / TRUE[name] for name, each in found.items()) < 1e-9


def test_the_standard_error_says_how_far_estimates_scatter() -> None:
    rng = random.Random(1)
    fits = [fit(BLOCKS, noisy, noisy) for noisy in (costs(rng) for _ in range(300))]
    off = [(each["frames"].value - TRUE["frames"]) / each["frames"].error for each in fits]
    # Student's t of six degrees of freedom: 95 % lie within 2.45.
    assert 0.9 < sum(abs(t) < 2.45 for t in off) / len(off) < 0.99


def test_a_quantity_that_a_block_lacks_is_none_of_it() -> None:
    sparse = [{name: amount for name, amount in block.items() if amount} for block in BLOCKS]
    found, full = fit(sparse, costs(), costs()), fit(BLOCKS, costs(), costs())
    assert {name: each.value for name, each in found.items()} == pytest.approx({n: e.value for n, e in full.items()})


def test_blocks_that_do_not_tell_two_things_apart_are_refused() -> None:
    with pytest.raises(ValueError, match="tell updates, frames apart"):
        fit([{"updates": n, "frames": 2 * n} for n in (1.0, 2.0, 3.0)], [1.0, 2.0, 3.0], [1.0] * 3)


def test_predicts_the_sum_of_what_is_there() -> None:
    assert predicted({"a": Estimate(2.0, 0.1), "b": Estimate(3.0, 0.1)}, {"a": 1.0, "b": 10.0}) == 32.0


def test_nothing_costs_less_than_nothing() -> None:
    wanted = [1.0 - 0.01 * block["frames"] for block in BLOCKS]
    found = fit(BLOCKS, wanted, [1.0] * len(BLOCKS))
    assert min(each.value for each in found.values()) == 0.0
