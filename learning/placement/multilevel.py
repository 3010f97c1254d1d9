"""Multilevel search: cluster, bisect into ordered leaves, refine on every level; compared with plain SHP.

Separate from its only caller, ``planner``, which chooses the hot set, the partitions and the limits of the search.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt
from scipy import sparse  # type: ignore[import-untyped]

from learning.placement.backend import Backend
from learning.placement.blocks import Floats, Ints, Mask, Parts, sum_by_cell
from learning.placement.objective import NEGLIGIBLE, View, overload, planned_fan_out
from learning.placement.refine import pass_and_roll_back, perturb, refine

FINENESS: Final = (60, 10)
"""Clusters of each level have at most a leaf's load divided by this, from fine to coarse."""
SHP_THRESHOLD: Final = 0.97
"""Plain SHP is not refined further if the fan-out with clusters is below this multiple of its own."""
SMALL_VERTICES: Final = 200
"""Number of vertices up to which clusters do not help."""
SMALL_SEEDS: Final = 4
"""Seeds tried with so few vertices; the best result is taken."""
KICKS, KICKED_SHARE, KICKED_VERTICES = 60, 0.3, 40
"""Times that a share of the vertices exchange their places, with so few vertices: one of them is much of a server."""
MAX_SET_PINS: Final = 100
"""Sets with more pins are left out of the co-subscription graph."""
MAX_PAIRS: Final = 40_000_000
"""Pairs beyond which the co-subscription graph is built from a sample of the sets."""
MAX_ROUNDS: Final = 25
"""Rounds of moves per level of a bisection."""
MIN_CANDIDATES: Final = 50
"""Vertices of each side tried in a round even without a gain."""
MAX_MOVED_SHARE: Final = 0.15
"""Share of a group that moves in one round at most."""
MOVE_PROBABILITY: Final = 0.8
"""Probability that a vertex may move in a round: neighbours do not all swap places (SHP's move probability)."""


@dataclass(frozen=True)
class _Level:
    backend: Backend
    load: Floats
    within: Parts
    cluster: Parts
    """Cluster of each vertex of the finer level; empty on the finest."""


@dataclass(frozen=True)
class Search:
    """Parameters of a search: leaves, constraints at every planned number of servers, and the seed."""

    leaves: int
    views: Sequence[View]
    epsilon: float
    seed: int


def search_placement(backend: Backend, load: Floats, cold: Parts, search: Search) -> Parts:
    """Return a leaf for every endpoint, by clusters or by plain SHP, which often wins where there are no communities.

    The feasible placement with the least fan-out, else the best balanced one. ``cold`` is 0, and negative for hot
    endpoints, which stay so.
    """
    small = int((cold >= 0).sum()) <= SMALL_VERTICES
    candidates = list((_search_small if small else _search_large)(backend, load, cold, search))
    if all(_rank(backend, load, part, search)[0] > 0 for part in candidates):
        candidates.append(greedy_pack(backend, load, cold, search))
    best = min(candidates, key=lambda part: _rank(backend, load, part, search))
    few = int((cold >= 0).sum()) <= KICKED_VERTICES
    return _kick(backend, load, best, search) if few else best


def _kick(backend: Backend, load: Floats, best: Parts, search: Search) -> Parts:
    """Improve a placement of few endpoints by passes with rollback, again and again from it with some exchanged."""
    rng, start = np.random.default_rng(search.seed), best
    for _ in range(1 + KICKS):
        part = pass_and_roll_back(backend, load, start, search.views)
        best = min(best, part, key=lambda each: _rank(backend, load, each, search))
        start, some = best.copy(), np.flatnonzero((best >= 0) & (rng.random(best.size) < KICKED_SHARE))
        start[some] = rng.permutation(start[some])
    return best


