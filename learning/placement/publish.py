"""Evaluates placements, and decides whether to adopt one: error bars, hold-out and hysteresis.

Separate from its only caller, ``planner``: that searches with an approximate objective, this computes the exact one.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from typing import Final, NamedTuple

import numpy as np

from learning.costs import Costs
from learning.placement import capacity
from learning.placement.blocks import Floats, Parts
from learning.placement.fanout import WEIGHT_RESOLUTION
from learning.placement.objective import (
    connections,
    fan_out,
    loads,
    merged_saving,
    migration_cost,
    server_of_endpoint,
    summarise_fan_out,
    total_cost,
)
from learning.placement.options import Problem

STANDARD_ERRORS: Final = 2.0
"""An imbalance within so many standard errors of the bound may be chance."""
SAVING_ERRORS: Final = 3.0
"""Likewise a gain. Plans are made every hour: with two, chance alone would apply one every other day."""
ROUNDING: Final = 1e-6
"""Excess over the bound of the imbalance that counts as a rounding error."""
MEAN_STEP: Final = 0.01
"""Relative step of the fan-out, for the slope of the sends that it saves."""
LOAD_RESOLUTION: Final = 256
"""Units of the mean load of a client on all servers, for :func:`fanout.squared_loads`."""


@dataclass(frozen=True)
class EvaluatedPlacement:
    """A placement and the cost that it decides: means over the planned numbers of servers, in microseconds a second."""

    name: str
    placement: Parts
    partitions: int
    cost: float
    error: float
    """Standard error of the savings against the current placement, for the clients of another window."""
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
    overfull: tuple[int, int] = (0, 0)
    """Planned numbers of servers for which one exceeds a limit, and for which one does after the loss of another."""
    held_out: "HeldOut | None" = None
    """Figures for clients not used by the search; None if not computed."""
    halves: tuple[float, float] = (0.0, 0.0)
    """The cost for either half of the clients."""
    optimism: float = 0.0
    """Savings that it seems to have because it is the best of several (:func:`optimism`)."""


class HeldOutPart(NamedTuple):
    """A part of the clients, the current placement evaluated for it, and what the search found without it."""

    problem: Problem
    now: EvaluatedPlacement | None
    found: EvaluatedPlacement
    saved_in_window: float
    """Saving of the latter for the clients that it was made from."""


@dataclass(frozen=True)
class HeldOut:
    """Figures of plans made without a part of the clients for that part, as they would be of a plan made from all.

    ``now`` has those of the current placement, ``found`` those of the plans.
    """

    now: EvaluatedPlacement | None
    found: EvaluatedPlacement
    saved_in_window: float
    """Saving of a plan made from all clients for these."""
    parts: tuple[tuple[float, HeldOutPart], ...] = ()
    """The weight of each part in the figures."""

    @classmethod
    def of(cls, parts: Sequence[HeldOutPart], halves: Sequence[HeldOutPart], share: float) -> "HeldOut":
        """Combine plans from all but a ``share`` of the clients with plans from half of them.

        A plan gains the more for others the more clients it is made from: what it lacks is about in inverse proportion
        to the square root of their number. By that their figures are extrapolated to all clients.

        The error is that of independent parts. They have clients in common, for which it would be a fifth less.
        """
        lacks_half, lacks = 2**0.5, (1 - share) ** -0.5
        slope = (lacks - 1) / (lacks_half - lacks) if halves else 0.0
        weighted = [((1 + slope) / len(parts), each) for each in parts]
        weighted += [(-slope / len(halves), each) for each in halves]
        now, found = parts[0].now, parts[0].found
        if now is not None:
            now = replace(now, cost=sum(weight * each.now.cost for weight, each in weighted if each.now is not None))
        cost = sum(weight * each.found.cost for weight, each in weighted)
        error = float(np.linalg.norm([weight * each.found.error for weight, each in weighted]))
        found = replace(found, cost=cost, error=error)
        return cls(now, found, sum(weight * each.saved_in_window for weight, each in weighted), tuple(weighted))


class Saving(NamedTuple):
    """Saving of a placement in microseconds a second, for clients that the search did not use where there are such."""

    saved: float
    error: float
    """Their standard error."""
    whose: str = ""
    """The clients, for people; empty: those of the window."""


def judge(now: EvaluatedPlacement, candidate: EvaluatedPlacement) -> Saving:
    """Judge a placement against the current one: for clients held out, else for the window that both were evaluated on.

    Every verdict, rank and report takes this figure. Plans of one population differ, so the error has what this one
    saves in its window beyond or below those made without some of its clients.
    """
    if candidate.held_out is None or candidate.held_out.now is None:
        return Saving(now.cost - candidate.cost - candidate.optimism, candidate.error)
    before, found = candidate.held_out.now, candidate.held_out.found
    difference = now.cost - candidate.cost - candidate.held_out.saved_in_window
    return Saving(before.cost - found.cost, float(np.hypot(found.error, difference)), " for other clients")


def optimism(candidates: Sequence[EvaluatedPlacement]) -> float:
    """Return how much the best of some candidates seems to save by being chosen on the clients that judge it.

    By the halves of these clients: what the best for one half saves for that half, less what it saves for the other.
    0 where clients were held out, as those candidates which these can hardly tell apart are chosen by all clients.
    """
    if len(candidates) < 2 or any(each.held_out for each in candidates):
        return 0.0
    costs = np.array([each.halves for each in candidates])
    crossed = [costs[costs[:, 1 - half].argmin(), half] for half in (0, 1)]
    return max(0.0, float(np.mean(crossed) - costs.mean(1).min()))


class Obstacle(StrEnum):
    """Obstacle to adopting a better placement."""

    MOVEMENT = "movement"
    """The budget of moves: without it, a placement pays."""
    CHANCE = "chance"
    """It saves more than its moves cost, but not more than the error of the sample."""
    HOLD_OUT = "hold_out"
    """It pays for the clients it was made from, but not for those held out."""
    BALANCE = "balance"
    """The fullest server would have more than the tolerated load."""


@dataclass(frozen=True)
class PublishDecision:
    """Decision on adopting a placement instead of the current one."""

    candidate: EvaluatedPlacement
    pays: bool
    why: str
    balances: bool = False
    """True if it pays by balancing the load, to be confirmed by the next window."""
    obstacle: Obstacle | None = None
    """Reason why it does not pay; None if nothing better was found, or its moves cost more than it saves."""
    saves: bool = False
    """True if it pays by its savings, perhaps besides balancing the load."""


def evaluate(
    problem: Problem, placement: Parts, partitions: int, *, current: Parts | None, name: str
) -> EvaluatedPlacement:
    """Compute the cost, the imbalance and the moves of a placement."""
    instance, costs, options = problem.instance, problem.verdict_costs or problem.costs, problem.options
    hot = placement < 0
    planned = sorted(set(options.servers))
    total, error, worst = 0.0, 0.0, (1.0, planned[0])
    halves = np.zeros(2)
    for servers in planned:
        part = server_of_endpoint(placement, partitions, servers)
        weight = problem.backend.fan_out(part, servers)
        summary = summarise_fan_out(weight)
        upstream = connections(instance, summary)
        total += total_cost(instance, costs, upstream, hot, servers) / len(planned)
        total -= merged_saving(instance, costs, summary.mean) / len(planned)
        of_connection = costs.connection_us_per_s + _unmerged_us(problem, costs, summary.mean)
        for half, clients_of_half in enumerate(problem.backend.halves()):
            differs = connections(instance, fan_out(clients_of_half, part, servers)) - upstream
            halves[half] += of_connection * differs / len(planned)
        # Every update is consumed once, whatever the placement.
        total -= costs.update_us * float(instance.expected.sum()) / len(planned)
        if current is not None:
            now = server_of_endpoint(current, options.current_partitions, servers)
            error += of_connection * _saving_error(problem, now, part, servers) / len(planned)
        worst = max(worst, (problem.balance(part, servers), servers))
    cost = migration_cost(instance)
    moved = 0.0 if current is None else float(cost[placement != current].sum())
    imbalance, servers = worst
    part = server_of_endpoint(placement, partitions, servers)
    filled = problem.server_loads(part, servers)
    return EvaluatedPlacement(
        name,
        placement,
        partitions,
        total,
        error,
        imbalance,
        imbalance_error=_imbalance_error(problem, part, filled),
        mean_load=float(filled.mean()),
        moved=moved / max(float(cost.sum()), 1.0),
        move_cost=costs.moved_us * moved / options.horizon_s,
        overfull=capacity.overfull(problem, placement, partitions),
        halves=(total + float(halves[0]), total + float(halves[1])),
    )


def _saving_error(problem: Problem, before: Parts, part: Parts, servers: int) -> float:
    """Return the standard error of the mean number of connections saved, over the clients of the problem's sets.

    Of the differences, client by client: most clients have the same fan-out on both placements, so that they say much
    more about the difference than about either.
    """
    instance = problem.instance
    longest = instance.seconds * 2.0 ** (instance.halvings - instance.shift)
    weight, squares = problem.backend.fan_out_change(before, part, servers, longest)
    whole, change = max(int(weight.sum()), 1), np.arange(-servers, servers + 1)
    mean = float((weight * change).sum()) / whole
    variance = float((squares * (change - mean) ** 2).sum()) * longest / WEIGHT_RESOLUTION / whole**2
    return problem.connected * float(np.sqrt(variance))


def _unmerged_us(problem: Problem, costs: Costs, mean: float) -> float:
    """Return what one more connection takes of :func:`merged_saving` around a ``mean`` fan-out."""
    if mean <= 0 or problem.connected <= 0:
        return 0.0
    saving, more = partial(merged_saving, problem.instance, costs), mean * (1 + MEAN_STEP)
    return (saving(mean) - saving(more)) / ((more - mean) * problem.connected)


def _imbalance_error(problem: Problem, part: Parts, filled: Floats) -> float:
    """Return the standard error of the load of the fullest server, over the mean; ``filled`` is the load of each.

    Clients come independently (each brings the load of all its endpoints there), and updates are Poisson counts.
    """
    instance, costs = problem.instance, problem.costs
    servers, load = filled.size, loads(instance, costs)
    mean, fullest = float(filled.mean()), int(filled.argmax())
    rate, counts = instance.expected_busy
    frames = float((rate * instance.subscribers).sum())
    if mean <= 0 or frames <= 0 or problem.connected <= 0:
        return 0.0
    unit = frames / problem.connected / LOAD_RESOLUTION
    rates = np.round(rate / unit).astype(np.int64)
    squares = float(problem.backend.squared_loads(rates, part, servers)[fullest])
    of_client = instance.client_weight / instance.seconds
    of_clients = of_client * (costs.delivery_us * unit) ** 2 * squares * 2.0**instance.shift / instance.seconds
    # A server has a share of the load of each hot endpoint.
    there = np.where(part == fullest, load, np.where(part < 0, load / servers, 0.0))
    of_counts = float((there**2 / counts).sum())
    return float(np.sqrt(of_clients + of_counts)) / mean


def is_uneven(now: EvaluatedPlacement, epsilon: float) -> bool:
    """Return whether the load is out of balance by more than chance explains.

    Chance is that of two windows: the load of this one is compared with a placement that was made from another.
    """
    return now.imbalance > 1 + epsilon + ROUNDING + _chance(now)


def _chance(now: EvaluatedPlacement) -> float:
    return STANDARD_ERRORS * float(np.sqrt(2)) * now.imbalance_error


def decide(
    now: EvaluatedPlacement | None, candidate: EvaluatedPlacement, epsilon: float, least: float = 0.0
) -> PublishDecision:
    """Decide whether adopting ``candidate`` pays.

    It does if it relieves servers that exceed a limit ``now``. Without such servers it does if it saves more than its
    moves cost, more than chance explains and, beyond chance, the share ``least`` of the cost, for clients that the
    search did not use; or if it balances a load that :func:`is_uneven` ``now``, and relieves the fullest server of more
    than the moves cost.
    """
    if now is None:
        return PublishDecision(candidate, pays=True, why="nothing is placed yet")
    if candidate.moved == 0 and candidate.partitions == now.partitions:
        return PublishDecision(candidate, pays=False, why="nothing better was found")
    if candidate.overfull[0] or candidate.overfull != now.overfull:
        relieves = not candidate.overfull[0] and candidate.overfull < now.overfull
        why = "relieves a server of" if relieves else "a server would have"
        lost = "" if (now if relieves else candidate).overfull[0] else " after the loss of another"
        return PublishDecision(candidate, relieves, f"{why} more than it can take{lost}")
    bound, imbalance = 1 + epsilon + ROUNDING, candidate.imbalance
    relief = (now.imbalance - max(imbalance, bound)) * now.mean_load
    if is_uneven(now, epsilon) and relief > candidate.move_cost:
        why = (
            f"balances the load: the fullest server has {imbalance:.3f} times the mean, not {now.imbalance:.3f} "
            f"(+- {_chance(now):.3f})"
        )
        costs = _compare_costs(now, candidate, least)
        why = f"{why}; {costs.why}" if costs.saves else why
        return PublishDecision(candidate, pays=True, why=why, balances=True, saves=costs.saves)
    if is_uneven(candidate, epsilon) and imbalance > now.imbalance + ROUNDING:
        why = f"the fullest server would have {imbalance:.3f} times the mean load"
        return PublishDecision(candidate, pays=False, why=why, obstacle=Obstacle.BALANCE)
    return _compare_costs(now, candidate, least)


def _compare_costs(now: EvaluatedPlacement, candidate: EvaluatedPlacement, least: float) -> PublishDecision:
    saved, error, whose = judge(now, candidate)
    if candidate.move_cost < saved <= (chance := SAVING_ERRORS * error):
        why = f"saves {_cpu(saved)}{whose}, which may be due to chance (+- {chance / 1000:,.3f} ms)"
        return PublishDecision(candidate, pays=False, why=why, obstacle=Obstacle.CHANCE)
    if candidate.move_cost < saved <= least * abs(now.cost) + (STANDARD_ERRORS * error if least > 0 else 0.0):
        why = f"saves {_cpu(saved)}{whose}, which may be less than {least:.1%} of what a placement decides"
        return PublishDecision(candidate, pays=False, why=why)
    why = f"saves {_cpu(saved)}{whose}, and its moves cost {candidate.move_cost / 1000:,.3f} ms"
    pays = saved > candidate.move_cost
    pays_in_window = now.cost - candidate.cost > max(candidate.move_cost, SAVING_ERRORS * candidate.error)
    obstacle = Obstacle.HOLD_OUT if pays_in_window and not pays else None
    return PublishDecision(candidate, pays, why, obstacle=obstacle, saves=pays)


def _cpu(us_per_s: float) -> str:
    # Added to, a zero that was rounded from below has no sign.
    return f"{round(us_per_s / 1000, 3) + 0.0:,.3f} ms of CPU a second"


def choose_candidate(
    now: EvaluatedPlacement | None, candidates: Sequence[EvaluatedPlacement], epsilon: float, least: float = 0.0
) -> PublishDecision:
    """Return the decision on the best candidate that pays, else on the best of all.

    Those whose servers are within their limits come first, then those that are balanced, then those that save the most
    (:func:`judge`) beyond the cost of their moves.
    """
    if seeming := optimism(candidates):
        candidates = [replace(each, optimism=seeming) for each in candidates]
    decisions = [decide(now, each, epsilon, least) for each in candidates]
    paying = [each for each in decisions if each.pays] or decisions

    def is_refused(decision: PublishDecision) -> tuple[tuple[int, int], bool]:
        return decision.candidate.overfull, is_uneven(decision.candidate, epsilon)

    def judged(decision: PublishDecision) -> float:
        candidate = decision.candidate
        cost = candidate.cost if now is None else -judge(now, candidate).saved
        return cost + candidate.move_cost

    best = min(paying, key=lambda each: (is_refused(each), judged(each)))
    if now is None or best.candidate.held_out is None:
        return best
    # Clients held out are few: what they cannot tell apart is compared by all.
    least = judged(best) + judge(now, best.candidate).error
    close = [each for each in paying if is_refused(each) == is_refused(best) and judged(each) <= least]
    return min(close, key=lambda each: each.candidate.cost + each.candidate.move_cost)
