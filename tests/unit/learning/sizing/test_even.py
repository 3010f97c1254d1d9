"""Even shares of partitions: the claims of the thesis, the grade by count, and the one by measured load."""

import random

import pytest

from learning.sizing import even
from tests.unit.learning.sizing import printed

TWELVE = range(1, 13)


def test_every_claimed_set_of_uniform_sizes_is_reproduced() -> None:
    assert {count: tuple(even.uniform_sizes(count, TWELVE)) for count in printed.UNIFORM} == printed.UNIFORM
    assert len(printed.UNIFORM) == 6


@pytest.mark.parametrize("servers", [1, 2, 5, 7, 24])
def test_equal_loads_are_graded_like_counts(servers: int) -> None:
    assert even.load_imbalance([3.0] * 24, servers) == pytest.approx(even.imbalance(24, servers))


def test_a_busy_partition_makes_even_counts_uneven() -> None:
    loads = [1.0] * 24
    loads[5] = 25.0
    assert even.imbalance(24, 4) == 1
    assert even.load_imbalance(loads, 4) == pytest.approx(30 / 12)
    assert even.load_imbalance([0.0] * 24, 4) == 1
    source = random.Random(3)
    loads = [source.random() for _ in range(10)]
    # More servers than partitions: some have none.
    assert even.load_imbalance(loads, 12) == pytest.approx(max(loads) * 12 / sum(loads))
