"""Recursive bisection."""

import numpy as np

from metadata.placement.bisect import bisect
from tests.unit.metadata.placement.made import backend, instance


def test_leaves_that_are_neighbours_are_alike() -> None:
    """Four groups that come in two pairs: the first cut is between the pairs."""
    sets = [([4 * group + a, 4 * group + b], 10) for group in range(4) for a in range(4) for b in range(a)]
    sets += [([8 * pair + a, 8 * pair + 4 + b], 3) for pair in range(2) for a in range(4) for b in range(4)]
    made = instance([1.0] * 16, *sets)
    found = {
        tuple(bisect(backend(made), np.ones(16), np.zeros(16, np.int32), 4, seed=seed, epsilon=0.05) // 2)
        for seed in range(5)
    }
    assert (0,) * 8 + (1,) * 8 in found or (1,) * 8 + (0,) * 8 in found
