"""Baselines and lower bounds."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from diem.protocol.partitioners import partition_of
from learning.placement import baselines


def test_murmur2_is_the_hash_of_the_protocol() -> None:
    names = ["/a", "/b/c"]
    assert baselines.murmur2(names, 7).tolist() == [partition_of(name.encode(), 7) for name in names]
    assert baselines.round_robin(5, 2).tolist() == [0, 1, 0, 1, 0]
    assert baselines.random(50, 4, 1).tolist() == baselines.random(50, 4, 1).tolist()


@given(st.lists(st.floats(0.1, 9), min_size=1, max_size=40), st.integers(1, 6))
def test_lpt_is_within_its_guarantee_of_the_lower_bound(weights: list[float], k: int) -> None:
    load = np.array(weights)
    fullest = np.bincount(baselines.lpt(load, k), weights=load, minlength=k).max()
    least = baselines.load_lower_bound(load, k)
    assert least <= fullest + 1e-9
    assert fullest <= (4 / 3 - 1 / (3 * k)) * max(least, fullest)
    # Graham's bound for any list order, against what is known of the optimum.
    assert fullest <= load.sum() / k + load.max() + 1e-9


def test_the_load_bound_accounts_for_heavy_endpoints() -> None:
    assert baselines.load_lower_bound(np.array([9.0, 1, 1]), 2) == 9
    assert baselines.load_lower_bound(np.array([5.0, 5, 5]), 2) == 10
    assert baselines.load_lower_bound(np.array([1.0, 1, 1, 1]), 2) == 2