def _search_large(backend: Backend, load: Floats, cold: Parts, search: Search) -> Iterator[Parts]:
    clustered, part = multilevel(backend, load, cold, search), shp2(backend, load, cold, search)
    yield clustered
    if _rank(backend, load, clustered, search) >= (0.0, SHP_THRESHOLD * planned_fan_out(backend, part, search.views)):
        yield perturb(backend, load, part, search.views)


def _search_small(backend: Backend, load: Floats, cold: Parts, search: Search) -> Iterator[Parts]:
    """Yield the results of several seeds: with few vertices the outcome depends on chance, and a retry is cheap."""
    for seed in range(search.seed, search.seed + SMALL_SEEDS):
        part = shp2(backend, load, cold, replace(search, seed=seed))
        yield perturb(backend, load, part, search.views)


def _rank(backend: Backend, load: Floats, part: Parts, search: Search) -> tuple[float, float]:
    return overload(load, part, search.views), planned_fan_out(backend, part, search.views)


def shp2(backend: Backend, load: Floats, cold: Parts, search: Search) -> Parts:
    """Run SHP-2 on the endpoints themselves, then local search."""
    part = bisect(backend, load, cold, search.leaves, seed=search.seed, epsilon=search.epsilon, stop=1e-3)
    return refine(backend, load, part, search.views)


def greedy_pack(backend: Backend, load: Floats, cold: Parts, search: Search) -> Parts:
    """Place the heaviest endpoints first, each where all views are least full, then refine. For few heavy endpoints."""
    part = np.where(cold < 0, -1, 0).astype(np.int32)
    filled = [np.zeros(view.servers) for view in search.views]
    order = np.argsort(-load, kind="stable")
    for vertex in order[cold[order] >= 0].tolist():
        pairs = list(zip(filled, search.views, strict=True))
        used = [((full + load[vertex]) / np.maximum(view.max_load, NEGLIGIBLE))[view.server] for full, view in pairs]
        leaf = int(np.max(used, axis=0).argmin())
        part[vertex] = leaf
        for full, view in pairs:
            full[view.server[leaf]] += load[vertex]
    return perturb(backend, load, part, search.views)


def multilevel(backend: Backend, load: Floats, cold: Parts, search: Search) -> Parts:
    """Run SHP-2 on clusters, then refine on every level down to the endpoints."""
    levels = coarsen(backend, load, cold, search)
    top = levels[-1]
    part = bisect(top.backend, top.load, top.within, search.leaves, seed=search.seed, epsilon=search.epsilon)
    for level in reversed(levels):
        part = perturb(level.backend, level.load, part, search.views)
        part = part if level is levels[0] else _project(level, part)
    return part


def coarsen(backend: Backend, load: Floats, cold: Parts, search: Search) -> list[_Level]:
    """Return the levels, the finest first."""
    rng = np.random.default_rng(search.seed)
    levels = [_Level(backend, load, cold, np.zeros(0, np.int32))]
    edges = cosubscription_graph(backend, cold >= 0)
    of_leaf = float(load[cold >= 0].sum()) / search.leaves
    for fineness in FINENESS:
        last = levels[-1]
        label = cluster(edges, last.load, of_leaf / fineness, last.within, rounds=4, rng=rng)
        count = int(label.max()) + 1
        placed = label >= 0
        sets = last.backend.contract(label, count)
        of_cluster = sum_by_cell(label[placed], last.load[placed], count)
        levels.append(_Level(Backend([sets], count), of_cluster, np.zeros(count, np.int32), label))
        edges = contract_graph(edges, label, count)
    return levels


def _project(level: _Level, part: Parts) -> Parts:
    """Project a placement onto the next finer level."""
    return np.where(level.cluster < 0, -1, part[level.cluster]).astype(np.int32)


# Bisection


@dataclass
class _Group:
    """Vertices to divide, with ``share`` of their load on side 0."""

    members: Ints
    share: float


