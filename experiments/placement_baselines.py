"""Placements that the benchmark compares plans with, beside those of :mod:`learning.placement.baselines`.

All take the load of each endpoint, 0 for hot ones, which are negative in the result. Our own code, from the papers.
"""

from typing import Final

import numpy as np

from learning.placement.backend import Backend
from learning.placement.blocks import Floats, Parts, index_sets
from learning.placement.multilevel import bisect

GAMMA: Final = 1.5
"""Exponent of the cost of a part's load, from the Fennel paper."""


def shp2(backend: Backend, load: Floats, k: int, epsilon: float, *, seed: int = 0) -> Parts:
    """Plain SHP-2 (Kabiljo et al., VLDB'17, section 3.3), balanced by load: no clusters, no search afterwards."""
    cold = np.where(load > 0, 0, -1).astype(np.int32)
    return bisect(backend, load, cold, k, seed=seed, epsilon=epsilon, stop=1e-3)


def freight(backend: Backend, load: Floats, k: int, epsilon: float) -> Parts:
    """Stream the endpoints once, in their order, as FREIGHT does for connectivity (Eyubov et al., SEA'23).

    Each goes to the part with room where most of its sets (by weight) had their last endpoint, less Fennel's cost
    alpha gamma l(e) L**(gamma - 1) of a part with load L (Tsourakakis et al., WSDM'14). alpha is the authors' for
    ``k`` parts, k**(gamma - 1) m / n**gamma, with m the weight of all sets in place of their number, and n the whole
    load in place of the number of vertices. If no part has room, to the emptiest.
    """
    part = np.full(load.size, -1, np.int32)
    streamed = np.flatnonzero(load > 0)
    sets = backend.contract(np.where(load > 0, np.arange(load.size), -1).astype(np.int32), load.size)
    starts, rows = index_sets(sets, load.size)
    whole, weights = float(load.sum()), sets.weights.astype(float)
    alpha = k ** (GAMMA - 1) * weights.sum() / whole**GAMMA
    last, filled, most = np.full(sets.sizes.size, k), np.zeros(k), (1 + epsilon) * whole / k
    for endpoint in streamed.tolist():
        own, weight = rows[starts[endpoint] : starts[endpoint + 1]], load[endpoint]
        score = np.bincount(last[own], weights=weights[own], minlength=k + 1)[:k]
        score = score - alpha * GAMMA * weight * filled ** (GAMMA - 1)
        room = filled + weight <= most
        to = int(np.where(room, score, -np.inf).argmax()) if room.any() else int(filled.argmin())
        part[endpoint] = last[own] = to
        filled[to] += weight
    return part
