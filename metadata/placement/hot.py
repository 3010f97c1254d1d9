"""Choose the hot endpoints: every server consumes them, and no client needs a particular server for them.

Separate from its only caller, ``planner``, which alternates it with the search for the other endpoints.
"""

from typing import Final

import numpy as np

from metadata.placement.backend import Backend
from metadata.placement.baselines import Infeasible, find_obstacle
from metadata.placement.blocks import Floats, Mask, Parts
from metadata.placement.objective import loads, server_of_endpoint
from metadata.placement.options import Problem

BATCHES: Final = 8
"""Batches in which endpoints are added: an endpoint's savings depend on those that are already hot."""


def mandatory(problem: Problem) -> Mask:
    """Return the endpoints that must be hot for the load of the others to be balanced.

    Raises:
        Infeasible: they would add more load than the budget of the options allows.
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


def choose(
    problem: Problem, placement: Parts, leaves: int, move_cost: Floats | None = None, move_budget: float = np.inf
) -> Mask:
    """Return the hot set for a ``placement``: greedily by saved connections per update, as long as an endpoint pays.

    An endpoint pays if kappa D_e > a lambda_e (S - 1): making it hot saves D_e connections
    (:func:`fanout.removal_savings`), and S - 1 more servers consume it, where S is the largest planned number.
    Endpoints that are hot in ``placement`` stay so. All together add at most the options' budget of load, and the
    ``move_cost`` of new ones is at most ``move_budget``.
    """
    instance, costs, servers = problem.instance, problem.costs, problem.max_servers
    extra = instance.expected * costs.update_us * (servers - 1)
    added = extra / max(float(loads(instance, costs).sum()), 1e-300)
    of_connection = costs.connection_us_per_s * 2.0**instance.shift / instance.seconds
    move_cost = np.zeros(added.size) if move_cost is None else move_cost
    base = hot = placement < 0
    room = problem.options.hot_budget - float(added[hot].sum())
    for batch in range(1, BATCHES + 1):
        part = np.where(hot, -1, server_of_endpoint(placement, leaves, servers)).astype(np.int32)
        saved = problem.backend.removal_savings(part, servers).astype(float)
        order = np.argsort(-saved / instance.expected, kind="stable")
        order = order[(~hot & (saved * of_connection > extra))[order]]
        new = hot & ~base
        fits = np.cumsum(added[order]) <= room * batch / BATCHES - float(added[new].sum())
        fits &= np.cumsum(move_cost[order]) <= move_budget - float(move_cost[new].sum())
        hot = hot.copy()
        hot[order[fits]] = True
    return hot


def cool(backend: Backend, placement: Parts, leaves: int, which: Mask) -> Parts:
    """Return ``placement`` with hot endpoints ``which`` on the leaf where most of their sets already have pins."""
    rows = np.flatnonzero(which)
    spread = backend.affinity(placement, leaves, 1)[rows]
    result = placement.copy()
    result[rows] = spread.argmin(1)
    return result
