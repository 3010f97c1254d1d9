"""Clusters of the multilevel search."""

import numpy as np
from scipy import sparse  # type: ignore[import-untyped]

from metadata.placement import multilevel
from tests.unit.metadata.placement.made import backend, random_instance


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
