"""Renumber the leaves of a new placement so that few subscriptions move, without changing any server's endpoints.

A planned number of servers divides the leaves into ranges. Leaves, and ranges of the same shape, may be exchanged as
long as every server keeps its leaves, for each planned number; which to exchange is an assignment problem on every
level, solved bottom-up. Separate from its only caller, ``planner``: an algorithm of its own, which knows no loads.
"""

from bisect import bisect
from collections.abc import Iterable
from itertools import pairwise, permutations
from typing import Final, NamedTuple

import numpy as np

from learning.placement.blocks import Floats, Ints, Parts, sum_by_cell
from learning.placement.objective import server_of_leaf

MAX_LEAVES: Final = 2048
"""Placements with more leaves keep their numbers: an assignment takes cubic time."""
BRUTE_FORCE_SIZE: Final = 4
"""Assignments up to this size are solved by trying all permutations, vectorised over pairs of ranges."""
TIE_BREAK: Final = 1e-9
"""Bonus for leaves that keep their numbers, as a share of the whole overlap: keeps similar leaves neighbours."""


class _Shape(NamedTuple):
    """A run of leaves with the bounds of servers in it: runs of the same shape are interchangeable."""

    size: int
    cuts: tuple[tuple[int, ...], ...]
    """Inner bounds for each number of servers; if there are any, both ends of the run are bounds, too."""


_Exchange = list[tuple[_Shape, Ints, Ints]]
"""Interchangeable runs by shape: any run at one of the first offsets may move to any of the second offsets."""


def relabel(placement: Parts, current: Parts, leaves: int, servers: Iterable[int], move_cost: Floats) -> Parts:
    """Renumber the leaves of ``placement`` to minimise the total ``move_cost`` of endpoints not at home in ``current``.

    For each of the ``servers``, the endpoints that share a server are the same as before. Partitions of both placements
    are below ``leaves``; hot endpoints (negative) stay so. Of equally good numbers, leaves keep theirs.
    """
    stays = (placement >= 0) & (current >= 0)
    if leaves > MAX_LEAVES or not stays.any():
        return placement
    cells = placement[stays].astype(np.int64) * leaves + current[stays]
    overlap = sum_by_cell(cells, move_cost[stays], leaves**2).reshape(leaves, leaves)
    overlap += np.eye(leaves) * (TIE_BREAK * float(overlap.sum()) / leaves)
    number = np.zeros(leaves, np.int32)
    _renumber(_shape(leaves, servers), overlap, 0, 0, number)
    renumbered = np.where(placement < 0, placement, number[placement]).astype(np.int32)
    is_better = move_cost[renumbered != current].sum() < move_cost[placement != current].sum()
    return renumbered if is_better else placement


def _shape(leaves: int, servers: Iterable[int]) -> _Shape:
    servers_of = [server_of_leaf(leaves, each) for each in sorted(set(servers))]
    return _Shape(leaves, tuple(tuple((np.flatnonzero(np.diff(each)) + 1).tolist()) for each in servers_of))


def _exchanges(shape: _Shape) -> list[_Exchange]:
    """Return the possible exchanges of the parts of a run."""
    divided = [set(cuts) for cuts in shape.cuts if cuts]
    if not divided:
        every = np.arange(shape.size)
        return [[(_Shape(1, ()), every, every)]]
    common = set.intersection(*divided)
    at = [0, *sorted(common or _crossing(shape)), shape.size]
    parts, starts = [_sub_shape(shape, *ends) for ends in pairwise(at)], np.array(at[:-1])
    if common:
        same = [(each, starts[[part == each for part in parts]]) for each in dict.fromkeys(parts)]
        return [[(part, offsets, offsets) for part, offsets in same]]
    exchanges = [starts]
    if parts == parts[::-1] and all({shape.size - cut for cut in cuts} == cuts for cuts in divided):
        exchanges.append(starts[::-1])
    return [list(zip(parts, starts[:, None], to[:, None], strict=True)) for to in exchanges]


def _crossing(shape: _Shape) -> set[int]:
    """Return the bounds where ranges cross: those of the fewest servers, and of every range that contains one."""
    divided = [cuts for cuts in shape.cuts if cuts]
    found, before = set(divided[0]), set[int]()
    while found != before:
        before = set(found)
        for cuts in divided:
            ends = [0, *cuts, shape.size]
            for cut in before.difference(cuts):
                found |= {ends[bisect(ends, cut) - 1], ends[bisect(ends, cut)]}
        found -= {0, shape.size}
    return found


def _sub_shape(shape: _Shape, start: int, end: int) -> _Shape:
    return _Shape(end - start, tuple(tuple(cut - start for cut in cuts if start < cut < end) for cuts in shape.cuts))


def _max_overlap(shape: _Shape, overlap: Floats, rows: Ints, columns: Ints) -> Floats:
    """Return the largest overlap of runs of ``shape`` in ``rows`` and ``columns``: float64[rows, columns]."""
    if shape.size == 1:
        return overlap[np.ix_(rows, columns)]
    most: Floats = np.max(
        [_exchange_overlap(exchange, overlap, rows, columns) for exchange in _exchanges(shape)], axis=0
    )
    return most


def _exchange_overlap(exchange: _Exchange, overlap: Floats, rows: Ints, columns: Ints) -> Floats:
    total = np.zeros((rows.size, columns.size))
    for part, old, new in exchange:
        inner = _max_overlap(part, overlap, np.add.outer(rows, old).ravel(), np.add.outer(columns, new).ravel())
        total += _assignment_value(inner.reshape(rows.size, old.size, columns.size, old.size).swapaxes(1, 2))
    return total


def _assignment_value(gain: Floats) -> Floats:
    """Return the best assignment's value for many square matrices: float64[rows, columns] of [.., .., m, m]."""
    every = np.arange(gain.shape[-1])
    if every.size <= BRUTE_FORCE_SIZE:
        tried: Floats = np.maximum.reduce([gain[..., every, order].sum(-1) for order in permutations(every)])
        return tried
    best = np.zeros(gain.shape[:2])
    for row, column in np.argwhere(gain.any((2, 3))).tolist():
        one = gain[row, column]
        best[row, column] = one[_assign(one)].sum()
    return best


def _assign(gain: Floats) -> tuple[Ints, Ints]:
    """Return rows and columns of the best assignment."""
    # Only for a placement that there is already: to load SciPy's optimisers takes a third of a second.
    from scipy.optimize import linear_sum_assignment  # type: ignore[import-untyped]  # noqa: PLC0415

    rows, columns = linear_sum_assignment(gain, maximize=True)
    return rows, columns


def _renumber(shape: _Shape, overlap: Floats, row: int, column: int, number: Parts) -> None:
    """Number the leaves of the run at ``row`` like those of the run at ``column``, in the best order."""
    if shape.size == 1:
        number[row] = column
        return
    rows, columns = np.array([row]), np.array([column])
    exchange = max(_exchanges(shape), key=lambda each: float(_exchange_overlap(each, overlap, rows, columns)[0, 0]))
    for part, old, new in exchange:
        pairs = _assign(_max_overlap(part, overlap, row + old, column + new))
        for one, other in zip(*pairs, strict=True):
            _renumber(part, overlap, row + int(old[one]), column + int(new[other]), number)
