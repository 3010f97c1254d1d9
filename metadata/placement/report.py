"""Evaluate placements, decide whether to publish one (with hysteresis), and report beside baselines and Mt-KaHyPar."""

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
"""A gain below this many of its standard errors may be chance."""
ROUNDING = 1e-6


@dataclass(frozen=True)
class EvaluatedPlacement:
    """A placement and its cost: means over the planned numbers of servers, in microseconds a second."""

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
    """Cost of these moves, spread over the horizon."""


@dataclass(frozen=True)
class PublishDecision:
    """The decision whether to adopt a placement instead of the current one."""

    of: EvaluatedPlacement
    pays: bool
    why: str


def evaluate(
    problem: Problem, placement: Parts, partitions: int, *, current: Parts | None, name: str
) -> EvaluatedPlacement:
    """Evaluate a placement: cost, balance and moves."""
    instance, costs, options = problem.instance, problem.costs, problem.options
    load = problem.load(placement < 0)
    planned = sorted(set(options.servers))
    total, error, uneven = 0.0, 0.0, 1.0
    for servers in planned:
        part = server_of_endpoint(placement, partitions, servers)
        weight = problem.backend.fan_out(part, servers)
        upstream = connections(instance, summarise_fan_out(weight))
        total += total_cost(instance, costs, upstream, placement < 0, servers) / len(planned)
        error += costs.connection_us_per_s * _standard_error(instance, weight) / len(planned)
        uneven = max(uneven, balance(load, part, servers))
    moved, effort_of_all = 0.0, migration_cost(instance)
    if current is not None:
        moved = float(effort_of_all[placement != current].sum())
    price = costs.moved_us * moved / options.horizon_s
    return EvaluatedPlacement(
        name, placement, partitions, total, error, uneven, moved / max(float(effort_of_all.sum()), 1.0), price
    )


def decide(now: EvaluatedPlacement | None, found: EvaluatedPlacement, epsilon: float) -> PublishDecision:
    """Decide whether to adopt ``found``: it saves more than its moves cost and than chance explains.

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
    return _weigh(now, found)


def _weigh(now: EvaluatedPlacement, found: EvaluatedPlacement) -> PublishDecision:
    saved, chance = now.cost - found.cost, STANDARD_ERRORS * float(np.hypot(now.error, found.error))
    if 0 < found.price < saved <= chance:
        return PublishDecision(
            found, pays=False, why=f"saves {saved:.4g} us/s, which may be chance (+- {chance:.4g} us/s)"
        )
    why = f"saves {saved:.4g} us/s, and its moves cost {found.price:.4g} us/s"
    return PublishDecision(found, pays=saved > found.price, why=why)


def choose(now: EvaluatedPlacement | None, found: list[EvaluatedPlacement], epsilon: float) -> PublishDecision:
    """Return the best paying placement, else the reason against the best of all; balanced ones first."""
    verdicts = [decide(now, each, epsilon) for each in found]
    paying = [each for each in verdicts if each.pays] or verdicts
    return min(paying, key=lambda each: (each.of.uneven > 1 + epsilon + ROUNDING, each.of.cost + each.of.price))


def _standard_error(instance: Instance, weight: Ints) -> float:
    """Return the standard error of the mean number of connections, over concurrently connected clients."""
    clients = float(instance.weight.sum()) / instance.seconds
    share = weight / max(int(weight.sum()), 1)
    counts = np.maximum(np.arange(weight.size), 1)
    mean = float((share * counts).sum())
    return float(np.sqrt((share * (counts - mean) ** 2).sum() * clients))


_UNITS = 1_000_000


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
    problem: Problem, verdict: PublishDecision, found: Sequence[EvaluatedPlacement], current: Parts | None
) -> dict[str, Any]:
    """Build the JSON report of a plan: rounded, and the same for the same plan.

    ``servers`` has for every planned number of servers the fan-out (mean, p99), the largest load over the mean and the
    upstream connections of the plan, of what is there now and of each baseline, and the gaps to the lower bounds.
    """
    best, instance, options = verdict.of, problem.instance, problem.options
    load = loads(instance, problem.costs)
    others = baselines.all_baselines(instance.endpoints, load, best.partitions, options.seed)
    placements = {"plan": (best.placement, best.partitions)}
    if current is not None:
        placements["current"] = current, options.least_partitions
    placements |= {name: (part, best.partitions) for name, part in others.items()}
    hot = best.placement < 0
    return {
        "pays": verdict.pays,
        "why": verdict.why,
        "partitions": best.partitions,
        "hot": {
            "endpoints": int(hot.sum()),
            "added_load": _round(problem.added_load(hot)),
        },
        "servers": {str(each): _figures(problem, placements, each) for each in sorted(set(options.servers))},
        "moved": {name: _moved(instance, part, current) for name, (part, _) in placements.items() if name != "current"},
        "candidates": {
            each.name: {
                "cost_us_per_s": _round(each.cost),
                "moves_us_per_s": _round(each.price),
                "subscriptions_moved": _round(each.moved),
                "max_over_mean_load": _round(each.uneven),
            }
            for each in found
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
    if (
        options.reference
        and (found := mt_kahypar(instance, cold, servers, options.epsilon, seed=options.seed)) is not None
    ):
        reference = fan_out(backend, found, servers).mean
        result["mt_kahypar"] = {
            "fan_out": _round(reference),
            "max_over_mean_load": _round(balance(cold, found, servers)),
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
