"""Numbers the leaves of a new placement so that few subscriptions move, and no server is any different for it.

A planned number of servers divides the leaves into ranges. Leaves, and ranges of the same form, may be exchanged within
what is a server, for every planned number; which of them are is an assignment problem on every level, from the bottom.
"""

from bisect import bisect
from collections.abc import Iterable
from itertools import pairwise, permutations
from typing import Final, NamedTuple

import numpy as np
from scipy.optimize import linear_sum_assignment  # type: ignore[import-untyped]

from metadata.placement.blocks import Floats, Ints, Parts, summed
from metadata.placement.ranges import server_of_leaf

MOST_LEAVES: Final = 2048
"""Placements of more leaves stay as they are: an assignment takes the cube of them."""
FEW: Final = 4
"""Assignments of so few are tried through, all pairs of ranges at a time."""
TIE: Final = 1e-9
"""What it is worth, of all that there is, that leaves keep their numbers: neighbours are alike."""


class _Form(NamedTuple):
    """A run of leaves with the bounds of servers in it: runs of the same form may be exchanged."""

    size: int
    cuts: tuple[tuple[int, ...], ...]
    """Of each number of servers, inside; who has some has bounds at both ends, too."""


_Way = list[tuple[_Form, Ints, Ints]]
"""Parts by their form: any of those that begin at the first offsets may get to any of the second offsets."""


def relabelled(placement: Parts, current: Parts, leaves: int, servers: Iterable[int], effort: Floats) -> Parts:
    """``placement`` with other numbers for its leaves: as much of the ``effort`` as possible stays in ``current``.

    For each of the ``servers`` the sets of endpoints that are together on a server are the same as before. Partitions
    of both are below ``leaves``; hot endpoints (negative) stay so. Of equally good numbers, leaves keep theirs.
    """
    stays = (placement >= 0) & (current >= 0)
    if leaves > MOST_LEAVES or not stays.any():
        return placement
    cells = placement[stays].astype(np.int64) * leaves + current[stays]
    overlap = summed(cells, effort[stays], leaves**2).reshape(leaves, leaves)
    overlap += np.eye(leaves) * (TIE * float(overlap.sum()) / leaves)
    number = np.zeros(leaves, np.int32)
    _number(_form(leaves, servers), overlap, 0, 0, number)
    found = np.where(placement < 0, placement, number[placement]).astype(np.int32)
    return found if effort[found != current].sum() < effort[placement != current].sum() else placement


def _form(leaves: int, servers: Iterable[int]) -> _Form:
    servers_of = [server_of_leaf(leaves, each) for each in sorted(set(servers))]
    return _Form(leaves, tuple(tuple((np.flatnonzero(np.diff(each)) + 1).tolist()) for each in servers_of))


def _ways(form: _Form) -> list[_Way]:
    """How the parts of a run may change places."""
    divided = [set(cuts) for cuts in form.cuts if cuts]
    if not divided:
        every = np.arange(form.size)
        return [[(_Form(1, ()), every, every)]]
    common = set.intersection(*divided)
    at = [0, *sorted(common or _crossing(form)), form.size]
    parts, starts = [_part(form, *ends) for ends in pairwise(at)], np.array(at[:-1])
    if common:
        same = [(each, starts[[part == each for part in parts]]) for each in dict.fromkeys(parts)]
        return [[(part, offsets, offsets) for part, offsets in same]]
    ways = [starts]
    if parts == parts[::-1] and all({form.size - cut for cut in cuts} == cuts for cuts in divided):
        ways.append(starts[::-1])
    return [list(zip(parts, starts[:, None], to[:, None], strict=True)) for to in ways]


def _crossing(form: _Form) -> set[int]:
    """Bounds where ranges cross: those of the fewest servers, and of every range that has one of them inside."""
    divided = [cuts for cuts in form.cuts if cuts]
    found, before = set(divided[0]), set[int]()
    while found != before:
        before = set(found)
        for cuts in divided:
            ends = [0, *cuts, form.size]
            for cut in before.difference(cuts):
                found |= {ends[bisect(ends, cut) - 1], ends[bisect(ends, cut)]}
        found -= {0, form.size}
    return found


def _part(form: _Form, start: int, end: int) -> _Form:
    return _Form(end - start, tuple(tuple(cut - start for cut in cuts if start < cut < end) for cuts in form.cuts))


def _most(form: _Form, overlap: Floats, rows: Ints, columns: Ints) -> Floats:
    """The most overlap of each run of ``form`` in ``rows`` with each in ``columns``: float64[rows, columns]."""
    if form.size == 1:
        return overlap[np.ix_(rows, columns)]
    most: Floats = np.max([_most_of(way, overlap, rows, columns) for way in _ways(form)], axis=0)
    return most


def _most_of(way: _Way, overlap: Floats, rows: Ints, columns: Ints) -> Floats:
    total = np.zeros((rows.size, columns.size))
    for part, old, new in way:
        inner = _most(part, overlap, np.add.outer(rows, old).ravel(), np.add.outer(columns, new).ravel())
        total += _assigned(inner.reshape(rows.size, old.size, columns.size, old.size).swapaxes(1, 2))
    return total


def _assigned(gain: Floats) -> Floats:
    """The value of the best assignment of each of many square matrices: float64[rows, columns] of [.., .., m, m]."""
    every = np.arange(gain.shape[-1])
    if every.size <= FEW:
        tried: Floats = np.maximum.reduce([gain[..., every, order].sum(-1) for order in permutations(every)])
        return tried
    best = np.zeros(gain.shape[:2])
    for row, column in np.argwhere(gain.any((2, 3))).tolist():
        one = gain[row, column]
        best[row, column] = one[linear_sum_assignment(one, maximize=True)].sum()
    return best


def _number(form: _Form, overlap: Floats, row: int, column: int, number: Parts) -> None:
    """Give the leaves of the run at ``row`` the numbers of that at ``column``, in the best order."""
    if form.size == 1:
        number[row] = column
        return
    rows, columns = np.array([row]), np.array([column])
    way = max(_ways(form), key=lambda each: float(_most_of(each, overlap, rows, columns)[0, 0]))
    for part, old, new in way:
        pairs = linear_sum_assignment(_most(part, overlap, row + old, column + new), maximize=True)
        for one, other in zip(*pairs, strict=True):
            _number(part, overlap, row + int(old[one]), column + int(new[other]), number)
