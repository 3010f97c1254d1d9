"""Part "Capacity" of ``make bench-placement``: plans of random populations of skewed clients on servers with limits.

Each population has communities of very different sizes, sets of Pareto-distributed numbers of clients, and rates that
fall with the number of subscribers; its servers accept 1.1 to 2.5 times an even share of all clients. Where a plan has
a server above a limit, HiGHS looks for a placement that has none (:func:`exists`).
"""

import json
import time
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

import numpy as np
from scipy import optimize, sparse  # type: ignore[import-untyped]

from learning.costs import DEFAULT, SERVER_LIMITS
from learning.placement import capacity
from learning.placement.backend import Backend
from learning.placement.baselines import Infeasible, murmur2
from learning.placement.blocks import Block, Parts
from learning.placement.instance import Instance
from learning.placement.objective import ROUNDING, loads, server_of_leaf
from learning.placement.options import MARGIN, PlanOptions, Problem
from learning.placement.planner import plan
from learning.sizing.even import choose_count
from metadata.plans.plan import overfull
from tests.support.brief_search import brief_search

SOLVER_S: Final = 20.0
"""Time for HiGHS to find a placement, or to prove that there is none."""


class Outcome(StrEnum):
    """What became of the plan of a population."""

    FITS = "within, also after a loss"
    FITS_NOW = "within, but after a loss, which it says"
    UNEVEN = "refused: loads uneven"
    NONE = "refused: HiGHS proves that none is within"
    UNDECIDED = "refused: HiGHS finds none within"
    MISSED = "refused, though HiGHS finds one within"
    SILENT = "above, unreported"


@dataclass(frozen=True)
class Case:
    """A population on servers with limits."""

    instance: Instance
    options: PlanOptions
    current: Parts

    @property
    def problem(self) -> Problem:
        """The problem of its plan."""
        backend = Backend(self.instance.blocks(), len(self.instance.endpoints))
        return Problem(self.instance, backend, DEFAULT, self.options)


def case(seed: int) -> Case:
    """Return a random population of skewed clients, and the limits of its servers."""
    rng = np.random.default_rng(seed)
    endpoints, servers, communities = (int(rng.integers(*each)) for each in ((16, 121), (2, 9), (3, 13)))
    home = rng.integers(0, communities, endpoints)
    home[:communities] = np.arange(communities)
    share = rng.permutation(np.arange(1, communities + 1) ** -rng.uniform(0.5, 1.5))
    sets, clients = [], []
    for _ in range(int(rng.integers(30, 121))):
        mine = np.flatnonzero(home == rng.choice(communities, p=share / share.sum()))
        pins = set(rng.choice(mine, int(rng.integers(1, min(mine.size, 6) + 1)), replace=False).tolist())
        sets.append(sorted(pins | ({int(rng.integers(endpoints))} if rng.random() < 0.2 else set())))
        clients.append(int(np.ceil(20 * rng.pareto(1.2) + 1)))
    sizes, count = np.array([len(pins) for pins in sets], np.int32), np.array(clients, np.int64)
    block = Block(np.array([pin for pins in sets for pin in pins], np.int32), sizes, 3600 * count, count)
    subscribers = np.bincount(block.pins, np.repeat(count, sizes), endpoints).astype(np.float64)
    rates = rng.lognormal(0, 1, endpoints) / (1 + subscribers) ** rng.uniform(0, 1.2)
    made = Instance.of([f"/{each:03}" for each in range(endpoints)], rates, subscribers, block, 3600.0)
    accepted = float(np.ceil(count.sum() / servers * rng.uniform(1.1, 2.5)))
    partitions = choose_count((servers,), 12)
    options = PlanOptions(
        (servers,),
        partitions=partitions,
        current_partitions=partitions,
        limits=SERVER_LIMITS._replace(clients=accepted),
        margin=MARGIN,
        hold_out=0.0,
    )
    return Case(made, options, murmur2(made.endpoints, partitions))


def outcome(found: Case) -> Outcome:
    """Plan a population, and classify the plan by what it does and what it reports."""
    problem, options = found.problem, found.options
    try:
        made = plan(found.instance, options, DEFAULT, found.current, problem.backend)
    except Infeasible:
        return Outcome.UNEVEN
    now, left = capacity.overfull(problem, made.placement, made.partitions)
    known = made.report["capacity"]
    if not now:
        lost = known["after_loss"][str(options.servers[0])]
        reported = any(used > known["limits"][name] for name, used in lost.items())
        return (Outcome.FITS_NOW if reported else Outcome.SILENT) if left else Outcome.FITS
    if overfull(made.report) is None or made.pays:
        return Outcome.SILENT
    exists = find(problem, made.placement)
    return Outcome.UNDECIDED if exists is None else Outcome.MISSED if exists else Outcome.NONE


