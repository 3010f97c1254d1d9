"""Coarsen an instance: cluster endpoints that are subscribed to together."""

from typing import Final

import numpy as np
from scipy import sparse  # type: ignore[import-untyped]

from metadata.placement.backend import Backend
from metadata.placement.blocks import Floats, Ints, Mask, Parts, summed

LONGEST: Final = 100
"""Pins of the longest set that counts in the graph."""
MOST_PAIRS: Final = 40_000_000
"""Pairs from which on a share of the sets is enough."""


def graph(backend: Backend, cold: Mask) -> sparse.csr_array:
    """The co-subscription graph of the ``cold`` endpoints; of a sample of the sets, if there are many."""
    pairs = backend.pairs(LONGEST)
    return backend.cosubscription(cold, min(1.0, MOST_PAIRS / pairs) if pairs else 1.0, LONGEST)


def shrunk(edges: sparse.csr_array, label: Parts, count: int) -> sparse.csr_array:
    """The graph of ``count`` clusters: the edges between them, summed up."""
    inside = label >= 0
    indicator = sparse.csr_array(
        (np.ones(int(inside.sum())), (np.flatnonzero(inside), label[inside])), shape=(label.size, count)
    )
    result = (indicator.T.tocsr() @ (edges @ indicator)).tocsr()
    result.setdiag(0)
    result.eliminate_zeros()
    result.sort_indices()
    return result


def clusters(
    edges: sparse.csr_array, load: Floats, most: float, within: Parts, *, rounds: int, rng: np.random.Generator
) -> Parts:
    """Size-constrained label propagation: a cluster for each vertex, numbered from 0 (Meyerhenke et al., SEA'14).

    No cluster has more load than ``most``, unless it is a single vertex; none reaches across two parts of ``within``,
    and vertices with a negative part have no cluster (-1).
    """
    count = load.size
    edges = _normalised(edges, within)
    label = np.arange(count)
    for each in range(rounds):
        drawn = edges if each == 0 else _sums(edges, label)
        wish, pull = _wishes(drawn, label, load, most)
        moves = (wish != label) & ((rng.random(count) < 0.5) | (each == rounds - 1))
        label = _granted(label, wish, pull, np.flatnonzero(moves), load=load, most=most)
    _, numbered = np.unique(np.where(within < 0, -1, label), return_inverse=True)
    return (numbered - int((within < 0).any())).astype(np.int32)


def _normalised(edges: sparse.csr_array, within: Parts) -> sparse.csr_array:
    """Edges inside of parts over the root of both degrees, as in a cosine: else the popular draw everything."""
    scale = 1 / np.sqrt(np.maximum(edges.sum(1), 1.0))
    row = np.repeat(np.arange(within.size), np.diff(edges.indptr))
    inside = (within[row] == within[edges.indices]) & (within[row] >= 0)
    row, column = row[inside], edges.indices[inside]
    ends = np.append(0, np.cumsum(np.bincount(row, minlength=within.size)))
    return sparse.csr_array((edges.data[inside] * scale[row] * scale[column], column, ends), shape=edges.shape)


def _sums(edges: sparse.csr_array, label: Ints) -> sparse.csr_array:
    """Edges of each vertex to each cluster, in the order of the product's rows."""
    count = label.size
    indicator = sparse.csr_array((np.ones(count), label, np.arange(count + 1)), shape=(count, count))
    return (edges @ indicator).tocsr()


def _wishes(drawn: sparse.csr_array, label: Ints, load: Floats, most: float) -> tuple[Ints, Floats]:
    """The cluster that draws each vertex most among those with room for it, and how much."""
    of_cluster = summed(label, load, load.size)
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


def _granted(label: Ints, wish: Ints, pull: Floats, movers: Ints, *, load: Floats, most: float) -> Ints:
    """Moves into each cluster, the most drawn first, as far as there is room."""
    movers = movers[np.lexsort((-pull[movers], wish[movers]))]
    if not movers.size:
        return label
    goal = wish[movers]
    filled = np.cumsum(load[movers])
    first = np.append(True, goal[1:] != goal[:-1])
    sizes = np.diff(np.append(np.flatnonzero(first), movers.size))
    before = np.repeat((filled - load[movers])[first], sizes)
    room = summed(label, load, load.size)[goal] + filled - before <= most
    result = label.copy()
    result[movers[room]] = goal[room]
    return result
