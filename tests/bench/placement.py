"""``make bench-placement``: quality and time of plans on synthetic traffic, compared with alternatives.

Instances (tests/support/instances.py): A has 10,000 endpoints, 100,000 clients and communities; B is ten times as
large; Z has no communities, only Zipf's popularity; drift replaces 15 % of the clients of A; P is the demo page, T has
templates of series for zones, R (with ``--pairs FILE``) the users and items of a file. Deterministic but for the times.
``QUICK=1`` leaves out B. The last part is on Spark, where it is installed.
"""

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import orjson

from metadata.costs import DEFAULT, Costs
from metadata.placement.backend import NumpyBackend
from metadata.placement.instance import Instance
from metadata.placement.objective import fan_out, server_of_endpoint
from metadata.placement.options import PlanOptions, Problem
from metadata.placement.planner import PlanResult, place, plan
from metadata.placement.report import solve_with_mt_kahypar
from tests.bench import placement_spark
from tests.bench.figures import Goal
from tests.bench.report import Report
from tests.support.commandline import parser
from tests.support.instances import OTHER, A, B, Population, Z, dashboards, drifted, page, population, read_pairs

WRITTEN: Final = Path("build/bench/placement.json")
QUICK: Final = bool(os.environ.get("QUICK"))
COSTS: Final = Costs(update_us=1.0, delivery_us=1.0, connection_us_per_s=1000.0)
"""Expensive connections, so that the hot set uses its whole budget."""
HOT: Final = 0.005
DRIFT: Final = 0.15
MOVED: Final = 0.01
EVEN: Final = 1.05 + 1e-6
NAMES: Final = ("plan", "current", "murmur2", "round_robin", "random", "lpt", "mt_kahypar", "bounds")


@dataclass
class Bench:
    """One run: rows for people, figures and goals for the file."""

    report: Report
    rows: dict[str, dict[str, float]] = field(default_factory=dict)
    figures: dict[str, Any] = field(default_factory=dict)
    goals: list[Goal] = field(default_factory=list)

    def planned(self, name: str, run: Callable[[], PlanResult]) -> PlanResult:
        """Compute one plan, and measure its time."""
        self.report.step(name)
        cpu, wall = time.process_time(), time.monotonic()
        outcome = run()
        spent = {"cpu_s": round(time.process_time() - cpu, 2), "wall_s": round(time.monotonic() - wall, 2)}
        self.figures[name] = {**spent, **outcome.report}
        for servers, figures in outcome.report["servers"].items():
            for each in NAMES:
                if each in figures:
                    known = {key: value for key, value in figures[each].items() if key != "connections"}
                    self.rows[f"{name}, {servers} servers: {each}"] = known
        self.rows[f"{name}: the search itself"] = spent
        return outcome

    def goal(self, name: str, unit: str, bound: float, measured: float) -> None:
        """Add a goal with its measured value."""
        self.goals.append(Goal(name, unit, bound, round(measured, 4)))

    def judge(self, name: str, servers: int, fan_out_goal: float) -> None:
        """Add goals for fan-out and balance of a plan on ``servers``."""
        figures = self.figures[name]["servers"][str(servers)]["plan"]
        self.goal(f"{name}, {servers} servers: fan-out", "servers", fan_out_goal, figures["fan_out"])
        self.goal(f"{name}, {servers} servers: max/mean load", "x", EVEN, figures["max_over_mean_load"])


def plain_a(bench: Bench, instance: Instance) -> PlanResult:
    """A on 16 servers, without hot endpoints; and Mt-KaHyPar, where it is installed."""
    name = "A"
    options = PlanOptions(servers=(16,), partitions=16, hot_budget=0.0)
    outcome = bench.planned(name, lambda: plan(instance, options, COSTS))
    bench.judge(name, 16, 2.70)
    bench.goal("A: CPU time of the driver", "s", 5.0, bench.figures[name]["cpu_s"])
    bench.report.step("Mt-KaHyPar on A")
    problem = Problem(instance, NumpyBackend(instance.blocks(), len(instance.endpoints)), COSTS, options)
    wall = time.monotonic()
    if (part := solve_with_mt_kahypar(problem, problem.load(outcome.placement < 0), 16)) is not None:
        found = fan_out(problem.backend, part, 16)
        bench.figures["A: Mt-KaHyPar"] = {"fan_out": found.mean, "wall_s": round(time.monotonic() - wall, 2)}
        bench.rows["A, 16 servers: mt_kahypar"] = {"fan_out": found.mean, "fan_out_p99": found.p99}
        ours = bench.figures[name]["servers"]["16"]["plan"]["fan_out"]
        bench.goal("A: fan-out over Mt-KaHyPar's", "x", 1.05, ours / found.mean)
    return outcome


def several(bench: Bench, instance: Instance) -> None:
    """A planned for 4, 8 and 16 servers at the same time; the number of partitions is chosen."""
    name = "A for 4, 8 and 16"
    options = PlanOptions(servers=(4, 8, 16), hot_budget=0.0, current_partitions=24)
    bench.planned(name, lambda: plan(instance, options, COSTS))
    bench.judge(name, 16, 2.70)


def hot(bench: Bench, name: str, instance: Instance, bound: float) -> None:
    """With a hot set that adds at most half a percent of the load."""
    options = PlanOptions(servers=(16,), partitions=16, hot_budget=HOT)
    bench.planned(name, lambda: plan(instance, options, COSTS))
    bench.judge(name, 16, bound)
    bench.goal(f"{name}: added load", "of the load", HOT, bench.figures[name]["hot"]["added_load"])


