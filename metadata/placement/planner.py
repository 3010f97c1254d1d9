"""Compute a plan: hot set, partitions, a leaf for every endpoint, and whether adopting it pays."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from metadata.costs import Costs
from metadata.placement import choose_p, hot, report
from metadata.placement.backend import Backend, NumpyBackend
from metadata.placement.blocks import Mask, Parts
from metadata.placement.bounds import Infeasible
from metadata.placement.instance import Instance
from metadata.placement.multilevel import Search, best
from metadata.placement.objective import load_of_parts
from metadata.placement.options import PlanOptions, Problem, views_of
from metadata.placement.publish import chosen, valued
from metadata.placement.refine import excess
from metadata.placement.relabel import relabelled
from metadata.placement.warm import effort, warmed

HOT_ROUNDS: Final = 2
"""Times that the hot set is chosen on a placement, and the rest placed again."""


@dataclass(frozen=True)
class PlanResult:
    """What to do. ``placement`` is the home of every endpoint of the instance: int32[E], HOT (-1) for hot ones."""

    placement: Parts
    partitions: int
    report: dict[str, Any]
    pays: bool
    why: str


def plan(
    instance: Instance,
    options: PlanOptions,
    costs: Costs,
    current: Parts | None = None,
    backend: Backend | None = None,
) -> PlanResult:
    """The best placement within the budgets, or what is there already: the same bytes for the same input and seed.

    ``current`` is the home of every endpoint now: int32[E], HOT (-1) for hot ones; of ``least_partitions`` partitions.
    With a movement budget the search starts from it. A budget that is too small to balance the load is kept all the
    same: the report says by how much the load is uneven.

    Raises:
        Infeasible: the load cannot be balanced, because of the endpoint that it names.
    """
    backend = backend or NumpyBackend(instance.blocks(), len(instance.endpoints))
    problem = Problem(instance, backend, costs, options)
    now = None
    if current is not None:
        now = valued(problem, current, options.least_partitions, current=current, name="current")
    found = [
        valued(problem, placement, partitions, current=current, name=name)
        for name, placement, partitions in _candidates(problem, current)
    ]
    verdict = chosen(now, found, options.epsilon)
    figures = report.written(problem, verdict, found if now is None else [now, *found], current)
    return PlanResult(verdict.of.placement, verdict.of.partitions, figures, verdict.pays, verdict.why)


def _candidates(problem: Problem, current: Parts | None) -> Iterator[tuple[str, Parts, int]]:
    """Placements to choose from, each with its name and number of partitions."""
    options, kept = problem.options, problem.options.least_partitions
    if current is not None and options.partitions in {None, kept}:
        yield "warm start", warmed(problem, current), kept
    if current is None or options.movement_budget is None:
        placement, leaves = solved(problem)
        if current is not None:
            placement = relabelled(placement, current, leaves, options.servers, effort(problem.instance))
        yield "new", placement, leaves


def solved(problem: Problem) -> tuple[Parts, int]:
    """A placement that owes nothing to another one, and its number of partitions.

    Raises:
        Infeasible: the load cannot be balanced, because of the endpoint that it names.
    """
    options, must = problem.options, hot.mandatory(problem)
    load = problem.load(must)[~must]
    leaves = options.partitions or choose_p.partitions(load, options.servers, options.least_partitions, options.epsilon)
    placement = _placed(problem, must, leaves)
    for _ in range(HOT_ROUNDS if options.hot_budget > 0 else 0):
        base = hot.cooled(problem.backend, placement, leaves, (placement < 0) & ~must)
        heated = hot.chosen(problem, base, leaves)
        if (heated == (placement < 0)).all():
            break
        placement = _placed(problem, heated, leaves)
    _check(problem, placement, leaves)
    return placement, leaves


def _placed(problem: Problem, is_hot: Mask, leaves: int) -> Parts:
    load, options = problem.load(is_hot), problem.options
    search = Search(leaves, views_of(load, leaves, options), options.epsilon, options.seed)
    return best(problem.backend, load, np.where(is_hot, -1, 0).astype(np.int32), search)


def _check(problem: Problem, placement: Parts, leaves: int) -> None:
    """Raise Infeasible when a planned number of servers is not balanced."""
    load, options = problem.load(placement < 0), problem.options
    planned = [view for view in views_of(load, leaves, options) if view.servers in options.servers]
    if excess(load, placement, planned) <= 0:
        return
    worst = max(planned, key=lambda view: excess(load, placement, [view]))
    server = np.where(placement < 0, -1, worst.server[placement]).astype(np.int32)
    filled = load_of_parts(load, server, worst.servers)
    endpoint = int(np.argmax(np.where(server == filled.argmax(), load, -1.0)))
    reached = float(filled.max() / filled.mean()) - 1
    reason = f"and what is beside it are too much for one of {worst.servers} servers, with {leaves} partitions"
    raise Infeasible(problem.instance.endpoints[endpoint], reason, reached)
