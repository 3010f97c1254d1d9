"""Publish rule: whether a placement is worth its moves, with hysteresis."""

from dataclasses import dataclass

import numpy as np

from metadata.placement.blocks import Ints, Parts
from metadata.placement.instance import Instance
from metadata.placement.objective import balance, connections, summarised, total_cost
from metadata.placement.options import Problem
from metadata.placement.ranges import laid_out
from metadata.placement.warm import effort

STANDARD_ERRORS = 2.0
"""A gain that is smaller than so many of its standard errors may be chance."""
ROUNDING = 1e-6


@dataclass(frozen=True)
class Valued:
    """A placement and what it costs: means over the planned numbers of servers, in microseconds a second."""

    name: str
    placement: Parts
    partitions: int
    cost: float
    error: float
    """Standard error of ``cost``: the clients of the window are a sample of those to come."""
    uneven: float
    """Largest load of a server over the mean, the worst of all planned numbers of servers."""
    moved: float
    """Share of the subscriptions that move."""
    price: float
    """What these moves cost, spread over the horizon."""


@dataclass(frozen=True)
class PublishDecision:
    """Whether to adopt a placement instead of what is there."""

    of: Valued
    pays: bool
    why: str


def valued(problem: Problem, placement: Parts, partitions: int, *, current: Parts | None, name: str) -> Valued:
    """What a placement costs."""
    instance, costs, options = problem.instance, problem.costs, problem.options
    load = problem.load(placement < 0)
    planned = sorted(set(options.servers))
    total, error, uneven = 0.0, 0.0, 1.0
    for servers in planned:
        part = laid_out(placement, partitions, servers)
        weight = problem.backend.fan_out(part, servers)
        upstream = connections(instance, summarised(weight))
        total += total_cost(instance, costs, upstream, placement < 0, servers) / len(planned)
        error += costs.connection_us_per_s * _error(instance, weight) / len(planned)
        uneven = max(uneven, balance(load, part, servers))
    moved, effort_of_all = 0.0, effort(instance)
    if current is not None:
        moved = float(effort_of_all[placement != current].sum())
    price = costs.moved_us * moved / options.horizon_s
    return Valued(
        name, placement, partitions, total, error, uneven, moved / max(float(effort_of_all.sum()), 1.0), price
    )


def judged(now: Valued | None, found: Valued, epsilon: float) -> PublishDecision:
    """Whether ``found`` is worth adopting: it saves more than its moves cost and than chance explains.

    Or it balances a load that is uneven now.
    """
    if now is None:
        return PublishDecision(found, pays=True, why="nothing is placed yet")
    if found.moved == 0 and found.partitions == now.partitions:
        return PublishDecision(found, pays=False, why="nothing better was found")
    bound = 1 + epsilon + ROUNDING
    if now.uneven > bound >= found.uneven:
        why = f"balances the load: the fullest server has {found.uneven:.3f} times the mean, not {now.uneven:.3f}"
        return PublishDecision(found, pays=True, why=why)
    if found.uneven > max(bound, now.uneven):
        return PublishDecision(
            found, pays=False, why=f"the fullest server would have {found.uneven:.3f} times the mean load"
        )
    return _weighed(now, found)


def _weighed(now: Valued, found: Valued) -> PublishDecision:
    saved, chance = now.cost - found.cost, STANDARD_ERRORS * float(np.hypot(now.error, found.error))
    if 0 < found.price < saved <= chance:
        return PublishDecision(
            found, pays=False, why=f"saves {saved:.4g} us/s, which may be chance (+- {chance:.4g} us/s)"
        )
    why = f"saves {saved:.4g} us/s, and its moves cost {found.price:.4g} us/s"
    return PublishDecision(found, pays=saved > found.price, why=why)


def chosen(now: Valued | None, found: list[Valued], epsilon: float) -> PublishDecision:
    """The best of those that pay, else why the best of all does not; balanced ones first."""
    verdicts = [judged(now, each, epsilon) for each in found]
    paying = [each for each in verdicts if each.pays] or verdicts
    return min(paying, key=lambda each: (each.of.uneven > 1 + epsilon + ROUNDING, each.of.cost + each.of.price))


def _error(instance: Instance, weight: Ints) -> float:
    """Standard error of the mean number of connections, over the clients that are connected at a time."""
    clients = float(instance.weight.sum()) / instance.seconds
    share = weight / max(int(weight.sum()), 1)
    counts = np.maximum(np.arange(weight.size), 1)
    mean = float((share * counts).sum())
    return float(np.sqrt((share * (counts - mean) ** 2).sum() * clients))