def page_and_dashboards(bench: Bench) -> None:
    """P and T with the built-in costs: J must be near that of the best hot set, where that is a prefix or all."""
    for name, instance in (("P", page().instance()), ("T", dashboards().instance())):
        options = PlanOptions(servers=(8,), current_partitions=24)
        outcome = bench.planned(name, partial(plan, instance, options, DEFAULT))
        problem = Problem(instance, NumpyBackend(instance.blocks(), len(instance.endpoints)), DEFAULT, options)
        best = min(hot_candidates(problem, outcome))
        found = problem.cost(outcome.placement, outcome.partitions)
        bench.figures[name]["j_us_per_s"] = {"plan": found, "best candidate": best}
        bench.goal(f"{name}: J over the best candidate's", "x", 1.05, found / best)


def hot_candidates(problem: Problem, outcome: PlanResult) -> Iterator[float]:
    """Yield J with the hot sets within the budget that are prefixes by subscribers; the rest is placed for each."""
    order = np.argsort(-problem.instance.subscribers, kind="stable")
    for share in (0.02, 0.05, 0.15, 0.3, 0.6, 1.0):
        is_hot = np.zeros(order.size, np.bool_)
        is_hot[order[: round(share * order.size)]] = True
        if problem.added_load(is_hot) <= problem.options.hot_budget:
            yield problem.cost(place(problem, is_hot, outcome.partitions), outcome.partitions)


def pairs_of_file(bench: Bench, path: Path) -> None:
    """R: users and items of a file on 16 servers, without hot endpoints, and Mt-KaHyPar where it is installed."""
    instance = read_pairs(path).instance()
    options = PlanOptions(servers=(16,), partitions=16, hot_budget=0.0, reference=True)
    bench.planned("R", lambda: plan(instance, options, COSTS))


def drift(bench: Bench, before: Population, current: PlanResult) -> None:
    """Replace clients by others with other interests: A's placement is kept, adapted, or computed anew."""
    instance = drifted(before, population(OTHER), DRIFT).instance()
    options = PlanOptions(servers=(16,), current_partitions=16, hot_budget=0.0, movement_budget=MOVED)
    name = "A after drift, warm start"
    bench.planned(name, lambda: plan(instance, options, COSTS, current.placement))
    figures = bench.figures[name]
    bench.goal("drift: max/mean load after the warm start", "x", EVEN, _of_plan(figures, "max_over_mean_load"))
    bench.goal("drift: subscriptions moved", "share", MOVED, figures["moved"]["plan"]["subscriptions"])
    free = PlanOptions(servers=(16,), partitions=16, hot_budget=0.0)
    again = bench.planned("A after drift, made anew", lambda: plan(instance, free, COSTS))
    moved = server_of_endpoint(again.placement, 16, 16) != current.placement
    share = float(instance.subscribers[moved].sum() / instance.subscribers.sum())
    bench.figures["A after drift, made anew"]["moved"]["plan"]["subscriptions"] = round(share, 4)


def _of_plan(figures: dict[str, Any], what: str) -> float:
    return float(figures["servers"]["16"]["plan"][what])


def large(bench: Bench) -> None:
    """B as 48 partitions on 48 servers."""
    name = "B"
    instance = population(B).instance()
    options = PlanOptions(servers=(48,), partitions=48, hot_budget=0.0)
    bench.planned(name, lambda: plan(instance, options, COSTS))
    bench.judge(name, 48, 2.90)


def on_spark(bench: Bench) -> None:
    """Plan B (A with ``QUICK=1``) on Spark, from single subscriptions: its sets are never in one process."""
    name, recipe, leaves, bound = ("A on Spark", A, 16, 2.70) if QUICK else ("B on Spark", B, 48, 2.90)
    bench.report.step(name)
    found = placement_spark.measured(population(recipe), leaves)
    bench.figures[name] = found
    plan_of = found["servers"][str(leaves)]["plan"]
    bench.rows[f"{name}, {leaves} servers: plan"] = {each: plan_of[each] for each in ("fan_out", "max_over_mean_load")}
    bench.rows[f"{name}: all processes, machine load {found['machine_load'][1]:.0f}"] = found["spent"]
    bench.judge(name, leaves, bound)
    bench.goal(f"{name}: time from start to end", "s", 90, found["spent"]["wall_s"])
    bench.goal(f"{name}: memory of all processes", "GiB", 6, found["spent"]["peak_gib"])


def main(argv: Sequence[str] | None = None) -> int:
    command = parser(__spec__, __doc__, report="build/bench/placement.json", quick="leaves out B")
    command.add_argument("--pairs", type=Path, metavar="FILE", help="pairs of user and item: the instance R")
    pairs: Path | None = command.parse_args(argv).pairs
    WRITTEN.parent.mkdir(parents=True, exist_ok=True)
    spark = placement_spark.possible()
    with Report(11 - QUICK + spark + (pairs is not None)) as report, np.errstate(all="raise", under="ignore"):
        bench = Bench(report)
        report.step("making A and Z")
        population_a = population(A)
        a, z = population_a.instance(), population(Z).instance()
        placed = plain_a(bench, a)
        several(bench, a)
        hot(bench, "A with hot endpoints", a, 1.95)
        hot(bench, "Z with hot endpoints", z, 2.6)
        drift(bench, population_a, placed)
        page_and_dashboards(bench)
        if pairs is not None:
            pairs_of_file(bench, pairs)
        if not QUICK:
            large(bench)
        if spark:
            on_spark(bench)
    report.rows("Placements", bench.rows)
    report.goals(bench.goals)
    result = {"figures": bench.figures, "goals": [each.as_json() for each in bench.goals]}
    WRITTEN.write_bytes(orjson.dumps(result, option=orjson.OPT_INDENT_2 | orjson.OPT_SERIALIZE_NUMPY))
    print(f"written: {WRITTEN}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
