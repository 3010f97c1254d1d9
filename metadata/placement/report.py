"""Report of a plan: every figure beside those of the baselines and, where installed, of Mt-KaHyPar."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from metadata.placement import baselines, bounds
from metadata.placement.blocks import Floats, Parts
from metadata.placement.instance import Instance
from metadata.placement.objective import balance, connections, fan_out, loads
from metadata.placement.options import Problem
from metadata.placement.publish import PublishDecision, Valued
from metadata.placement.ranges import laid_out
from metadata.placement.warm import effort

_UNITS = 1_000_000


def mt_kahypar(
    instance: Instance, load: Floats, k: int, epsilon: float, *, seed: int, preset: str = "DEFAULT"
) -> Parts | None:
    """A placement on ``k`` servers with one thread, negative where ``load`` is 0; None when it is not installed.

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


def written(
    problem: Problem, verdict: PublishDecision, found: Sequence[Valued], current: Parts | None
) -> dict[str, Any]:
    """The report of a plan, as JSON has it; rounded, and the same for the same plan.

    ``servers`` has for every planned number of servers the fan-out (mean, p99), the largest load over the mean and the
    upstream connections of the plan, of what is there now and of each baseline, and the gaps to the lower bounds.
    """
    best, instance, options = verdict.of, problem.instance, problem.options
    load = loads(instance, problem.costs)
    others = baselines.all_of(instance.endpoints, load, best.partitions, options.seed)
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
        part = laid_out(placement, partitions, servers)
        clients = fan_out(backend, part, servers)
        result[name] = {
            "fan_out": _round(clients.mean),
            "fan_out_p99": clients.p99,
            "max_over_mean_load": _round(balance(problem.load(part < 0), part, servers)),
            "connections": _round(connections(instance, clients)),
        }
    cold = problem.load(placements["plan"][0] < 0)
    mean = float(cold.sum()) / servers
    least = bounds.least_fan_out(backend, cold, (1 + options.epsilon) * mean) if mean > 0 else 1.0
    figures = result["plan"]
    fullest = bounds.least_load(cold, servers) / mean if mean > 0 else 1.0
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
    moves, cost = part != current, effort(instance)
    return {
        "endpoints": _round(float(moves.mean())),
        "subscriptions": _round(float(cost[moves].sum() / cost.sum())),
    }


def _round(number: float) -> float:
    return float(f"{number:.6g}")
