"""Report a plan beside baselines, for the clients of the window and for those held out."""

from collections.abc import Mapping, Sequence
from typing import Any

from learning.costs import Resources
from learning.placement import baselines, capacity
from learning.placement.blocks import Parts
from learning.placement.instance import Instance
from learning.placement.objective import (
    connections,
    fan_out,
    loads,
    migration_cost,
    server_of_endpoint,
)
from learning.placement.options import Problem
from learning.placement.publish import EvaluatedPlacement, HeldOutPart, PublishDecision, judge


def build_report(
    problem: Problem,
    decision: PublishDecision,
    candidates: Sequence[EvaluatedPlacement],
    now: EvaluatedPlacement | None,
) -> dict[str, Any]:
    """Build the JSON report of a plan: rounded, and the same for the same plan.

    ``servers`` has, for every planned number of servers, the fan-out (mean, p99), the largest load over the mean, the
    upstream connections, what the fullest server uses of each resource, its clients after the loss of another, the time
    until those of a lost one are live again, of the plan, of the current placement and of each baseline, and the gaps
    to the lower bounds. ``capacity`` is :func:`capacity.report`. If clients were held out, it also has fan-out and
    connections as ``held_out_...``: those of plans made without a part of the clients, and of the other placements, for
    that part (:class:`HeldOut`).
    """
    best, instance, options = decision.candidate, problem.instance, problem.options
    current = None if now is None else now.placement
    load = loads(instance, problem.costs)
    unlearnt = baselines.all_baselines(instance.endpoints, load, best.partitions, options.seed)
    placements = {"plan": (best.placement, best.partitions)}
    if current is not None:
        placements["current"] = current, options.current_partitions
    placements |= {name: (part, best.partitions) for name, part in unlearnt.items()}
    hot, found = best.placement < 0, best.held_out
    parts = () if found is None else found.parts

    def held_out_fan_out(name: str, servers: int) -> float:
        def of_part(part: HeldOutPart) -> float:
            placed = (part.found.placement, part.found.partitions) if name == "plan" else placements[name]
            return fan_out(part.problem.backend, server_of_endpoint(*placed, servers), servers).mean

        return sum(weight * of_part(part) for weight, part in parts)

    def figures(servers: int) -> dict[str, Any]:
        result = _figures(problem, placements, servers)
        for name in placements if parts else ():
            mean = held_out_fan_out(name, servers)
            result[name]["held_out_fan_out"] = _round(mean)
            result[name]["held_out_connections"] = _round(mean * problem.connected)
        return result

    judged = None if now is None else judge(now, best)
    return {
        "pays": decision.pays,
        "why": decision.why,
        "saves": judged and {"us_per_s": _round(judged.saved), "error": _round(judged.error)},
        "sample": {
            "clients": _round(0.5**instance.halvings),
            "error_of_all": judged and _round(judged.error * 0.5 ** (instance.halvings / 2)),
        }
        if instance.halvings
        else None,
        "partitions": best.partitions,
        "hot": {
            "endpoints": int(hot.sum()),
            "all": bool(hot.any() and hot[instance.subscribers > 0].all()),
            "added_load": _round(problem.added_load(hot)),
        },
        "servers": {str(each): figures(each) for each in sorted(set(options.servers))},
        "capacity": capacity.report(problem, best.placement, best.partitions),
        "held_out": {
            "clients": _round(sum(part.problem.clients for weight, part in parts if weight > 0)),
            "parts": sum(weight > 0 for weight, _ in parts),
        }
        if parts
        else None,
        "moved": {name: _moved(instance, part, current) for name, (part, _) in placements.items() if name != "current"},
        "candidates": {
            each.name: {
                "cost_us_per_s": _round(each.cost),
                "moves_us_per_s": _round(each.move_cost),
                "subscriptions_moved": _round(each.moved),
                "max_over_mean_load": _round(each.imbalance),
                "load_error": _round(each.imbalance_error),
            }
            for each in (candidates if now is None else [now, *candidates])
        },
    }


def _figures(problem: Problem, placements: Mapping[str, tuple[Parts, int]], servers: int) -> dict[str, Any]:
    instance, backend = problem.instance, problem.backend
    result: dict[str, Any] = {}
    for name, (placement, partitions) in placements.items():
        part = server_of_endpoint(placement, partitions, servers)
        clients = fan_out(backend, part, servers)
        used = capacity.usage(problem, placement, partitions, servers).max(1).tolist()
        result[name] = {
            "fan_out": _round(clients.mean),
            "fan_out_p99": clients.p99,
            "max_over_mean_load": _round(problem.balance(part, servers)),
            "connections": _round(connections(instance, clients)),
            **{f"{resource}_fullest": _round(each) for resource, each in zip(Resources._fields, used, strict=True)},
        }
        if servers > 1:
            after_loss = capacity.usage(problem, placement, partitions, servers - 1)
            result[name]["clients_after_loss"] = _round(float(after_loss[0].max()))
            result[name]["storm_s"] = _round(capacity.storm_s(problem, placement, partitions, servers))
    hot, figures = placements["plan"][0] < 0, result["plan"]
    least = problem.balance_lower_bound(hot, servers)
    result["bounds"] = {"max_over_mean_load": _round(least)}
    result["gaps"] = {"max_over_mean_load": _round(figures["max_over_mean_load"] / least - 1)}
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
