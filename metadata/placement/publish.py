"""Evaluate placements, and decide whether to adopt one: error bars, hold-out and hysteresis.

Separate from its only caller, ``planner``: that searches with an approximate objective, this computes the exact one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from metadata.placement.blocks import Floats, Ints, Parts
from metadata.placement.objective import (
    balance,
    connections,
    migration_cost,
    part_loads,
    server_of_endpoint,
    summarise_fan_out,
    total_cost,
)
from metadata.placement.options import Problem

STANDARD_ERRORS: Final = 2.0
"""A gain below this many standard errors may be chance."""
ROUNDING: Final = 1e-6
"""Excess over the bound of the imbalance that counts as a rounding error."""
LOAD_RESOLUTION: Final = 256
"""Units of the mean load of a client on all servers, for :func:`fanout.squared_loads`."""


@dataclass(frozen=True)
class EvaluatedPlacement:
    """A placement and its cost: means over the planned numbers of servers, in microseconds per second."""

    name: str
    placement: Parts
    partitions: int
    cost: float
    error: float
    """Standard error of ``cost``: the clients of the window are a sample of future ones."""
    imbalance: float
    """Largest load of a server over the mean, the worst of all planned numbers of servers."""
    imbalance_error: float
    """Standard error of the load of that server, over the mean: of clients and of counts of updates."""
    mean_load: float
    """Mean load of a server, at the same number of servers."""
    moved: float
    """Share of the subscriptions that move."""
    move_cost: float
    """Cost of these moves, spread over the horizon."""
    held_out: "HeldOut | None" = None
    """Figures for clients that the search did not use; None where they were not computed."""


@dataclass(frozen=True)
class HeldOut:
    """The same search with a part of the clients, evaluated for the others: :attr:`PlanOptions.hold_out`.

    ``found`` is what that search found, ``now`` the current placement, both evaluated for the others.
    """

    now: EvaluatedPlacement | None
    found: EvaluatedPlacement


@dataclass(frozen=True)
class PublishDecision:
    """Decision on adopting a placement instead of the current one."""

    candidate: EvaluatedPlacement
    pays: bool
    why: str
    balances: bool = False
    """Whether it pays because it balances the load: to be confirmed by the next window."""


def evaluate(
    problem: Problem, placement: Parts, partitions: int, *, current: Parts | None, name: str
) -> EvaluatedPlacement:
    """Compute the cost, the imbalance and the moves of a placement."""
    instance, costs, options = problem.instance, problem.costs, problem.options
    load, hot = problem.load(placement < 0), placement < 0
    planned = sorted(set(options.servers))
    total, error, worst = 0.0, 0.0, (1.0, planned[0])
    for servers in planned:
        part = server_of_endpoint(placement, partitions, servers)
        weight = problem.backend.fan_out(part, servers)
        upstream = connections(instance, summarise_fan_out(weight))
        total += total_cost(instance, costs, upstream, hot, servers) / len(planned)
        error += costs.connection_us_per_s * _connections_error(problem, weight) / len(planned)
        worst = max(worst, (balance(load, part, servers), servers))
    cost = migration_cost(instance)
    moved = 0.0 if current is None else float(cost[placement != current].sum())
    imbalance, servers = worst
    return EvaluatedPlacement(
        name,
        placement,
        partitions,
        total,
        error,
        imbalance,
        imbalance_error=_imbalance_error(problem, load, server_of_endpoint(placement, partitions, servers), servers),
        mean_load=float(load.sum()) / servers,
        moved=moved / max(float(cost.sum()), 1.0),
        move_cost=costs.moved_us * moved / options.horizon_s,
    )


def _connections_error(problem: Problem, weight: Ints) -> float:
    """Return the standard error of the mean number of connections, over the clients of the problem's sets."""
    share = weight / max(int(weight.sum()), 1)
    counts = np.maximum(np.arange(weight.size), 1)
    deviation = float(np.sqrt((share * (counts - float((share * counts).sum())) ** 2).sum()))
    return problem.connected * deviation / float(np.sqrt(max(problem.clients, 1.0)))