def find(problem: Problem, near: Parts) -> bool | None:
    """Return whether a placement is within the limits of clients, with even loads; None if HiGHS does not know.

    Hot endpoints may be any within their budget. What they take of servers is left out at first: without a solution
    there is none; one that is not within the limits with it is searched again with no hot endpoints, and with those of
    a placement ``near``.
    """
    found = _solve(problem, None)
    if found is None:
        return None
    if not found.size:
        return False
    if _is_within(problem, found):
        return True
    for hot in (np.zeros(near.size, np.bool_), near < 0):
        found = _solve(problem, hot)
        if found is not None and found.size and _is_within(problem, found):
            return True
    return None


def _is_within(problem: Problem, placement: Parts) -> bool:
    options = problem.options
    (servers,) = options.servers
    leaves = options.partitions or servers
    part = server_of_leaf(leaves, servers)[placement]
    even = problem.balance(np.where(placement < 0, -1, part).astype(np.int32), servers)
    return even <= 1 + options.epsilon + ROUNDING and not capacity.overfull(problem, placement, leaves)[0]


def _solve(problem: Problem, hot: Any) -> Parts | None:
    """Return a placement, empty if there is none, None if none was found in time; ``hot`` None: any endpoints are."""
    instance, options, costs = problem.instance, problem.options, problem.costs
    assert options.limits is not None
    (servers,), load = options.servers, loads(instance, costs)
    count, sets = load.size, instance.weight.size
    # x[e, s]: the endpoint is there; h[e]: it is hot; y[c, s] >= x[e, s]: the set needs the server.
    x, h = np.arange(count * servers).reshape(count, servers), count * servers + np.arange(count)
    y = count * (servers + 1) + np.arange(sets * servers).reshape(sets, servers)
    size = count * (servers + 1) + sets * servers
    sizes = np.diff(instance.starts)
    owner = np.repeat(np.arange(sets), sizes)

    def rows(width: int, *entries: tuple[Any, Any, Any]) -> sparse.csr_array:
        triples = [np.broadcast_arrays(*each) for each in entries]
        row, column, value = (np.concatenate([part.ravel() for part in each]) for each in zip(*triples, strict=True))
        return sparse.csr_array((value, (row, column)), shape=(width, size))

    pairs = np.arange(instance.pins.size * servers).reshape(-1, servers)
    met = rows(pairs.size, (pairs, x[instance.pins], 1.0), (pairs, y[owner], -1.0))
    each = np.arange(count)
    once = rows(count, (each[:, None], x, 1.0), (each, h, 1.0))
    of_server, clients = np.arange(servers), instance.weight / instance.seconds
    needed = rows(servers, (of_server[None, :], y, clients[:, None] / options.limits.clients))
    is_hot = np.zeros(count, np.bool_) if hot is None else hot
    consumed = costs.update_us * instance.expected_busy[0]
    mean = float(load.sum()) / servers + float(consumed[is_hot].sum()) * (1 - 1 / servers)
    most = (1 + options.epsilon) * mean - (float(consumed[is_hot].sum()) if hot is not None else 0.0)
    if hot is None:
        most += (1 + options.epsilon) * options.hot_budget * float(load.sum())
    filled = rows(servers, (of_server[None, :], x, load[:, None] / max(most, 1e-300)))
    added = instance.expected * costs.update_us * (servers - 1) / max(float(load.sum()), 1e-300)
    budget = rows(1, (0, h, added / options.hot_budget))
    lower, upper = np.zeros(size), np.ones(size)
    if hot is not None:
        lower[h], upper[h] = hot, hot
    result = optimize.milp(
        np.zeros(size),
        integrality=np.concatenate([np.ones(count * (servers + 1)), np.zeros(sets * servers)]),
        bounds=optimize.Bounds(lower, upper),
        constraints=[(met, -np.inf, 0), (once, 1, 1), (needed, -np.inf, 1), (filled, -np.inf, 1), (budget, -np.inf, 1)],
        options={"time_limit": SOLVER_S},
    )
    if result.x is None:
        return np.zeros(0, np.int32) if result.status == 2 else None  # 2: proved infeasible
    first = np.flatnonzero(np.diff(server_of_leaf(options.partitions or servers, servers), prepend=-1))
    placed = first[result.x[: x.size].reshape(count, servers).argmax(1)]
    return np.where(result.x[h] > 0.5, -1, placed).astype(np.int32)


def outcomes(count: int, kept: Path, version: str) -> dict[str, tuple[str, float]]:
    """Return the outcome of each of the first so many populations, and its CPU time; plans are searched for briefly.

    They are written to the file ``kept`` one by one: a run of the same ``version`` continues one that was ended.
    """
    kept.parent.mkdir(parents=True, exist_ok=True)
    before = json.loads(kept.read_text()) if kept.exists() else {}
    found = before["outcomes"] if before.get("version") == version else {}
    with brief_search():
        for seed in map(str, range(count)):
            if seed not in found:
                started = time.process_time()
                found[seed] = outcome(case(int(seed))), round(time.process_time() - started, 2)
                kept.write_text(json.dumps({"version": version, "outcomes": found}))
    return {seed: found[seed] for seed in map(str, range(count))}
