"""The histogram of delays against the delays themselves."""

import math
from random import Random

import pytest

from tools.load.delays import BAR_WIDTH, Delays


def delays(*values: float) -> Delays:
    made = Delays()
    for value in values:
        made.add(value)
    return made


@pytest.mark.parametrize("share", [0.01, 0.5, 0.9, 0.99, 1.0])
def test_quantiles_are_at_most_a_bucket_too_high(share: float) -> None:
    random = Random(1)
    values = sorted(random.lognormvariate(2, 1.5) + 0.5 for _ in range(5000))
    exact = values[max(1, math.ceil(share * len(values))) - 1]
    found = delays(*values).quantile(share)
    assert found is not None
    assert exact <= found <= exact * 2 ** (1 / 16) * 1.0001


def test_nothing_has_no_quantile_and_no_lines() -> None:
    assert Delays().quantile(0.5) is None
    assert (Delays().doublings(), Delays().lines()) == ([], [])


def test_maximum_is_exact_and_bounds_the_quantiles() -> None:
    found = delays(3.1, 3.2, 1000.3)
    assert (found.max_ms, found.quantile(1.0)) == (1000.3, 1000.3)


def test_delays_below_zero_are_counted_as_zero_and_apart() -> None:
    found = delays(-5.0, -0.1, 2.0)
    assert (found.count, found.early, found.quantile(0.5)) == (3, 2, 0.5)


def test_days_are_in_the_last_bucket() -> None:
    found = delays(1e9)
    assert found.quantile(0.5) == pytest.approx(0.5 * 2**23)
    assert found.max_ms == 1e9


def test_doublings_have_their_bounds_from_the_first_to_the_last_that_is_filled() -> None:
    found = delays(1.0, 1.1, 2.0, 2.01, 9.0)
    assert found.doublings() == [(0.5, 1.0, 1), (1.0, 2.0, 2), (2.0, 4.0, 1), (4.0, 8.0, 0), (8.0, 16.0, 1)]


def test_lines_are_bars_of_which_the_longest_is_full() -> None:
    lines = delays(1.5, 1.5, 1.5, 1.5, 3.0).lines()
    assert [line.split() for line in lines] == [["1-2", "ms", "#" * BAR_WIDTH, "4"], ["2-4", "ms", "#" * 10, "1"]]
    assert len({len(line) for line in lines}) == 1
