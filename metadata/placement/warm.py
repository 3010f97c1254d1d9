"""Starts from what is there: changes the hot set where it pays and moves few endpoints, within a budget."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from metadata.placement import hot
from metadata.placement.blocks import Floats, Mask, Parts
from metadata.placement.instance import Instance
from metadata.placement.objective import load_of_parts
from metadata.placement.options import Problem, views_of
from metadata.placement.refine import Movement, kicked

EARLY: Final = 1.0
"""c0: what it costs to move an endpoint that nobody is subscribed to, in subscriptions."""
FOR_HOT: Final = 0.5
"""Share of the movement budget that is left to changes of the hot set."""


def effort(instance: Instance) -> Floats:
    """m_e: what it costs to move each endpoint, in subscriptions."""
    return instance.subscribers + EARLY


def warmed(problem: Problem, current: Parts) -> Parts:
    """A placement near ``current``, of as many partitions: int32[E].

    Moves endpoints off overloaded servers first, then those whose gain pays for their move within the horizon, then
    changes the hot set; no more than the movement budget in all. The repartitioning model of Catalyurek et al.
    (JPDC'09), searched greedily.
    """
    instance, options, costs = problem.instance, problem.options, problem.costs
    cost = effort(instance)
    budget = np.inf if options.movement_budget is None else options.movement_budget * float(cost.sum())
    # What a connection that is saved is worth, in the unit of the weights of sets.
    worth = costs.connection_us_per_s * 2.0**instance.shift / instance.seconds
    price = costs.moved_us / options.horizon_s / worth if worth > 0 else np.inf
    movement = Movement(current, cost, budget, price)
    part = _cooled(problem, movement)
    if options.hot_budget <= 0:
        return _refined(problem, part, movement)
    part = _refined(problem, part, replace(movement, budget=budget * (1 - FOR_HOT)))
    left = budget - movement.spent(part)
    further = np.where(part == current, cost, 0.0)
    heated = hot.chosen(problem, part, options.least_partitions, further, left)
    return _refined(problem, np.where(heated, -1, part).astype(np.int32), movement)


def _refined(problem: Problem, part: Parts, movement: Movement) -> Parts:
    """Local search. Nothing moves only because leaves are uneven, as long as planned numbers of servers are not."""
    load, leaves = problem.load(part < 0), problem.options.least_partitions
    fullest = float(load_of_parts(load, part, leaves).max())
    views = [
        view if view.servers in problem.options.servers else replace(view, most=max(view.most, fullest))
        for view in views_of(load, leaves, problem.options)
    ]
    return kicked(problem.backend, load, part, views, movement)


def _cooled(problem: Problem, movement: Movement) -> Parts:
    """What is there, but with no more hot endpoints than the budget of added load allows."""
    cool = _surplus(problem, movement.start < 0)
    order = np.flatnonzero(cool)
    cool[order[np.cumsum(movement.cost[order]) > movement.budget]] = False
    return hot.cooled(problem.backend, movement.start, problem.options.least_partitions, cool)


def _surplus(problem: Problem, is_hot: Mask) -> Mask:
    """The hot endpoints that are updated most, as many as the budget of added load makes one give up."""
    cool = np.zeros(is_hot.size, np.bool_)
    for each in _falling(problem.instance.expected, is_hot):
        if problem.added_load(is_hot & ~cool) <= problem.options.hot_budget:
            break
        cool[each] = True
    return cool


def _falling(rate: Floats, which: Mask) -> Sequence[int]:
    rows = np.flatnonzero(which)
    found: list[int] = rows[np.argsort(-rate[rows], kind="stable")].tolist()
    return found
