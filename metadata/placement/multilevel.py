"""The whole search: clusters, bisection into ordered leaves, local search on every level; plain SHP beside it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from metadata.placement import coarsen
from metadata.placement.backend import Backend, NumpyBackend
from metadata.placement.bisect import bisected
from metadata.placement.blocks import Floats, Parts, summed
from metadata.placement.refine import View, excess, kicked, objective, refined

FINENESS: Final = (60, 10)
"""Clusters of each level have at most this part of a leaf's load, from fine to coarse."""
STARTS: Final = 3
"""Bisections of the coarsest level, of which the best goes on."""
NEAR: Final = 0.97
"""When clusters are better than plain SHP by this factor, plain SHP is not worked on any further."""
SMALL: Final = 200
"""Vertices up to which clusters are of no use."""
TRIES: Final = 4
"""Searches with so few vertices, of which the best is taken."""


@dataclass(frozen=True)
class _Level:
    backend: Backend
    load: Floats
    within: Parts
    cluster: Parts
    """Of each vertex of the finer level; empty on the finest."""


@dataclass(frozen=True)
class Search:
    """What is searched for: leaves, what holds at every planned number of servers, and the seed of all choices."""

    leaves: int
    views: Sequence[View]
    epsilon: float
    seed: int


def best(backend: Backend, load: Floats, cold: Parts, search: Search) -> Parts:
    """A leaf for every endpoint: by clusters or by plain SHP, which without communities is often better.

    Of feasible placements the one with the least fan-out, else the best balanced. ``cold`` is 0, and negative for hot
    endpoints, which stay so.
    """
    small = int((cold >= 0).sum()) <= SMALL
    found = list((_of_many if small else _of_two)(backend, load, cold, search))
    if all(_rank(backend, load, part, search)[0] > 0 for part in found):
        found.append(packed(backend, load, cold, search))
    return min(found, key=lambda part: _rank(backend, load, part, search))


def _of_two(backend: Backend, load: Floats, cold: Parts, search: Search) -> Iterator[Parts]:
    clustered, part = multilevel(backend, load, cold, search), plain(backend, load, cold, search)
    yield clustered
    if _rank(backend, load, clustered, search) >= (0.0, NEAR * objective(backend, part, search.views)):
        yield kicked(backend, load, part, search.views)


def _of_many(backend: Backend, load: Floats, cold: Parts, search: Search) -> Iterator[Parts]:
    """For few vertices it is chance where a search ends, and cheap to try again."""
    for seed in range(search.seed, search.seed + TRIES):
        part = plain(backend, load, cold, replace(search, seed=seed))
        yield kicked(backend, load, part, search.views)


def _rank(backend: Backend, load: Floats, part: Parts, search: Search) -> tuple[float, float]:
    return excess(load, part, search.views), objective(backend, part, search.views)


def plain(backend: Backend, load: Floats, cold: Parts, search: Search) -> Parts:
    """SHP-2 on the endpoints themselves, then local search."""
    part = bisected(backend, load, cold, search.leaves, seed=search.seed, epsilon=search.epsilon, stop=1e-3)
    return refined(backend, load, part, search.views)


def packed(backend: Backend, load: Floats, cold: Parts, search: Search) -> Parts:
    """The heaviest endpoints first, each where all views are least full; then local search. For loads in few pieces."""
    part = np.where(cold < 0, -1, 0).astype(np.int32)
    filled = [np.zeros(view.servers) for view in search.views]
    order = np.argsort(-load, kind="stable")
    for vertex in order[cold[order] >= 0].tolist():
        used = [(full[view.server] + load[vertex]) / view.most for full, view in zip(filled, search.views, strict=True)]
        leaf = int(np.max(used, axis=0).argmin())
        part[vertex] = leaf
        for full, view in zip(filled, search.views, strict=True):
            full[view.server[leaf]] += load[vertex]
    return kicked(backend, load, part, search.views)


def multilevel(backend: Backend, load: Floats, cold: Parts, search: Search) -> Parts:
    """SHP-2 on clusters, the best of some starts, then local search on every level down to the endpoints."""
    levels = coarsened(backend, load, cold, search)
    part = started(levels[-1], search)
    for level in reversed(levels):
        part = kicked(level.backend, level.load, part, search.views)
        part = part if level is levels[0] else _down(level, part)
    return part


def coarsened(backend: Backend, load: Floats, cold: Parts, search: Search) -> list[_Level]:
    """The levels, the finest first."""
    rng = np.random.default_rng(search.seed)
    levels = [_Level(backend, load, cold, np.zeros(0, np.int32))]
    edges = coarsen.graph(backend, cold >= 0)
    of_leaf = float(load[cold >= 0].sum()) / search.leaves
    for fineness in FINENESS:
        last = levels[-1]
        label = coarsen.clusters(edges, last.load, of_leaf / fineness, last.within, rounds=4, rng=rng)
        count = int(label.max()) + 1
        placed = label >= 0
        sets = last.backend.contracted(label, count)
        of_cluster = summed(label[placed], last.load[placed], count)
        levels.append(_Level(NumpyBackend([sets], count), of_cluster, np.zeros(count, np.int32), label))
        edges = coarsen.shrunk(edges, label, count)
    return levels


def started(level: _Level, search: Search) -> Parts:
    """The best bisection of some, after a short local search."""
    seeds = range(search.seed, search.seed + STARTS)
    found = [
        refined(
            level.backend,
            level.load,
            bisected(level.backend, level.load, level.within, search.leaves, seed=seed, epsilon=search.epsilon),
            search.views,
        )
        for seed in seeds
    ]
    return min(found, key=lambda part: _rank(level.backend, level.load, part, search))


def _down(level: _Level, part: Parts) -> Parts:
    """The same placement on the next finer level."""
    return np.where(level.cluster < 0, -1, part[level.cluster]).astype(np.int32)
