from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from learning.placement.blocks import Floats, Parts
from learning.placement.objective import server_of_endpoint, server_of_leaf
from learning.placement.relabel import MAX_LEAVES, relabel

Servers = tuple[int, ...]


def together(placement: Parts, leaves: int, servers: int) -> list[frozenset[int]]:
    """The endpoints of each server, in a canonical order."""
    part = server_of_endpoint(placement, leaves, servers)
    return sorted((frozenset(np.flatnonzero(part == each).tolist()) for each in range(servers)), key=sorted)


def allowed(leaves: int, servers: Servers) -> list[Parts]:
    """All renumberings of the leaves in which every server keeps its leaves."""
    every = [np.array(order, np.int32) for order in permutations(range(leaves))]
    views = [server_of_leaf(leaves, each).tolist() for each in servers]
    return [
        new
        for new in every
        if all(len({(a, view[b]) for a, b in zip(view, new, strict=True)}) == len(set(view)) for view in views)
    ]


def moved(placement: Parts, current: Parts, move_cost: Floats) -> float:
    return float(move_cost[placement != current].sum())


@st.composite
def cases(draw: st.DrawFn, most: int) -> tuple[int, Servers, Parts, Parts, Floats]:
    """Leaves, planned numbers of servers, and a new and a current placement of endpoints with their move costs."""
    leaves = draw(st.integers(1, most))
    servers = draw(st.lists(st.integers(1, leaves + 1), min_size=1, max_size=3))
    row = st.tuples(st.integers(-1, leaves - 1), st.integers(-1, leaves - 1), st.integers(1, 9))
    rows = draw(st.lists(row, max_size=40))
    placement, current, move_cost = np.array(rows, np.int32).reshape(-1, 3).T.copy()
    return leaves, tuple(servers), placement, current, move_cost.astype(np.float64)


@given(cases(48))
@settings(deadline=None)
def test_relabelling_keeps_the_endpoints_of_servers_and_never_adds_moves(
    case: tuple[int, Servers, Parts, Parts, Floats],
) -> None:
    leaves, servers, placement, current, move_cost = case
    found = relabel(placement, current, leaves, servers, move_cost)
    for each in servers:
        assert together(found, leaves, each) == together(placement, leaves, each)
    assert ((found < 0) == (placement < 0)).all()
    assert moved(found, current, move_cost) <= moved(placement, current, move_cost)
    assert relabel(placement, current, leaves, servers, move_cost).tobytes() == found.tobytes()


@given(cases(5))
@settings(deadline=None)
def test_relabelling_is_optimal(case: tuple[int, Servers, Parts, Parts, Floats]) -> None:
    leaves, servers, placement, current, move_cost = case
    every = [np.where(placement < 0, -1, new[placement]) for new in allowed(leaves, servers)]
    least = min(moved(each, current, move_cost) for each in every)
    assert moved(relabel(placement, current, leaves, servers, move_cost), current, move_cost) == least


@given(st.data())
@settings(deadline=None)
def test_placements_that_differ_only_in_numbers_move_nothing(data: st.DataObject) -> None:
    leaves, servers, current, _, move_cost = data.draw(cases(6))
    new = data.draw(st.sampled_from(allowed(leaves, servers)))
    placement = np.where(current < 0, -1, new[current]).astype(np.int32)
    assert relabel(placement, current, leaves, servers, move_cost).tolist() == current.tolist()


@pytest.mark.parametrize(
    ("leaves", "servers", "new"),
    [
        (24, (4, 8), [*range(18, 24), *range(6, 12), 15, 16, 17, 14, 13, 12, *range(6)]),
        (24, (4, 6), [*range(12, 24), *range(11, -1, -1)]),
        (10, (4,), [3, 4, 5, 2, 0, 1, 8, 9, 7, 6]),
        (12, (2, 3), [11, 10, 9, 8, 6, 7, 5, 4, 3, 0, 1, 2]),
    ],
    ids=["servers within servers", "servers that cross in halves", "servers of unequal size", "in the mirror"],
)
def test_ranges_of_the_same_shape_are_exchanged(leaves: int, servers: Servers, new: list[int]) -> None:
    current, placement = np.arange(leaves, dtype=np.int32), np.array(new, np.int32)
    assert relabel(placement, current, leaves, servers, np.ones(leaves)).tolist() == current.tolist()


def test_among_equally_good_numbers_the_order_is_kept() -> None:
    current, placement = np.array([-1, -1, -1, 0], np.int32), np.arange(4, dtype=np.int32)
    assert relabel(placement, current, 4, (2,), np.ones(4)).tolist() == [2, 3, 1, 0]


def test_too_many_leaves_keep_their_numbers() -> None:
    current, placement = np.array([1, 0], np.int32), np.array([0, 1], np.int32)
    assert relabel(placement, current, MAX_LEAVES, (1,), np.ones(2)).tolist() == [1, 0]
    assert relabel(placement, current, MAX_LEAVES + 1, (1,), np.ones(2)).tolist() == [0, 1]
