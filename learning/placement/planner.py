"""Computes a plan: hot set, partitions, a leaf for every endpoint, and whether adopting it pays."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from diem.protocol.partition_map import MAX_PARTITIONS
from learning.costs import Costs
from learning.placement import exact, hot, report
from learning.placement.backend import Backend
from learning.placement.baselines import Infeasible
from learning.placement.blocks import Floats, Mask, Parts
from learning.placement.capacity import overfull, place_within, relieve
from learning.placement.instance import Instance
from learning.placement.multilevel import KICKED_VERTICES, Search, search_placement
from learning.placement.objective import ROUNDING, migration_cost, part_loads, server_of_endpoint
from learning.placement.options import PlanOptions, Problem, search_views
from learning.placement.publish import (
    EvaluatedPlacement,
    HeldOut,
    HeldOutPart,
    Obstacle,
    choose_candidate,
    evaluate,
    is_uneven,
)
from learning.placement.refine import Movement, perturb, refine
from learning.placement.relabel import relabel
from learning.sizing import solver
from learning.sizing.even import choose_count, is_even_enough

CORE_US_PER_S: Final = 1_000_000
"""CPU time of the one core that a server can use."""
SMALLEST_CLUSTER: Final = 3
"""Brokers, and replicas, of the smallest cluster that survives the loss of one: the strictest limits of partitions."""
HOT_BUDGET_SHARE: Final = 0.5
"""Share of the movement budget that is reserved for changes of the hot set."""
HOT_SHARES: Final = (1.0, 0.5, 0.25)
"""Shares of what is left of the movement budget that new hot endpoints may take: the first after which loads are even.
The rest of it evens them out."""
NEW: Final = "new"
"""Name of the candidate from scratch."""
HEATED: Final = 3
"""Larger hot sets from which placements within the limits of servers are searched."""
HOT_ROUNDS: Final = 2
"""Rounds of choosing the hot set for a placement, then placing the rest again."""
BALANCE_ROUNDS: Final = 4
"""Rounds of balancing the load of hot endpoints: it changes when other endpoints move, with the clients."""
BALANCE_MARGIN: Final = 0.002
"""Share of the limits that these rounds leave free for that."""


@dataclass(frozen=True)
class PlanResult:
    """A plan. ``placement`` is the home of every endpoint of the instance: int32[E], HOT (-1) for hot ones."""

    placement: Parts
    partitions: int
    report: dict[str, Any]
    pays: bool
    why: str
    balances: bool = False
    """True if it pays by balancing an uneven load."""
    obstacle: Obstacle | None = None
    """Obstacle to paying, if known."""
    saves: bool = False
    """True if it pays by its savings, perhaps besides balancing the load."""


def plan(
    instance: Instance,
    options: PlanOptions,
    costs: Costs,
    current: Parts | None = None,
    backend: Backend | None = None,
    *,
    verdict_costs: Costs | None = None,
    learnt: Sequence[Instance] = (),
) -> PlanResult:
    """Return the best placement within the budgets, or the current one: same input and seed, same bytes.

    Made from each of ``learnt``, earlier windows of the same endpoints (:func:`instance.split_time`), and judged on
    the clients of ``instance`` who are not in the first of them. Without them, made from ``instance`` and judged on
    clients held out.

    ``current`` is the current home of every endpoint, among ``current_partitions``: int32[E], HOT (-1) for hot ones.
    With a movement budget the search starts from it. A budget too small to balance the load is still kept; the report
    has the remaining imbalance. ``verdict_costs`` decide whether it pays, ``costs`` what is searched for; None: both.

    Raises:
        Infeasible: the load cannot be balanced, because of the endpoint in the error.
    """
    backend = backend or Backend(instance.blocks(), len(instance.endpoints))
    problem = Problem(instance, backend, costs, options, verdict_costs=verdict_costs)
    windows = [(each, Backend(each.blocks(), len(each.endpoints))) for each in learnt] or [(instance, backend)]
    judging = problem.of_newcomers(windows[0][1]) if learnt else problem
    now = _evaluate_current(problem, current, judging)
    found: list[tuple[str, Parts, int]] = []
    held_out = {} if learnt else _hold_out(problem, current, uneven=now is not None and is_uneven(now, options.epsilon))
    for window, of_window in windows:
        search = replace(problem, instance=window, backend=of_window.without_long_sets())
        before = _evaluate_current(search, current)
        found += _candidates(search, current, uneven=before is not None and is_uneven(before, options.epsilon))
    candidates = [
        replace(
            _judge(problem, judging, placement, partitions, current=current, name=name), held_out=held_out.get(name)
        )
        for name, placement, partitions in found
    ]
    decision = choose_candidate(now, candidates, options.epsilon, options.least_saving)
    figures = report.build_report(problem, decision, candidates, now)
    best = decision.candidate
    return PlanResult(
        best.placement,
        best.partitions,
        figures,
        decision.pays,
        decision.why,
        decision.balances,
        decision.obstacle,
        decision.saves,
    )


def _judge(
    problem: Problem, judging: Problem, placement: Parts, partitions: int, *, current: Parts | None, name: str
) -> EvaluatedPlacement:
    """Evaluate a placement, with the cost that it decides for the clients of ``judging``."""
    found = evaluate(problem, placement, partitions, current=current, name=name)
    if judging is problem:
        return found
    of_those = evaluate(judging, placement, partitions, current=current, name=name)
    return replace(found, cost=of_those.cost, error=of_those.error, halves=of_those.halves)


def _evaluate_current(
    problem: Problem, current: Parts | None, judging: Problem | None = None
) -> EvaluatedPlacement | None:
    if current is None:
        return None
    judging, partitions = judging or problem, problem.options.current_partitions
    return _judge(problem, judging, current, partitions, current=current, name="current")


def _hold_out(problem: Problem, current: Parts | None, *, uneven: bool) -> dict[str, HeldOut]:
    """Return what the same searches find without parts of the clients, by name, evaluated for these."""
    share = problem.options.hold_out
    folds, of_halves = problem.folds(share), problem.folds(0.5)
    if len(problem.instance.endpoints) <= KICKED_VERTICES:
        # Such searches take seconds each.
        folds, of_halves = folds[:1], []
    parts, halves = (_without_parts(each, current, uneven=uneven) for each in (folds, of_halves))
    return {name: HeldOut.of(own, halves.get(name, ()), share) for name, own in parts.items()}


def _without_parts(
    folds: Sequence[tuple[Problem, Problem]], current: Parts | None, *, uneven: bool
) -> dict[str, list[HeldOutPart]]:
    found: dict[str, list[HeldOutPart]] = {}
    for used, others in folds:
        searched = replace(used, backend=used.backend.without_long_sets())
        now, before = (_evaluate_current(each, current) for each in (others, used))
        # Where no part can be balanced, perhaps all clients can.
        with suppress(Infeasible):
            for name, placement, partitions in list(_candidates(searched, current, uneven=uneven)):
                judged = evaluate(others, placement, partitions, current=current, name=name)
                saved = 0.0
                if before is not None:
                    saved = before.cost - evaluate(used, placement, partitions, current=None, name=name).cost
                found.setdefault(name, []).append(HeldOutPart(others, now, judged, saved))
    return found


def _candidates(problem: Problem, current: Parts | None, *, uneven: bool) -> Iterator[tuple[str, Parts, int]]:
    """Yield candidate placements with their names and numbers of partitions; see :func:`warm_start` for ``uneven``."""
    options, partitions = problem.options, problem.options.current_partitions
    if current is not None and options.partitions in {None, partitions}:
        cost = migration_cost(problem.instance)
        budget = np.inf if options.movement_budget is None else options.movement_budget * float(cost.sum())
        started = warm_start(problem, current, uneven=uneven)
        yield "warm start", _relieve(problem, started, partitions, Movement(current, cost, budget)), partitions
    if current is None or options.movement_budget is None:
        placement, leaves = solve(problem)
        if current is not None:
            placement = relabel(placement, current, leaves, options.servers, migration_cost(problem.instance))
        yield NEW, placement, leaves


def _relieve(problem: Problem, found: Parts, leaves: int, movement: Movement | None = None) -> Parts:
    """Return a placement whose servers are within the limits, if one is near: also after the loss of a server.

    Without one for the loss, one for all servers is taken; without that the placement stays as it is.
    """
    options = problem.options
    if options.limits is None:
        return found
    for lost in (0, 1):
        counts = {each - lost for each in options.servers if lost < each <= leaves}
        counts |= {*options.servers} if lost else set()
        relieved = relieve(problem, found, leaves, sorted(counts), movement)
        if relieved is None:
            break
        found = relieved
    return found


def solve(problem: Problem) -> tuple[Parts, int]:
    """Return a placement from scratch, and its number of partitions.

    Raises:
        Infeasible: the load cannot be balanced, because of the endpoint in the error.
    """
    # Of few endpoints a placement may be balanced though LPT, which is nearly the best of many, is not.
    must = hot.mandatory(problem, certain=len(problem.instance.endpoints) <= KICKED_VERTICES)
    placement, leaves = _solve_with(problem, must)
    if _overload(problem, placement, leaves) > 0 and ((more := hot.mandatory(problem)) != must).any():
        placement, leaves = _solve_with(problem, more)
    _check_balance(problem, placement, leaves)
    return _relieve_by_hot(problem, _relieve(problem, placement, leaves), leaves), leaves


def _relieve_by_hot(problem: Problem, placement: Parts, leaves: int) -> Parts:
    """Return a placement with more hot endpoints, if servers then exceed fewer limits: these need no server."""
    best, least = placement, overfull(problem, placement, leaves)
    heated = hot.relieving(problem, placement, leaves)[:HEATED]
    for start, searched in [*((each, False) for each in heated), *((each, True) for each in (placement, *heated))]:
        # A search takes longer than moves: only for all servers, not for the loss of one.
        if least == (0, 0) or (searched and least[0] == 0):
            break
        found: Parts | None = start
        if searched and (found := place_within(problem, start, leaves)) is None and start is not placement:
            found = _solve(problem, start < 0, leaves)
        if found is None:
            continue
        found = _relieve(problem, _balance_hot(problem, problem.search_load(found < 0), found, leaves), leaves)
        if _overload(problem, found, leaves) <= 0 and (now := overfull(problem, found, leaves)) < least:
            best, least = found, now
    return best


def _solve_with(problem: Problem, must: Mask) -> tuple[Parts, int]:
    """Return a placement from scratch with a hot set that contains ``must``, and its number of partitions."""
    options, load = problem.options, problem.load(must)[~must]
    leaves = options.partitions or choose_partitions(load, options)
    tight = replace(problem, options=options.with_margin)
    placement = _solve(tight, must, leaves)
    if options.margin > 0 and _overload(tight, placement, leaves) > 0:
        placement = _solve(problem, must, leaves)
    return placement, leaves


def _solve(problem: Problem, must: Mask, leaves: int) -> Parts:
    """Return the best placement found, in turn with hot sets for it, which contain ``must``."""
    options = problem.options
    placements = [place(problem, must, leaves)]
    for _ in range(HOT_ROUNDS if options.hot_budget > 0 else 0):
        before = placements[-1]
        base = hot.cool(problem.backend, before, leaves, (before < 0) & ~must)
        is_hot = hot.choose(problem, base, leaves)
        if (is_hot == (before < 0)).all():
            break
        placements.append(place(problem, is_hot, leaves))
    return min(placements, key=lambda each: (_overload(problem, each, leaves), problem.cost(each, leaves)))


def place(problem: Problem, is_hot: Mask, leaves: int) -> Parts:
    """Return a placement with a given hot set on ``leaves`` partitions: int32[E]."""
    options, cold = problem.options, np.where(is_hot, -1, 0).astype(np.int32)
    found = []
    # Which of the two is nearer to the load of servers depends on how alike the sets of clients are.
    for load in (problem.search_load(is_hot), problem.load(is_hot)):
        views = search_views(problem, load, is_hot, leaves)
        planned = [view for view in views if view.servers in options.servers]
        placement = exact.solve(problem.backend, load, cold, planned[0]) if len(planned) == 1 else None
        if placement is None:
            search = Search(leaves, views, options.epsilon, options.seed)
            placement = search_placement(problem.backend, load, cold, search)
        found.append(_balance_hot(problem, load, placement, leaves))
        if not is_hot.any() or _overload(problem, found[-1], leaves) <= 0:
            break
    return min(found, key=lambda each: _overload(problem, each, leaves))


def _balance_hot(
    problem: Problem, load: Floats, placement: Parts, leaves: int, movement: Movement | None = None
) -> Parts:
    """Balance a placement with the load of hot endpoints as it is: the search by ``load`` knows it only about."""
    for _ in range(BALANCE_ROUNDS if (placement < 0).any() else 0):
        if _overload(problem, placement, leaves) <= 0:
            break
        views = search_views(problem, load, placement < 0, leaves, placement)
        tight = [replace(view, max_load=view.max_load * (1 - BALANCE_MARGIN)) for view in views]
        placement = refine(problem.backend, load, placement, tight, movement=movement)
    return placement


def _overload(problem: Problem, placement: Parts, leaves: int) -> float:
    """Return the largest excess of a server over its limit, as a share of it, for all planned numbers of servers."""
    return max(0.0, _worst_balance(problem, placement, leaves)[0] / (1 + problem.options.epsilon) - 1 - ROUNDING)


def _worst_balance(problem: Problem, placement: Parts, leaves: int) -> tuple[float, int]:
    """Return the largest load over the mean, and for which number of servers; those above ``leaves`` do not count."""
    planned = [each for each in problem.options.servers if each <= leaves]
    balances = ((problem.balance(server_of_endpoint(placement, leaves, each), each), each) for each in planned)
    return max(balances, default=(1.0, 1))


def _check_balance(problem: Problem, placement: Parts, leaves: int) -> None:
    """Raise Infeasible if the load is not balanced on a planned number of servers."""
    if _overload(problem, placement, leaves) <= 0:
        return
    reached, servers = _worst_balance(problem, placement, leaves)
    server = server_of_endpoint(placement, leaves, servers)
    fullest = problem.server_loads(server, servers).argmax()
    endpoint = int(np.argmax(np.where(server == fullest, problem.search_load(placement < 0), -1.0)))
    reason = f"and the endpoints beside it overload one of {servers} servers, with {leaves} partitions"
    raise Infeasible(problem.instance.endpoints[endpoint], reason, reached - 1)


def choose_partitions(load: Floats, options: PlanOptions) -> int:
    """Return the present number of partitions if the planned servers share it evenly, else that of a new topic.

    Within ``partition_bounds``; a topic only grows.
    """
    present, servers = options.current_partitions, options.servers
    together = servers if len(set(servers)) > 1 else ()
    fewest, most = partition_bounds(load, servers, present)
    if fewest == present and is_even_enough(present, servers, together):
        return present
    return min(choose_count(options.sizes or servers, fewest, most, present, together), most)


def partition_bounds(load: Floats, servers: Sequence[int], least: int) -> tuple[int, int]:
    """Return the fewest partitions by equations 6 and 9 of the thesis, and the most by equations 10 and 11.

    Equation 9 in CPU time: ``load`` is what each endpoint costs a server, in microseconds per second, and a partition
    has one consumer, with one core. A topic only grows: ``least``, its present partitions, wins over all bounds.
    """
    workload = solver.Workload(float(load.sum()), CORE_US_PER_S, consumers=max(servers), replicas=SMALLEST_CLUSTER)
    bounds = solver.solve(workload, SMALLEST_CLUSTER)
    most = max(least, min(bounds.most or MAX_PARTITIONS, MAX_PARTITIONS))
    return min(max(least, bounds.fewest), most), most


def warm_start(problem: Problem, current: Parts, *, uneven: bool) -> Parts:
    """Return a placement near ``current``, with as many partitions: int32[E].

    Moves endpoints off overloaded servers first, if the load is ``uneven``, then those whose gain pays for their move
    within the horizon, then changes the hot set; all within the movement budget. An imbalance that may be chance does
    not grow; moves against it would use up the budget of those that gain. The repartitioning model of Catalyurek et al.
    (JPDC'09), searched greedily.
    """
    instance, options, costs = problem.instance, problem.options, problem.costs
    cost = migration_cost(instance)
    budget = np.inf if options.movement_budget is None else options.movement_budget * float(cost.sum())
    # Value of a saved connection, in the unit of the weights of sets.
    saved = costs.connection_us_per_s * 2.0**instance.shift / instance.seconds
    price = costs.moved_us / options.horizon_s / saved if saved > 0 else np.inf
    movement = Movement(current, cost, budget, price)
    part = _cool_surplus(problem, movement)
    least = 1.0 if uneven else _worst_balance(problem, current, options.current_partitions)[0]
    if options.hot_budget <= 0:
        return _refine_within_budget(problem, part, movement, least)
    part = _refine_within_budget(problem, part, replace(movement, budget=budget * (1 - HOT_BUDGET_SHARE)), least)
    # Endpoints that have already moved may become hot at no further cost.
    move_cost = np.where(part == current, cost, 0.0)
    left, bound = budget - movement.spent(part), max(1 + options.epsilon, least) * (1 + ROUNDING)
    for share in HOT_SHARES if np.isfinite(left) else HOT_SHARES[:1]:
        is_hot = hot.choose(problem, part, options.current_partitions, move_cost, share * left)
        heated = _refine_within_budget(problem, np.where(is_hot, -1, part).astype(np.int32), movement, least)
        if _worst_balance(problem, heated, options.current_partitions)[0] <= bound:
            return heated
    # With new hot endpoints the load of servers is less even, and the rest of the budget cannot mend that.
    return _refine_within_budget(problem, part, movement, least)


def _refine_within_budget(problem: Problem, part: Parts, movement: Movement, least: float) -> Parts:
    """Refine; uneven leaves cause no moves as long as all planned numbers of servers are balanced.

    A server may have ``least`` times the mean load, or more if the options allow it.
    """
    options, load = problem.options, problem.search_load(part < 0)
    problem = replace(problem, options=replace(options, epsilon=max(options.epsilon, least - 1)))
    leaves = options.current_partitions
    fullest = float(part_loads(load, part, leaves).max())
    views = [
        view if view.servers in options.servers else replace(view, max_load=np.maximum(view.max_load, fullest))
        for view in search_views(problem, load, part < 0, leaves, part)
    ]
    return _balance_hot(problem, load, perturb(problem.backend, load, part, views, movement), leaves, movement)


def _cool_surplus(problem: Problem, movement: Movement) -> Parts:
    """Return the current placement with no more hot endpoints than the budget of added load allows."""
    cool = _surplus(problem, movement.start < 0)
    order = np.flatnonzero(cool)
    cool[order[np.cumsum(movement.cost[order]) > movement.budget]] = False
    return hot.cool(problem.backend, movement.start, problem.options.current_partitions, cool)


def _surplus(problem: Problem, is_hot: Mask) -> Mask:
    """Return the hot endpoints, by descending rate, without which the others fit the budget of added load."""
    cool = np.zeros(is_hot.size, np.bool_)
    for each in _descending(problem.instance.expected, is_hot):
        if problem.added_load(is_hot & ~cool) <= problem.options.hot_budget:
            break
        cool[each] = True
    return cool


def _descending(rate: Floats, which: Mask) -> Sequence[int]:
    rows = np.flatnonzero(which)
    ordered: list[int] = rows[np.argsort(-rate[rows], kind="stable")].tolist()
    return ordered
