"""Evaluate placements, decide whether to publish one (with hysteresis), and report it beside baselines and Mt-KaHyPar.

Separate from its only caller, ``planner``: that searches with an approximate objective, this computes the exact one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from metadata.placement import baselines
from metadata.placement.blocks import Floats, Ints, Parts
from metadata.placement.instance import Instance
from metadata.placement.objective import (
    balance,
    connections,
    fan_out,
    loads,
    migration_cost,
    server_of_endpoint,
    summarise_fan_out,
    total_cost,
)
from metadata.placement.options import Problem

STANDARD_ERRORS = 2.0
"""A gain below this many standard errors may be chance."""
ROUNDING = 1e-6
"""Excess over the bound of the imbalance that counts as a rounding error."""


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
    moved: float
    """Share of the subscriptions that move."""
    move_cost: float
    """Cost of these moves, spread over the horizon."""


@dataclass(frozen=True)
class PublishDecision:
    """Decision on adopting a placement instead of the current one."""

    candidate: EvaluatedPlacement
    pays: bool
    why: str


def evaluate(
    problem: Problem, placement: Parts, partitions: int, *, current: Parts | None, name: str
) -> EvaluatedPlacement:
    """Compute the cost, the imbalance and the moves of a placement."""
    instance, costs, options = problem.instance, problem.costs, problem.options
    load = problem.load(placement < 0)
    planned = sorted(set(options.servers))
    total, error, imbalance = 0.0, 0.0, 1.0
    for servers in planned:
        part = server_of_endpoint(placement, partitions, servers)
        weight = problem.backend.fan_out(part, servers)
        upstream = connections(instance, summarise_fan_out(weight))
        total += total_cost(instance, costs, upstream, placement < 0, servers) / len(planned)
        error += costs.connection_us_per_s * _standard_error(instance, weight) / len(planned)
        imbalance = max(imbalance, balance(load, part, servers))
    cost = migration_cost(instance)
    moved = 0.0 if current is None else float(cost[placement != current].sum())
    return EvaluatedPlacement(
        name,
        placement,
        partitions,
        total,
        error,
        imbalance,
        moved=moved / max(float(cost.sum()), 1.0),
        move_cost=costs.moved_us * moved / options.horizon_s,
    )


def decide(now: EvaluatedPlacement | None, candidate: EvaluatedPlacement, epsilon: float) -> PublishDecision:
    """Decide whether adopting ``candidate`` pays.

    It does if it saves more than its moves cost, and more than chance explains, or if it balances a load that is out of
    balance ``now``.
    """
    if now is None:
        return PublishDecision(candidate, pays=True, why="nothing is placed yet")
    if candidate.moved == 0 and candidate.partitions == now.partitions:
        return PublishDecision(candidate, pays=False, why="nothing better was found")
    bound, imbalance = 1 + epsilon + ROUNDING, candidate.imbalance
    if now.imbalance > bound >= imbalance:
        why = f"balances the load: the fullest server has {imbalance:.3f} times the mean, not {now.imbalance:.3f}"
        return PublishDecision(candidate, pays=True, why=why)
    if imbalance > max(bound, now.imbalance):
        why = f"the fullest server would have {imbalance:.3f} times the mean load"
        return PublishDecision(candidate, pays=False, why=why)
    return _compare_costs(now, candidate)


def _compare_costs(now: EvaluatedPlacement, candidate: EvaluatedPlacement) -> PublishDecision:
    saved, chance = now.cost - candidate.cost, STANDARD_ERRORS * float(np.hypot(now.error, candidate.error))
    if 0 < candidate.move_cost < saved <= chance:
        why = f"saves {saved:.4g} us/s, which may be chance (+- {chance:.4g} us/s)"
        return PublishDecision(candidate, pays=False, why=why)
    why = f"saves {saved:.4g} us/s, and its moves cost {candidate.move_cost:.4g} us/s"
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


def _standard_error(instance: Instance, weight: Ints) -> float:
    """Return the standard error of the mean number of connections, over concurrently connected clients."""
    clients = float(instance.weight.sum()) / instance.seconds
    share = weight / max(int(weight.sum()), 1)
    counts = np.maximum(np.arange(weight.size), 1)
    mean = float((share * counts).sum())
    return float(np.sqrt((share * (counts - mean) ** 2).sum() * clients))


_UNITS = 1_000_000
"""Total weight of the vertices for Mt-KaHyPar, whose weights are integers."""


def mt_kahypar(
    instance: Instance, load: Floats, k: int, epsilon: float, *, seed: int, preset: str = "DEFAULT"
) -> Parts | None:
    """Place on ``k`` servers with one thread, negative where ``load`` is 0; return None when it is not installed.

    Takes some 20 s for a million pins. Not for plans: another run may have another result.
    """
    try:
        import mtkahypar  # type: ignore[import-not-found, unused-ignore]  # noqa: PLC0415
    except ImportError:
        return None
    cold = load > 0
    number = np.where(cold, np.cumsum(cold) - 1, -1)
    pins, starts = number[instance.pins].tolist(), instance.starts.tolist()
    sets = [[pin for pin in pins[a:b] if pin >= 0] for a, b in pairwise(starts)]
    nets = [(pins, weight) for pins, weight in zip(sets, instance.weight.tolist(), strict=True) if len(pins) > 1]
    solver: Any = mtkahypar.initialize(1)
    mtkahypar.set_seed(seed)
    context = solver.context_from_preset(getattr(mtkahypar.PresetType, preset))
    context.set_partitioning_parameters(k, epsilon, mtkahypar.Objective.KM1)
    context.logging = False
    weights = np.maximum(1, np.round(load[cold] / load.sum() * _UNITS)).astype(int).tolist()
    graph = solver.create_hypergraph(
        context, int(cold.sum()), len(nets), [net for net, _ in nets], weights, [weight for _, weight in nets]
    )
    part = np.full(load.size, -1, np.int32)
    part[cold] = graph.partition(context).get_partition()
    return part


def build_report(
    problem: Problem, decision: PublishDecision, candidates: Sequence[EvaluatedPlacement], current: Parts | None
) -> dict[str, Any]:
    """Build the JSON report of a plan: rounded, and the same for the same plan.

    ``servers`` has, for every planned number of servers, the fan-out (mean, p99), the largest load over the mean and
    the upstream connections of the plan, of the current placement and of each baseline, and the gaps to the lower
    bounds.
    """
    best, instance, options = decision.candidate, problem.instance, problem.options
    load = loads(instance, problem.costs)
    others = baselines.all_baselines(instance.endpoints, load, best.partitions, options.seed)
    placements = {"plan": (best.placement, best.partitions)}
    if current is not None:
        placements["current"] = current, options.current_partitions
    placements |= {name: (part, best.partitions) for name, part in others.items()}
    hot = best.placement < 0
    return {
        "pays": decision.pays,
        "why": decision.why,
        "partitions": best.partitions,
        "hot": {
            "endpoints": int(hot.sum()),
            "all": bool(hot.any() and hot[instance.subscribers > 0].all()),
            "added_load": _round(problem.added_load(hot)),
        },
        "servers": {str(each): _figures(problem, placements, each) for each in sorted(set(options.servers))},
        "moved": {name: _moved(instance, part, current) for name, (part, _) in placements.items() if name != "current"},
        "candidates": {
            each.name: {
                "cost_us_per_s": _round(each.cost),
                "moves_us_per_s": _round(each.move_cost),
                "subscriptions_moved": _round(each.moved),
                "max_over_mean_load": _round(each.imbalance),
            }
            for each in candidates
        },
    }


def _figures(problem: Problem, placements: Mapping[str, tuple[Parts, int]], servers: int) -> dict[str, Any]:
    instance, backend, options = problem.instance, problem.backend, problem.options
    result: dict[str, Any] = {}
    for name, (placement, partitions) in placements.items():
        part = server_of_endpoint(placement, partitions, servers)
        clients = fan_out(backend, part, servers)
        result[name] = {
            "fan_out": _round(clients.mean),
            "fan_out_p99": clients.p99,
            "max_over_mean_load": _round(balance(problem.load(part < 0), part, servers)),
            "connections": _round(connections(instance, clients)),
        }
    cold = problem.load(placements["plan"][0] < 0)
    mean = float(cold.sum()) / servers
    least = baselines.fan_out_lower_bound(backend, cold, (1 + options.epsilon) * mean) if mean > 0 else 1.0
    figures = result["plan"]
    fullest = baselines.load_lower_bound(cold, servers) / mean if mean > 0 else 1.0
    result["bounds"] = {"fan_out": _round(least), "max_over_mean_load": _round(fullest)}
    result["gaps"] = {
        "fan_out": _round(figures["fan_out"] / least - 1),
        "max_over_mean_load": _round(figures["max_over_mean_load"] / fullest - 1),
    }
    solved = mt_kahypar(instance, cold, servers, options.epsilon, seed=options.seed) if options.reference else None
    if solved is not None:
        reference = fan_out(backend, solved, servers).mean
        result["mt_kahypar"] = {
            "fan_out": _round(reference),
            "max_over_mean_load": _round(balance(cold, solved, servers)),
        }
        result["gaps"]["mt_kahypar"] = _round(figures["fan_out"] / reference - 1)
    return result


def _moved(instance: Instance, part: Parts, current: Parts | None) -> dict[str, float]:
    if current is None or not part.size:
        return {"endpoints": 0.0, "subscriptions": 0.0}
    moves, cost = part != current, migration_cost(instance)
    return {
        "endpoints": _round(float(moves.mean())),
        "subscriptions": _round(float(cost[moves].sum() / cost.sum())),
    }


def _round(number: float) -> float:
    return float(f"{number:.6g}")
