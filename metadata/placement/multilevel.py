"""Multilevel search: cluster, bisect into ordered leaves, refine on every level; compared with plain SHP."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from scipy import sparse  # type: ignore[import-untyped]

from metadata.placement.backend import Backend, NumpyBackend
from metadata.placement.bisect import bisect
from metadata.placement.blocks import Floats, Ints, Mask, Parts, sum_by_cell
from metadata.placement.objective import View, overload, planned_fan_out
from metadata.placement.refine import perturb, refine

FINENESS: Final = (60, 10)
"""Clusters of each level have at most this part of a leaf's load, from fine to coarse."""
COARSE_SEEDS: Final = 3
"""Bisections of the coarsest level, of which the best goes on."""
SHP_THRESHOLD: Final = 0.97
"""When clusters are better than plain SHP by this factor, plain SHP is not worked on any further."""
SMALL_VERTICES: Final = 200
"""Vertices up to which clusters do not help."""
SMALL_SEEDS: Final = 4
"""Seeds tried with so few vertices; the best result wins."""
MAX_SET_PINS: Final = 100
"""Pins of the longest set that counts in the graph."""
MAX_PAIRS: Final = 40_000_000
"""Pairs from which on a share of the sets is enough."""


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
    """Return a leaf for every endpoint: the better of clusters and plain SHP, which often wins without communities.

    Of feasible placements the one with the least fan-out, else the best balanced. ``cold`` is 0, and negative for hot
    endpoints, which stay so.
    """
    small = int((cold >= 0).sum()) <= SMALL_VERTICES
    found = list((_search_small if small else _search_large)(backend, load, cold, search))
    if all(_rank(backend, load, part, search)[0] > 0 for part in found):
        found.append(greedy_pack(backend, load, cold, search))
    return min(found, key=lambda part: _rank(backend, load, part, search))


def _search_large(backend: Backend, load: Floats, cold: Parts, search: Search) -> Iterator[Parts]:
    clustered, part = multilevel(backend, load, cold, search), shp2(backend, load, cold, search)
    yield clustered
    if _rank(backend, load, clustered, search) >= (0.0, SHP_THRESHOLD * planned_fan_out(backend, part, search.views)):
        yield perturb(backend, load, part, search.views)


def _search_small(backend: Backend, load: Floats, cold: Parts, search: Search) -> Iterator[Parts]:
    """Yield the results of several seeds: with few vertices the outcome is chance, and a retry is cheap."""
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
        used = [(full[view.server] + load[vertex]) / view.most for full, view in zip(filled, search.views, strict=True)]
        leaf = int(np.max(used, axis=0).argmin())
        part[vertex] = leaf
        for full, view in zip(filled, search.views, strict=True):
            full[view.server[leaf]] += load[vertex]
    return perturb(backend, load, part, search.views)


def multilevel(backend: Backend, load: Floats, cold: Parts, search: Search) -> Parts:
    """Run SHP-2 on clusters from several seeds, then refine the best on every level down to the endpoints."""
    levels = coarsen(backend, load, cold, search)
    part = partition_coarsest(levels[-1], search)
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
        levels.append(_Level(NumpyBackend([sets], count), of_cluster, np.zeros(count, np.int32), label))
        edges = contract_graph(edges, label, count)
    return levels


def partition_coarsest(level: _Level, search: Search) -> Parts:
    """Bisect the coarsest level with several seeds, refine briefly, and return the best."""
    seeds = range(search.seed, search.seed + COARSE_SEEDS)
    found = [
        refine(
            level.backend,
            level.load,
            bisect(level.backend, level.load, level.within, search.leaves, seed=seed, epsilon=search.epsilon),
            search.views,
        )
        for seed in seeds
    ]
    return min(found, key=lambda part: _rank(level.backend, level.load, part, search))


def _project(level: _Level, part: Parts) -> Parts:
    """Project a placement onto the next finer level."""
    return np.where(level.cluster < 0, -1, part[level.cluster]).astype(np.int32)


def cosubscription_graph(backend: Backend, cold: Mask) -> sparse.csr_array:
    """Return the co-subscription graph of the ``cold`` endpoints; of a sample of the sets, if there are many."""
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

    No cluster has more load than ``most``, unless it is a single vertex; none reaches across two parts of ``within``,
    and vertices with a negative part have no cluster (-1).
    """
    count = load.size
    edges = _normalise(edges, within)
    label = np.arange(count)
    for each in range(rounds):
        drawn = edges if each == 0 else _cluster_edges(edges, label)
        wish, pull = _preferred_clusters(drawn, label, load, most)
        moves = (wish != label) & ((rng.random(count) < 0.5) | (each == rounds - 1))
        label = _apply_moves(label, wish, pull, np.flatnonzero(moves), load=load, most=most)
    _, numbered = np.unique(np.where(within < 0, -1, label), return_inverse=True)
    return (numbered - int((within < 0).any())).astype(np.int32)


def _normalise(edges: sparse.csr_array, within: Parts) -> sparse.csr_array:
    """Divide edges inside parts by the root of both degrees, as in a cosine: otherwise popular ones attract all."""
    scale = 1 / np.sqrt(np.maximum(edges.sum(1), 1.0))
    row = np.repeat(np.arange(within.size), np.diff(edges.indptr))
    inside = (within[row] == within[edges.indices]) & (within[row] >= 0)
    row, column = row[inside], edges.indices[inside]
    ends = np.append(0, np.cumsum(np.bincount(row, minlength=within.size)))
    return sparse.csr_array((edges.data[inside] * scale[row] * scale[column], column, ends), shape=edges.shape)


def _cluster_edges(edges: sparse.csr_array, label: Ints) -> sparse.csr_array:
    """Return the edges of each vertex to each cluster, in the order of the product's rows."""
    count = label.size
    indicator = sparse.csr_array((np.ones(count), label, np.arange(count + 1)), shape=(count, count))
    return (edges @ indicator).tocsr()


def _preferred_clusters(drawn: sparse.csr_array, label: Ints, load: Floats, most: float) -> tuple[Ints, Floats]:
    """Return each vertex's most strongly connected cluster with room for it, and the strength."""
    of_cluster = sum_by_cell(label, load, load.size)
    row = np.repeat(np.arange(load.size), np.diff(drawn.indptr))
    other = drawn.indices
    value = np.where((of_cluster[other] + load[row] <= most) | (other == label[row]), drawn.data, -1.0)
    pull = np.full(load.size, -1.0)
    filled = np.flatnonzero(np.diff(drawn.indptr))
    if filled.size:
        pull[filled] = np.maximum.reduceat(value, drawn.indptr[filled])
    best = np.flatnonzero((value == pull[row]) & (value > 0))
    wish = label.copy()
    wish[row[best]] = other[best]
    return wish, pull


def _apply_moves(label: Ints, wish: Ints, pull: Floats, movers: Ints, *, load: Floats, most: float) -> Ints:
    """Apply moves into each cluster, the strongest first, while there is room."""
    movers = movers[np.lexsort((-pull[movers], wish[movers]))]
    if not movers.size:
        return label
    goal = wish[movers]
    filled = np.cumsum(load[movers])
    first = np.append(True, goal[1:] != goal[:-1])
    sizes = np.diff(np.append(np.flatnonzero(first), movers.size))
    before = np.repeat((filled - load[movers])[first], sizes)
    room = sum_by_cell(label, load, load.size)[goal] + filled - before <= most
    result = label.copy()
    result[movers[room]] = goal[room]
    return result