def _imbalance_error(problem: Problem, load: Floats, part: Parts, servers: int) -> float:
    """Return the standard error of the load of the fullest server, over the mean.

    Clients come independently (each brings the load of all its endpoints there), and updates are Poisson counts.
    """
    instance, costs = problem.instance, problem.costs
    filled = part_loads(load, part, servers)
    mean, fullest = float(filled.mean()), int(filled.argmax())
    rate, counts = instance.expected_busy
    frames = float((rate * instance.subscribers).sum())
    if mean <= 0 or frames <= 0 or problem.connected <= 0:
        return 0.0
    unit = frames / problem.connected / LOAD_RESOLUTION
    rates = np.round(rate / unit).astype(np.int64)
    squares = float(problem.backend.squared_loads(rates, part, servers)[fullest])
    of_client = problem.client_weight / instance.seconds
    of_clients = of_client * (costs.delivery_us * unit) ** 2 * squares * 2.0**instance.shift / instance.seconds
    of_counts = float((np.where(part == fullest, load, 0.0) ** 2 / counts).sum())
    return float(np.sqrt(of_clients + of_counts)) / mean


def decide(now: EvaluatedPlacement | None, candidate: EvaluatedPlacement, epsilon: float) -> PublishDecision:
    """Decide whether adopting ``candidate`` pays.

    It does if it saves more than its moves cost, and more than chance explains, for clients that the search did not
    use; or if it balances a load that is out of balance ``now`` by more than chance explains, and relieves the fullest
    server of more than the moves cost. Chance is that of two windows: the load of this one is compared with a placement
    that was made from another.
    """
    if now is None:
        return PublishDecision(candidate, pays=True, why="nothing is placed yet")
    if candidate.moved == 0 and candidate.partitions == now.partitions:
        return PublishDecision(candidate, pays=False, why="nothing better was found")
    bound, imbalance = 1 + epsilon + ROUNDING, candidate.imbalance
    chance = STANDARD_ERRORS * float(np.sqrt(2)) * now.imbalance_error
    relief = (now.imbalance - max(imbalance, bound)) * now.mean_load
    if now.imbalance > bound + chance and relief > candidate.move_cost:
        why = (
            f"balances the load: the fullest server has {imbalance:.3f} times the mean, not {now.imbalance:.3f} "
            f"(+- {chance:.3f})"
        )
        return PublishDecision(candidate, pays=True, why=why, balances=True)
    if imbalance > max(bound, now.imbalance):
        why = f"the fullest server would have {imbalance:.3f} times the mean load"
        return PublishDecision(candidate, pays=False, why=why)
    return _compare_costs(now, candidate)


def _compare_costs(now: EvaluatedPlacement, candidate: EvaluatedPlacement) -> PublishDecision:
    before, after, whose = now, candidate, ""
    if candidate.held_out is not None and candidate.held_out.now is not None:
        before, after, whose = candidate.held_out.now, candidate.held_out.found, " for other clients"
    saved, chance = before.cost - after.cost, STANDARD_ERRORS * float(np.hypot(before.error, after.error))
    if 0 < candidate.move_cost < saved <= chance:
        why = f"saves {saved:.4g} us/s{whose}, which may be chance (+- {chance:.4g} us/s)"
        return PublishDecision(candidate, pays=False, why=why)
    why = f"saves {saved:.4g} us/s{whose}, and its moves cost {candidate.move_cost:.4g} us/s"
    return PublishDecision(candidate, pays=saved > candidate.move_cost, why=why)


def choose_candidate(
    now: EvaluatedPlacement | None, candidates: Sequence[EvaluatedPlacement], epsilon: float
) -> PublishDecision:
    """Return the decision on the best candidate that pays, else on the best of all; balanced ones come first."""
    decisions = [decide(now, each, epsilon) for each in candidates]
    paying = [each for each in decisions if each.pays] or decisions

    def rank(decision: PublishDecision) -> tuple[bool, float]:
        candidate = decision.candidate
        return candidate.imbalance > 1 + epsilon + ROUNDING, candidate.cost + candidate.move_cost

    return min(paying, key=rank)
