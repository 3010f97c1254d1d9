"""The pieces of a plan: baselines, bounds, the number of partitions, clusters, the publish rule."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse  # type: ignore[import-untyped]

from diem.protocol.partition_map import partition_of
from metadata.placement import baselines, bounds, coarsen
from metadata.placement.bisect import bisected
from metadata.placement.choose_p import partitions
from metadata.placement.publish import Valued, chosen
from metadata.placement.refine import Movement, View, refined
from tests.unit.metadata.placement.made import backend, instance, random_instance


def test_the_hash_is_that_of_the_protocol() -> None:
    names = ["/a", "/b/c"]
    assert baselines.murmur2(names, 7).tolist() == [partition_of(name.encode(), 7) for name in names]
    assert baselines.round_robin(5, 2).tolist() == [0, 1, 0, 1, 0]
    assert baselines.random(50, 4, 1).tolist() == baselines.random(50, 4, 1).tolist()


@given(st.lists(st.floats(0.1, 9), min_size=1, max_size=40), st.integers(1, 6))
def test_lpt_is_within_its_guarantee_of_the_lower_bound(weights: list[float], k: int) -> None:
    load = np.array(weights)
    fullest = np.bincount(baselines.lpt(load, k), weights=load, minlength=k).max()
    least = bounds.least_load(load, k)
    assert least <= fullest + 1e-9
    assert fullest <= (4 / 3 - 1 / (3 * k)) * max(least, fullest)
    # Graham's bound for any list order, against what is known of the optimum.
    assert fullest <= load.sum() / k + load.max() + 1e-9


def test_the_bound_of_the_load_knows_heavy_endpoints() -> None:
    assert bounds.least_load(np.array([9.0, 1, 1]), 2) == 9
    assert bounds.least_load(np.array([5.0, 5, 5]), 2) == 10
    assert bounds.least_load(np.array([1.0, 1, 1, 1]), 2) == 2


def test_a_client_with_more_than_a_server_can_have_needs_two() -> None:
    made = instance([1.0] * 4, ([0, 1, 2, 3], 1), ([0], 1))
    assert bounds.least_fan_out(backend(made), np.ones(4), 2.0) == 1.5


def test_the_number_of_partitions_grows_until_the_load_is_even() -> None:
    load = np.ones(1000)
    assert partitions(load, (4, 8), 8, 0.05) == 8
    assert partitions(load, (5, 8), 8, 0.05) > 8
    found = partitions(load, (5, 6, 8), 6, 0.05)
    assert max(-(-found // each) * each / found for each in (5, 6, 8)) <= 1.06
    assert partitions(load, (2,), 17, 0.1) == 17


def test_clusters_respect_their_size_and_borders() -> None:
    made = random_instance(5, 60, 600)
    searched = backend(made)
    within = (np.arange(60) // 30).astype(np.int32)
    within[7] = -1
    edges = coarsen.graph(searched, within >= 0)
    label = coarsen.clusters(edges, np.ones(60), 6.0, within, rounds=5, rng=np.random.default_rng(0))
    assert label[7] == -1
    counts = np.bincount(label[label >= 0])
    assert 1 < counts.max() <= 6
    assert counts.min() >= 1
    assert counts.size < 59
    for each in range(counts.size):
        assert np.unique(within[label == each]).size == 1


def test_a_graph_of_clusters_keeps_the_edges_between_them() -> None:
    edges = sparse.csr_array(np.array([[0, 1, 2], [1, 0, 4], [2, 4, 0]], float))
    found = coarsen.shrunk(edges, np.array([0, 0, 1], np.int32), 2).toarray()
    assert found.tolist() == [[0, 6], [6, 0]]


def test_leaves_that_are_neighbours_are_alike() -> None:
    """Four groups that come in two pairs: the first cut is between the pairs."""
    sets = [([4 * group + a, 4 * group + b], 10) for group in range(4) for a in range(4) for b in range(a)]
    sets += [([8 * pair + a, 8 * pair + 4 + b], 3) for pair in range(2) for a in range(4) for b in range(4)]
    made = instance([1.0] * 16, *sets)
    found = {
        tuple(bisected(backend(made), np.ones(16), np.zeros(16, np.int32), 4, seed=seed, epsilon=0.05) // 2)
        for seed in range(5)
    }
    assert (0,) * 8 + (1,) * 8 in found or (1,) * 8 + (0,) * 8 in found


def test_refinement_never_overfills_nor_spends_more_than_it_may() -> None:
    made = random_instance(3, 40, 300)
    load, start = np.ones(40), (np.arange(40) % 4).astype(np.int32)
    view = View(np.arange(4, dtype=np.int32), 4, 11.0)
    movement = Movement(start, np.ones(40), 5.0)
    part = refined(backend(made), load, start, [view], movement=movement)
    assert 0 < (part != start).sum() <= 5
    free = refined(backend(made), load, start, [view])
    assert np.bincount(free, minlength=4).max() <= 11
    assert (free != start).sum() > 5


NOW = Valued("now", np.zeros(2, np.int32), 2, 100.0, 1.0, 1.0, 0.0, 0.0)
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
    now: Valued | None, found: Valued, pays: bool
) -> None:
    verdict = chosen(now, [found], 0.05)
    assert (verdict.pays, bool(verdict.why)) == (pays, True)


def test_of_those_that_pay_the_cheapest_with_its_moves_is_taken() -> None:
    far = replace(BETTER, name="far", cost=80.0, price=13.0)
    assert chosen(NOW, [BETTER, far], 0.05).of.name == "new"
    assert chosen(NOW, [BETTER, replace(far, price=10.0)], 0.05).of.name == "far"
