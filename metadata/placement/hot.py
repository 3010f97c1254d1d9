"""Choose the hot endpoints: every server consumes them, and no client needs a particular server for them."""

from typing import Final

import numpy as np

from metadata.placement.backend import Backend
from metadata.placement.baselines import Infeasible, find_obstacle
from metadata.placement.blocks import Floats, Mask, Parts
from metadata.placement.objective import loads, server_of_endpoint
from metadata.placement.options import Problem

BATCHES: Final = 8
"""Steps in which endpoints are added: what one saves depends on those that are hot already."""


def mandatory(problem: Problem) -> Mask:
    """Return the endpoints that must be hot for the load of the others to be balanced.

    Raises:
        Infeasible: with them the added load would be more than the budget of the options.
    """
    names, load = problem.instance.endpoints, loads(problem.instance, problem.costs)
    hot = np.zeros(load.size, np.bool_)
    for servers in sorted(set(problem.options.servers), reverse=True):
        while (found := find_obstacle(np.where(hot, 0.0, load), servers, problem.options.epsilon)) is not None:
            endpoint, reached = found
            mean = float(load[~hot].sum()) / servers
            hot[endpoint] = True
            if problem.added_load(hot) > problem.options.hot_budget:
                reason = f"has {load[endpoint] / mean:.2f} times the mean load of {servers} servers"
                raise Infeasible(names[endpoint], reason, reached)
    return hot


def choose(problem: Problem, placement: Parts, leaves: int, effort: Floats | None = None, most: float = np.inf) -> Mask:
    """Return the hot set for a ``placement``: greedily by saved connections per update, as long as an endpoint pays.

    An endpoint pays when kappa D_e > a lambda_e (S - 1): without it D_e connections are not needed
    (:func:`fanout.removal_savings`), and S - 1 more servers consume it, S the largest planned number. Endpoints
    that are hot in ``placement`` stay so. All together add at most the options' budget, and new ones cost at most
    ``most`` of ``effort``.
    """
    instance, costs, servers = problem.instance, problem.costs, problem.most
    extra = instance.expected * costs.update_us * (servers - 1)
    added = extra / max(float(loads(instance, costs).sum()), 1e-300)
    of_connection = costs.connection_us_per_s * 2.0**instance.shift / instance.seconds
    effort = np.zeros(added.size) if effort is None else effort
    base = hot = placement < 0
    room = problem.options.hot_budget - float(added[hot].sum())
    for batch in range(1, BATCHES + 1):
        part = np.where(hot, -1, server_of_endpoint(placement, leaves, servers)).astype(np.int32)
        saved = problem.backend.removal_savings(part, servers).astype(float)
        order = np.argsort(-saved / instance.expected, kind="stable")
        order = order[(~hot & (saved * of_connection > extra))[order]]
        new = hot & ~base
        fits = np.cumsum(added[order]) <= room * batch / BATCHES - float(added[new].sum())
        fits &= np.cumsum(effort[order]) <= most - float(effort[new].sum())
        hot = hot.copy()
        hot[order[fits]] = True
    return hot


def cool(backend: Backend, placement: Parts, leaves: int, which: Mask) -> Parts:
    """Return ``placement`` with hot endpoints ``which`` on the leaf where most of their sets have pins already."""
    rows = np.flatnonzero(which)
    spread = backend.affinity(placement, leaves, 1)[rows]
    result = placement.copy()
    result[rows] = spread.argmin(1)
    return result
