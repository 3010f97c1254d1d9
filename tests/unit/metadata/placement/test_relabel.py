"""New numbers for leaves: fewer moves, and the same endpoints together on every planned number of servers."""

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metadata.placement.blocks import Floats, Parts
from metadata.placement.objective import server_of_endpoint, server_of_leaf
from metadata.placement.relabel import MAX_LEAVES, relabel

Servers = tuple[int, ...]


def together(placement: Parts, leaves: int, servers: int) -> list[frozenset[int]]:
    """Which endpoints are together on a server."""
    part = server_of_endpoint(placement, leaves, servers)
    return sorted((frozenset(np.flatnonzero(part == each).tolist()) for each in range(servers)), key=sorted)


def allowed(leaves: int, servers: Servers) -> list[Parts]:
    """All new numbers of the leaves with which every server keeps its leaves."""
    every = [np.array(order, np.int32) for order in permutations(range(leaves))]
    views = [server_of_leaf(leaves, each).tolist() for each in servers]
    return [
        new
        for new in every
        if all(len({(a, view[b]) for a, b in zip(view, new, strict=True)}) == len(set(view)) for view in views)
    ]


def moved(placement: Parts, current: Parts, effort: Floats) -> float:
    return float(effort[placement != current].sum())


@st.composite
def cases(draw: st.DrawFn, most: int) -> tuple[int, Servers, Parts, Parts, Floats]:
    """Leaves, planned numbers of servers, and a new and a current placement of endpoints with their efforts."""
    leaves = draw(st.integers(1, most))
    servers = draw(st.lists(st.integers(1, leaves + 1), min_size=1, max_size=3))
    row = st.tuples(st.integers(-1, leaves - 1), st.integers(-1, leaves - 1), st.integers(1, 9))
    rows = draw(st.lists(row, max_size=40))
    placement, current, effort = np.array(rows, np.int32).reshape(-1, 3).T.copy()
    return leaves, tuple(servers), placement, current, effort.astype(np.float64)


@given(cases(48))
@settings(deadline=None)
def test_servers_have_the_same_endpoints_and_no_more_moves(case: tuple[int, Servers, Parts, Parts, Floats]) -> None:
    leaves, servers, placement, current, effort = case
    found = relabel(placement, current, leaves, servers, effort)
    for each in servers:
        assert together(found, leaves, each) == together(placement, leaves, each)
    assert ((found < 0) == (placement < 0)).all()
    assert moved(found, current, effort) <= moved(placement, current, effort)
    assert relabel(placement, current, leaves, servers, effort).tobytes() == found.tobytes()


@given(cases(5))
@settings(deadline=None)
def test_no_numbers_that_keep_the_servers_have_fewer_moves(case: tuple[int, Servers, Parts, Parts, Floats]) -> None:
    leaves, servers, placement, current, effort = case
    every = [np.where(placement < 0, -1, new[placement]) for new in allowed(leaves, servers)]
    least = min(moved(each, current, effort) for each in every)
    assert moved(relabel(placement, current, leaves, servers, effort), current, effort) == least


@given(st.data())
@settings(deadline=None)
def test_what_is_the_same_but_for_its_numbers_does_not_move(data: st.DataObject) -> None:
    leaves, servers, current, _, effort = data.draw(cases(6))
    new = data.draw(st.sampled_from(allowed(leaves, servers)))
    placement = np.where(current < 0, -1, new[current]).astype(np.int32)
    assert relabel(placement, current, leaves, servers, effort).tolist() == current.tolist()


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
def test_ranges_of_the_same_form_are_exchanged(leaves: int, servers: Servers, new: list[int]) -> None:
    current, placement = np.arange(leaves, dtype=np.int32), np.array(new, np.int32)
    assert relabel(placement, current, leaves, servers, np.ones(leaves)).tolist() == current.tolist()


def test_of_equal_numbers_the_lowest_are_given_in_order() -> None:
    current, placement = np.array([-1, -1, -1, 0], np.int32), np.arange(4, dtype=np.int32)
    assert relabel(placement, current, 4, (2,), np.ones(4)).tolist() == [2, 3, 1, 0]


def test_too_many_leaves_keep_their_numbers() -> None:
    current, placement = np.array([1, 0], np.int32), np.array([0, 1], np.int32)
    assert relabel(placement, current, MAX_LEAVES, (1,), np.ones(2)).tolist() == [1, 0]
    assert relabel(placement, current, MAX_LEAVES + 1, (1,), np.ones(2)).tolist() == [0, 1]