def bisect(
    backend: Backend, load: Floats, within: Parts, leaves: int, *, seed: int, epsilon: float, stop: float = 1e-4
) -> Parts:
    """Return the leaf of every vertex: int32[E], 0 to ``leaves`` - 1; -1 where ``within`` is negative.

    SHP-2 (VLDB'17, section 3.3, p = 1/2), but balanced by load instead of number: each group's load is divided in
    proportion to the leaves of both sides, within its share of ``epsilon``. All groups of a level are divided at the
    same time. Leaves are numbered in the order of the tree, so that neighbours are alike.
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
    """Return the side of each vertex and the groups of a level, each divided at random."""
    side, groups = np.zeros(load.size, np.uint8), []
    members = np.flatnonzero(active)
    members = members[np.argsort(low[members], kind="stable")]
    first = np.flatnonzero(np.append(True, low[members][1:] != low[members][:-1]))
    for group in np.split(members, first[1:]):
        bottom, top = int(low[group[0]]), int(high[group[0]])
        share = ((bottom + top + 1) // 2 - bottom) / (top - bottom)
        groups.append(_Group(group, share))
        shuffled = group[rng.permutation(group.size)]
        filled = np.cumsum(load[shuffled])
        side[shuffled[filled > share * filled[-1]]] = 1
    return side, groups


def _swap(
    gain: Floats, load: Floats, side: npt.NDArray[np.uint8], group: _Group, *, slack: float, rng: np.random.Generator
) -> int:
    """Move the vertices of a group that gain most, from both sides so that side 0 keeps its share; return how many."""
    sides = side[group.members]
    zeros, ones = (_candidates(gain, group.members[sides == each], rng) for each in (0, 1))
    whole = float(load[group.members].sum())
    at_zero, target = float(load[group.members[sides == 0]].sum()), group.share * whole
    room = slack * whole * min(group.share, 1 - group.share)
    gain0, gain1, load0, load1 = gain[zeros].tolist(), gain[ones].tolist(), load[zeros].tolist(), load[ones].tolist()
    i = j = 0
    for _ in range(max(4, int(MAX_MOVED_SHARE * group.members.size))):
        best0 = gain0[i] if i < len(gain0) else -np.inf
        best1 = gain1[j] if j < len(gain1) else -np.inf
        if at_zero > target:
            from_one = best1 > best0 and best1 > 0 and at_zero + load1[j] <= target + room
            if not from_one and not (best0 > 0 or (best0 > -np.inf and at_zero > target + room)):
                break
        else:
            from_zero = best0 > best1 and best0 > 0 and at_zero - load0[i] >= target - room
            from_one = not from_zero
            if from_one and not (best1 > 0 or (best1 > -np.inf and at_zero < target - room)):
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
    of_members = gain[members]
    count = max(MIN_CANDIDATES, int((of_members > 0).sum()))
    if count < members.size:
        # Only these are sorted.
        chosen = of_members >= np.partition(of_members, members.size - count)[members.size - count]
        members, of_members = members[chosen], of_members[chosen]
    tried = members[np.argsort(-of_members, kind="stable")][:count]
    return tried[rng.random(tried.size) < MOVE_PROBABILITY]


# Clustering


def cosubscription_graph(backend: Backend, cold: Mask) -> sparse.csr_array:
    """Return the co-subscription graph of the ``cold`` endpoints, from a sample of the sets if there are many."""
    pairs = backend.count_pairs(MAX_SET_PINS)
    return backend.cosubscription(cold, min(1.0, MAX_PAIRS / pairs) if pairs else 1.0, MAX_SET_PINS)


def contract_graph(edges: sparse.csr_array, label: Parts, count: int) -> sparse.csr_array:
    """Return the graph of ``count`` clusters, with summed edges."""
    inside = label >= 0
    indicator = sparse.csr_array(
        (np.ones(int(inside.sum())), (np.flatnonzero(inside), label[inside])), shape=(label.size, count)
    )
    result = (indicator.T.tocsr() @ (edges @ indicator)).tocsr()
    result.setdiag(0)
    result.eliminate_zeros()
    result.sort_indices()
    return result


def cluster(
    edges: sparse.csr_array, load: Floats, most: float, within: Parts, *, rounds: int, rng: np.random.Generator
) -> Parts:
    """Cluster by size-constrained label propagation, numbered from 0 (Meyerhenke et al., SEA'14).

    No cluster has more load than ``most``, unless it is a single vertex; none spans two parts of ``within``, and
    vertices with a negative part have no cluster (-1).
    """
    count = load.size
    edges = _normalise(edges, within)
    label = np.arange(count)
    for each in range(rounds):
        to_clusters = edges if each == 0 else _cluster_edges(edges, label)
        preferred, strength = _preferred_clusters(to_clusters, label, load, most)
        moves = (preferred != label) & ((rng.random(count) < 0.5) | (each == rounds - 1))
        label = _apply_moves(label, preferred, strength, np.flatnonzero(moves), load=load, most=most)
    _, numbered = np.unique(np.where(within < 0, -1, label), return_inverse=True)
    return (numbered - int((within < 0).any())).astype(np.int32)


def _normalise(edges: sparse.csr_array, within: Parts) -> sparse.csr_array:
    """Divide edges within parts by the root of both degrees, as in a cosine; else popular endpoints attract all."""
    scale, degrees = 1 / np.sqrt(np.maximum(edges.sum(1), 1.0)), np.diff(edges.indptr)
    data = edges.data * np.repeat(scale, degrees) * scale[edges.indices]
    if (within == 0).all():
        return sparse.csr_array((data, edges.indices, edges.indptr), shape=edges.shape)
    row = np.repeat(np.arange(within.size), degrees)
    inside = (within[row] == within[edges.indices]) & (within[row] >= 0)
    ends = np.append(0, np.cumsum(np.bincount(row[inside], minlength=within.size)))
    return sparse.csr_array((data[inside], edges.indices[inside], ends), shape=edges.shape)


def _cluster_edges(edges: sparse.csr_array, label: Ints) -> sparse.csr_array:
    """Return the edges of each vertex to each cluster, in the order of the product's rows."""
    count = label.size
    indicator = sparse.csr_array((np.ones(count), label, np.arange(count + 1)), shape=(count, count))
    return (edges @ indicator).tocsr()


def _preferred_clusters(edges: sparse.csr_array, label: Ints, load: Floats, most: float) -> tuple[Ints, Floats]:
    """Return each vertex's most strongly connected cluster with room for it, and the strength of the connection."""
    of_cluster = sum_by_cell(label, load, load.size)
    other, degrees = edges.indices, np.diff(edges.indptr)
    fits = of_cluster[other] + np.repeat(load, degrees) <= most
    value = np.where(fits | (other == np.repeat(label, degrees)), edges.data, -1.0)
    strength = np.full(load.size, -1.0)
    connected = np.flatnonzero(degrees)
    if connected.size:
        strength[connected] = np.maximum.reduceat(value, edges.indptr[connected])
    best = np.flatnonzero((value == np.repeat(strength, degrees)) & (value > 0))
    preferred = label.copy()
    preferred[np.searchsorted(edges.indptr, best, side="right") - 1] = other[best]
    return preferred, strength


def _apply_moves(label: Ints, preferred: Ints, strength: Floats, movers: Ints, *, load: Floats, most: float) -> Ints:
    """Apply the moves into each cluster, the strongest first, while there is room."""
    movers = movers[np.lexsort((-strength[movers], preferred[movers]))]
    if not movers.size:
        return label
    goal = preferred[movers]
    filled = np.cumsum(load[movers])
    first = np.append(True, goal[1:] != goal[:-1])
    sizes = np.diff(np.append(np.flatnonzero(first), movers.size))
    before = np.repeat((filled - load[movers])[first], sizes)
    room = sum_by_cell(label, load, load.size)[goal] + filled - before <= most
    result = label.copy()
    result[movers[room]] = goal[room]
    return result
