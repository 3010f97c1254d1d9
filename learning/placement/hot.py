"""Chooses the hot endpoints: consumed by every server, so that no client needs a particular one for them.

Separate from its only caller, ``planner``, which alternates it with the search for the other endpoints.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from learning.placement import capacity
from learning.placement.backend import Backend
from learning.placement.baselines import Infeasible, find_obstacle
from learning.placement.blocks import Floats, Mask, Parts
from learning.placement.objective import loads, server_of_endpoint
from learning.placement.options import Problem

BATCHES: Final = 8
"""Batches in which endpoints are added: savings depend on the endpoints already hot."""
PREFIXES: Final = 8
"""Prefixes tried of each order of the endpoints, each half as long as the previous one."""
LEAVES: Final = 64
"""Leaves compared at a time as places of endpoints no longer hot."""


def mandatory(problem: Problem, *, certain: bool = False) -> Mask:
    """Return the endpoints that must be hot for the load of the others to be balanced, and for servers' capacity.

    Others cannot be balanced by LPT, or if ``certain`` by any placement.

    Raises:
        Infeasible: they would add more load than the budget of the options allows.
    """
    names, load = problem.instance.endpoints, loads(problem.instance, problem.costs)
    hot = np.zeros(load.size, np.bool_)
    epsilon = problem.options.epsilon
    for servers in sorted(set(problem.options.servers), reverse=True):
        while True:
            everywhere = problem.mean_hot_load(hot, servers)
            found = find_obstacle(np.where(hot, 0.0, load), servers, epsilon, everywhere, certain=certain)
            if found is None:
                break
            endpoint, reached = found
            mean = float(load[~hot].sum()) / servers + everywhere
            hot[endpoint] = True
            if problem.added_load(hot) > problem.options.hot_budget:
                reason = f"has {load[endpoint] / mean:.2f} times the mean load of {servers} servers"
                raise Infeasible(names[endpoint], reason, reached)
    if (limits := problem.options.limits) is not None:
        crowded = problem.instance.subscribers > limits.clients * problem.options.clones
        for endpoint in np.flatnonzero(crowded).tolist():
            hot[endpoint] = hot[endpoint] or _fits(problem, hot, endpoint)
    return hot


def relieving(problem: Problem, placement: Parts, leaves: int) -> list[Parts]:
    """Return the placement with more hot endpoints, so that servers exceed fewer limits, the cheapest first.

    With those prefixes that :func:`choose` tries, too, after which :func:`capacity.overfull` is least.
    """
    present = capacity.overfull(problem, placement, leaves)
    if present == (0, 0):
        return []
    none = placement < 0
    found = [
        np.where(hot, -1, placement).astype(np.int32)
        for hot in _prefixes(problem, none, _limits(problem, placement, None, np.inf))
    ]
    exceeded = [capacity.overfull(problem, each, leaves) for each in found]
    least = min(exceeded, default=present)
    relieved = [each for each, over in zip(found, exceeded, strict=True) if over == least < present]
    return sorted(relieved, key=lambda each: problem.cost(each, leaves))


def _fits(problem: Problem, hot: Mask, endpoint: int) -> bool:
    """Return whether the budget allows one more hot endpoint."""
    more = hot.copy()
    more[endpoint] = True
    return problem.added_load(more) <= problem.options.hot_budget


def choose(
    problem: Problem, placement: Parts, leaves: int, move_cost: Floats | None = None, move_budget: float = np.inf
) -> Mask:
    """Return the hot set for a ``placement`` with the least J (:meth:`Problem.cost`), of a portfolio.

    The portfolio is: no more hot endpoints than in ``placement``, which stay so; those that are found greedily
    (:func:`_extend`); and the best prefix of the endpoints by subscribers, extended greedily. A prefix finds groups
    that most clients have as a whole, of which no single endpoint saves a connection; the longest one has every
    endpoint with subscribers, like mode x.

    All together add at most the options' budget of load, and the ``move_cost`` of new ones is at most ``move_budget``.
    """
    limits = _limits(problem, placement, move_cost, move_budget)

    def cost(hot: Mask) -> float:
        return problem.cost(np.where(hot, -1, placement).astype(np.int32), leaves)

    none = placement < 0
    portfolio = [none, _extend(problem, placement, leaves, none, limits)]
    prefix = min(_prefixes(problem, none, limits), key=cost, default=none)
    if cost(prefix) < cost(none):
        portfolio.append(_extend(problem, placement, leaves, prefix, limits))
    return min(portfolio, key=cost)


@dataclass(frozen=True)
class _Limits:
    """Budgets of new hot endpoints, and what each endpoint takes of them."""

    added: Floats
    """Added load of each endpoint, as a share of the whole load."""
    room: float
    move_cost: Floats
    move_budget: float


def _limits(problem: Problem, placement: Parts, move_cost: Floats | None, move_budget: float) -> _Limits:
    instance, costs = problem.instance, problem.costs
    extra = instance.expected * costs.update_us * (problem.max_servers - 1)
    added = extra / max(float(loads(instance, costs).sum()), 1e-300)
    room = problem.options.hot_budget - float(added[placement < 0].sum())
    return _Limits(added, room, np.zeros(added.size) if move_cost is None else move_cost, move_budget)


def _prefixes(problem: Problem, none: Mask, limits: _Limits) -> Iterator[Mask]:
    """Yield prefixes of the endpoints by subscribers, and by subscribers per update, within the limits."""
    instance = problem.instance
    for value in (instance.subscribers, instance.subscribers / instance.expected):
        order = np.argsort(-value, kind="stable")
        order = order[(~none & (instance.subscribers > 0))[order]]
        within = np.cumsum(limits.added[order]) <= limits.room
        within &= np.cumsum(limits.move_cost[order]) <= limits.move_budget
        most = int(within.sum())
        for size in sorted({min(order.size >> halvings, most) for halvings in range(PREFIXES)} - {0}):
            hot = none.copy()
            hot[order[:size]] = True
            yield hot


def _extend(problem: Problem, placement: Parts, leaves: int, start: Mask, limits: _Limits) -> Mask:
    """Return ``start`` with more hot endpoints: greedily by saved connections per update, while an endpoint pays.

    An endpoint pays if kappa D_e > a lambda_e (S - 1): making it hot saves D_e connections
    (:func:`fanout.removal_savings`), and S - 1 more servers consume it, where S is the largest planned number.
    """
    instance, costs, servers = problem.instance, problem.costs, problem.max_servers
    extra = instance.expected * costs.update_us * (servers - 1)
    of_connection = costs.connection_us_per_s * 2.0**instance.shift / instance.seconds
    spread = server_of_endpoint(placement, leaves, servers)
    none, hot = placement < 0, start
    first = float(limits.added[start & ~none].sum())
    for batch in range(1, BATCHES + 1):
        saved = problem.backend.removal_savings(np.where(hot, -1, spread).astype(np.int32), servers).astype(float)
        order = np.argsort(-saved / instance.expected, kind="stable")
        order = order[(~hot & (saved * of_connection > extra))[order]]
        new = hot & ~none
        room = first + (limits.room - first) * batch / BATCHES
        fits = np.cumsum(limits.added[order]) <= room - float(limits.added[new].sum())
        fits &= np.cumsum(limits.move_cost[order]) <= limits.move_budget - float(limits.move_cost[new].sum())
        hot = hot.copy()
        hot[order[fits]] = True
    return hot


def cool(backend: Backend, placement: Parts, leaves: int, which: Mask) -> Parts:
    """Return ``placement`` with hot endpoints ``which`` on the leaf where most of their sets already have pins."""
    rows, result = np.flatnonzero(which), placement.copy()
    every, least = np.arange(rows.size), np.full(rows.size, np.inf)
    # Some leaves at a time, and all others as one part: of endpoints and leaves it would take gigabytes.
    for first in range(0, leaves if rows.size else 0, LEAVES):
        count = min(LEAVES, leaves - first)
        is_one = (placement >= first) & (placement < first + count)
        part = np.where(placement < 0, placement, np.where(is_one, placement - first, count)).astype(np.int32)
        spread = backend.affinity(part, count + 1, 1)[rows, :count]
        leaf = spread.argmin(1)
        is_less = spread[every, leaf] < least
        result[rows[is_less]], least[is_less] = first + leaf[is_less], spread[every, leaf][is_less]
    return result
