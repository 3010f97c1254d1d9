"""Clusters and bisection of the multilevel search."""

import numpy as np
from scipy import sparse  # type: ignore[import-untyped]

from learning.placement import multilevel
from tests.unit.learning.placement.instances import backend, instance, random_instance


def test_clusters_respect_their_size_and_borders() -> None:
    made = random_instance(5, 60, 600)
    searched = backend(made)
    within = (np.arange(60) // 30).astype(np.int32)
    within[7] = -1
    edges = multilevel.cosubscription_graph(searched, within >= 0)
    label = multilevel.cluster(edges, np.ones(60), 6.0, within, rounds=5, rng=np.random.default_rng(0))
    assert label[7] == -1
    counts = np.bincount(label[label >= 0])
    assert 1 < counts.max() <= 6
    assert counts.min() >= 1
    assert counts.size < 59
    for each in range(counts.size):
        assert np.unique(within[label == each]).size == 1


def test_a_graph_of_clusters_keeps_the_edges_between_them() -> None:
    edges = sparse.csr_array(np.array([[0, 1, 2], [1, 0, 4], [2, 4, 0]], float))
    found = multilevel.contract_graph(edges, np.array([0, 0, 1], np.int32), 2).toarray()
    assert found.tolist() == [[0, 6], [6, 0]]


def test_bisection_puts_similar_endpoints_on_neighbouring_leaves() -> None:
    """Four groups in two pairs: the first cut is between the pairs."""
    sets = [([4 * group + a, 4 * group + b], 10) for group in range(4) for a in range(4) for b in range(a)]
    sets += [([8 * pair + a, 8 * pair + 4 + b], 3) for pair in range(2) for a in range(4) for b in range(4)]
    made = instance([1.0] * 16, *sets)
    found = {
        tuple(multilevel.bisect(backend(made), np.ones(16), np.zeros(16, np.int32), 4, seed=seed, epsilon=0.05) // 2)
        for seed in range(5)
    }
    assert (0,) * 8 + (1,) * 8 in found or (1,) * 8 + (0,) * 8 in found
