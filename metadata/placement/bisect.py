"""SHP-2: recursive bisection into leaves that are numbered in the order of the tree, so that neighbours are alike."""

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from metadata.placement.backend import Backend
from metadata.placement.blocks import Floats, Ints, Parts

MAX_ROUNDS: Final = 25
MIN_CANDIDATES: Final = 50
"""Vertices of each side tried in a round even without a gain."""
MAX_MOVED_SHARE: Final = 0.15
"""Share of a group that moves in one round at most."""
MOVE_PROBABILITY: Final = 0.8
"""Probability that a vertex may move in a round: neighbours do not all swap places (SHP's move probability)."""


@dataclass
class _Group:
    """Vertices to divide: ``share`` of their load belongs on side 0."""

    members: Ints
    share: float


def bisect(
    backend: Backend, load: Floats, within: Parts, leaves: int, *, seed: int, epsilon: float, stop: float = 1e-4
) -> Parts:
    """Return the leaf of every vertex: int32[E], 0 to ``leaves`` - 1; -1 where ``within`` is negative.

    SHP, VLDB'17, section 3.3 (p = 1/2), but balanced by load instead of number: each group is divided as its numbers
    of leaves are, within its share of ``epsilon``. All groups of a level are worked on at the same time.
    """
    rng = np.random.default_rng(seed)
    low = np.where(within < 0, -1, 0).astype(np.int32)
    high = np.where(within < 0, 0, leaves).astype(np.int32)
    slack = epsilon / np.log2(max(2, leaves))
    while (active := high - low > 1).any():
        middle = (low + high + 1) // 2
        side, groups = _split_groups(load, low, high, active, rng)
        backend.begin_level(np.where(active, low, -1).astype(np.int32))
        for _ in range(MAX_ROUNDS):
            gain = backend.gains(side)
            if sum(_swap(gain, load, side, group, slack=slack, rng=rng) for group in groups) < stop * active.sum():
                break
        low, high = (
            np.where(active & (side == 1), middle, low).astype(np.int32),
            np.where(active & (side == 0), middle, high).astype(np.int32),
        )
    backend.end_levels()
    return low


def _split_groups(
    load: Floats, low: Parts, high: Parts, active: npt.NDArray[np.bool_], rng: np.random.Generator
) -> tuple[npt.NDArray[np.uint8], list[_Group]]:
    """Return the groups of a level, each divided at random."""
    side, groups = np.zeros(load.size, np.uint8), []
    members = np.flatnonzero(active)
    members = members[np.argsort(low[members], kind="stable")]
    first = np.flatnonzero(np.append(True, low[members][1:] != low[members][:-1]))
    for group in np.split(members, first[1:]):
        bottom, top = int(low[group[0]]), int(high[group[0]])
        share = ((bottom + top + 1) // 2 - bottom) / (top - bottom)
        groups.append(_Group(group, share))
        mixed = group[rng.permutation(group.size)]
        filled = np.cumsum(load[mixed])
        side[mixed[filled > share * filled[-1]]] = 1
    return side, groups


def _swap(
    gain: Floats, load: Floats, side: npt.NDArray[np.uint8], group: _Group, *, slack: float, rng: np.random.Generator
) -> int:
    """Move the vertices of a group that gain most, alternating so that side 0 keeps its share of the load."""
    sides = side[group.members]
    zeros, ones = (_candidates(gain, group.members[sides == each], rng) for each in (0, 1))
    whole = float(load[group.members].sum())
    at_zero, wanted = float(load[group.members[sides == 0]].sum()), group.share * whole
    room = slack * whole * min(group.share, 1 - group.share)
    gain0, gain1, load0, load1 = gain[zeros].tolist(), gain[ones].tolist(), load[zeros].tolist(), load[ones].tolist()
    i = j = 0
    for _ in range(max(4, int(MAX_MOVED_SHARE * group.members.size))):
        best0 = gain0[i] if i < len(gain0) else -np.inf
        best1 = gain1[j] if j < len(gain1) else -np.inf
        if at_zero > wanted:
            from_one = best1 > best0 and best1 > 0 and at_zero + load1[j] <= wanted + room
            if not from_one and not (best0 > 0 or (best0 > -np.inf and at_zero > wanted + room)):
                break
        else:
            from_zero = best0 > best1 and best0 > 0 and at_zero - load0[i] >= wanted - room
            from_one = not from_zero
            if from_one and not (best1 > 0 or (best1 > -np.inf and at_zero < wanted - room)):
                break
        if from_one:
            at_zero += load1[j]
            j += 1
        else:
            at_zero -= load0[i]
            i += 1
    side[zeros[:i]], side[ones[:j]] = 1, 0
    return i + j


def _candidates(gain: Floats, members: Ints, rng: np.random.Generator) -> Ints:
    """Return the vertices that may move in this round, the best first."""
    order = np.argsort(-gain[members], kind="stable")
    tried = members[order][: max(MIN_CANDIDATES, int((gain[members] > 0).sum()))]
    return tried[rng.random(tried.size) < MOVE_PROBABILITY]
