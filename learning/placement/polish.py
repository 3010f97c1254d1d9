"""Polish a placement with V-cycles of Mt-KaHyPar, where that is installed.

Separate from its only caller, ``planner``, which searches without optional packages. A polished plan depends on the
version of the package, so its report names it.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np

from learning.placement import mt_kahypar
from learning.placement.blocks import Floats, Parts
from learning.placement.objective import View, overload, part_loads, planned_fan_out, servers_of
from learning.placement.options import Problem, search_views
from learning.placement.refine import refine

MAX_PINS: Final = 2_000_000
"""Instances with more pins are not polished: it would take longer than the search, and 1 GiB for each 4 million."""
SHARPNESS: Final = 4
"""Of the local search that restores the limits of other views: its gains are almost those of the fan-out."""


def polish(problem: Problem, placement: Parts, leaves: int) -> Parts | None:
    """Return a placement with less fan-out, no more overload and the same hot endpoints; None if none was found.

    Also None if Mt-KaHyPar is not installed, and if the sets are too large. There is a V-cycle for the servers of every
    view, the most first; endpoints that it moves go to the emptiest leaf of their new server.
    """
    cold = placement >= 0
    if mt_kahypar.version() is None or not 0 < problem.instance.pins.size <= MAX_PINS or not cold.any():
        return None
    load = problem.search_load(~cold)
    views = search_views(problem, load, ~cold, leaves, placement)
    number = np.where(cold, np.cumsum(cold) - 1, -1).astype(np.int32)
    sets = problem.backend.contract(number, int(cold.sum()))
    least = planned_fan_out(problem.backend, placement, views)
    if not sets.sizes.size:
        return None
    best, excess = placement, overload(load, placement, views)
    for view in sorted(views, key=lambda view: -view.servers):
        if view.servers == 1:
            continue
        part, most = servers_of(best, view), view.max_load.tolist()
        part[cold] = mt_kahypar.improve(sets, load[cold], part[cold], most, seed=problem.options.seed)
        part = _with_leaves(best, part, view, load)
        if overload(load, part, views) > excess:
            part = refine(problem.backend, load, part, views, sharpness=SHARPNESS)
        found = planned_fan_out(problem.backend, part, views)
        if found < least and overload(load, part, views) <= excess:
            best, least = part, found
    return None if best is placement else best


def _with_leaves(placement: Parts, server: Parts, view: View, load: Floats) -> Parts:
    """Return a leaf of its ``server`` for every endpoint: its own where it is one, else the emptiest, heavy ones first.

    ``server`` is negative for hot endpoints, as ``placement`` is.
    """
    part = placement.copy()
    filled = part_loads(load, placement, view.server.size)
    moved = np.flatnonzero(server != servers_of(placement, view))
    filled -= part_loads(load[moved], placement[moved], filled.size)
    leaves: Sequence[np.ndarray] = [np.flatnonzero(view.server == each) for each in range(view.servers)]
    for endpoint in moved[np.argsort(-load[moved], kind="stable")].tolist():
        own = leaves[server[endpoint]]
        leaf = int(own[filled[own].argmin()])
        part[endpoint] = leaf
        filled[leaf] += load[endpoint]
    return part
