"""``make bench-placement``: quality and time of plans on synthetic traffic, compared with alternatives.

Instances (tests/support/instances.py): A has 10,000 endpoints, 100,000 clients and communities, drift replaces 15 % of
these clients; Z has no communities, only Zipf's popularity; P is the demo page, T has templates of series for zones, R
the pairs of users and items of a file (``--pairs FILE``), else made ones of the shape of Last.fm 2k; B is ten times as
large as A. "Spark" plans B from single subscriptions, where Spark is installed. "Capacity" plans 1,000 random
populations on servers with limits (experiments/placement_capacity.py). Deterministic but for the times.

Every row has the fan-out, the largest load of a server over the mean, J (docs/placement.md), the fan-out of clients
held out (the method is run again without a fifth of the clients, and evaluated for these) and the CPU time of the first
search. Where Mt-KaHyPar is not installed, its rows are left out.

The report is written after every part, with a picture beside it: ``--only A,R`` measures some parts, and leaves the
others in the report as they are. ``QUICK=1`` leaves out B, and plans A on Spark.
"""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, TypeVar

import numpy as np

from experiments import mt_kahypar, placement_baselines, placement_capacity, placement_spark
from experiments.listeners import listeners, read_pairs
from experiments.picture import Bar, Group, Row, draw
from learning.costs import DEFAULT, Costs
from learning.placement.backend import Backend
from learning.placement.baselines import all_baselines
from learning.placement.blocks import Mask, Parts
from learning.placement.instance import Instance
from learning.placement.objective import connections, fan_out, migration_cost, server_of_endpoint, total_cost
from learning.placement.options import PlanOptions, Problem
from learning.placement.planner import PlanResult, place, plan
from learning.placement.relabel import relabel
from tests.bench.report import Report
from tests.load.bench import FOLDER, Goal, read, write
from tests.support import instances
from tests.support.commandline import parser
from tests.support.instances import OTHER, A, B, dashboards, drifted, page, population
from tests.support.size import sized

T = TypeVar("T")
WRITTEN: Final = FOLDER / "placement.json"
Z: Final = sized(instances.Z, instances.Z, replace(instances.Z, endpoints=400, clients=500, zipf=0.3))
COSTS: Final = Costs(update_us=1.0, delivery_us=1.0, connection_us_per_s=1000.0)
"""Expensive connections, so that the hot set uses its whole budget."""
HOT: Final = 0.005
DRIFT: Final = 0.15
MOVED: Final = 0.01
POPULATIONS, MISSED = sized(1000, 100, 3), 0.01
HELD_OUT: Final = 0.2
EVEN: Final = 1.05 + 1e-6
REFERENCE: Final = "mt_kahypar"
RECIPES: Final = {
    "A": {"A": asdict(A), "drift": asdict(OTHER)},
    "Z": {"Z": asdict(Z)},
    "P": {"clients": 20_000, "seed": 4},
    "T": {"clients": 50_000, "seed": 6},
    "R": {"seed": 7},
    "B": {"B": asdict(B)},
    "Capacity": {"populations": POPULATIONS},
    "Spark": sized({"B on Spark": asdict(B)}, {"A on Spark": asdict(A)}, {"Z on Spark": asdict(Z)}),
}
"""Parts of the benchmark, in their order, with what their instances are made from."""


@dataclass(frozen=True)
class Planned:
    """A plan, and the problem that it solves: for all clients, or without those held out."""

    problem: Problem
    result: PlanResult

    @property
    def is_hot(self) -> Mask:
        """Hot endpoints of the plan."""
        return self.result.placement < 0

    def servers(self, placement: Parts, servers: int) -> Parts:
        """Return the server of every endpoint of a placement on as many partitions, negative for hot ones."""
        return server_of_endpoint(placement, self.result.partitions, servers)


Solve = Callable[[Planned, int], Parts]
"""Return a server for every endpoint, among a number of them: a method to compare a plan with."""
Methods = Callable[[Planned, Parts | None], Iterator[tuple[str, Solve]]]
"""Yield methods and their names, for a plan and the current placement."""


@dataclass
class Bench:
    """One run: rows for people, figures and goals for the file."""

    rows: dict[str, dict[str, float]] = field(default_factory=dict)
    figures: dict[str, Any] = field(default_factory=dict)
    goals: list[Goal] = field(default_factory=list)

    def planned(
        self, name: str, problem: Problem, compared: "Methods | None" = None, current: Parts | None = None
    ) -> Planned:
        """Compute one plan, and add its figures and those of other methods, by default :func:`methods`."""
        wall = time.monotonic()
        made, cpu_s = timed(partial(find, problem, current))
        wall = time.monotonic() - wall
        used, held_out = problem.split(0.0, HELD_OUT)
        again = find(used, current)
        self.figures[name] = {
            "cpu_s": cpu_s,
            "wall_s": round(wall, 2),
            "seed": problem.options.seed,
            "epsilon": problem.options.epsilon,
            "costs": asdict(problem.costs),
            "sha256": sha256(made.result.placement.tobytes()).hexdigest(),
            **{key: made.result.report[key] for key in ("partitions", "hot", "moved", "candidates")},
            "servers": {str(servers): {} for servers in problem.options.servers},
        }
        kinds: dict[str, tuple[Solve, float | None]] = {"plan": (_by_plan, cpu_s)}
        kinds |= {kind: (solve, None) for kind, solve in (compared or methods)(made, current)}
        for servers in problem.options.servers:
            for kind, (solve, spent) in kinds.items():
                part, own_s = timed(partial(solve, made, servers))
                figures = {**figures_of(problem, part, servers), "cpu_s": own_s if spent is None else spent}
                others = fan_out(held_out.backend, solve(again, servers), servers)
                figures["held_out_fan_out"] = round(others.mean, 5)
                self.figures[name]["servers"][str(servers)][kind] = figures
                self.rows[f"{name}, {servers} servers: {kind}"] = figures
        return made

    def beside_reference(self, name: str, servers: int, bound: float) -> None:
        """Add a goal for the fan-out of a plan over that of Mt-KaHyPar, where it is installed."""
        if mt_kahypar.version() is None:
            return
        ratio = self.row(name, servers)["fan_out"] / self.row(name, servers, REFERENCE)["fan_out"]
        self.figures[name]["fan_out_over_mt_kahypar"] = round(ratio, 4)
        self.goal(f"{name}: fan-out over Mt-KaHyPar's", "x", bound, ratio)

    def row(self, name: str, servers: int, kind: str = "plan") -> Mapping[str, float]:
        """Return the figures of a placement that are one number each."""
        found: Mapping[str, object] = self.figures[name]["servers"][str(servers)][kind]
        return {column: value for column, value in found.items() if isinstance(value, int | float)}

    def goal(self, name: str, unit: str, bound: float, measured: float) -> None:
        """Add a goal with its measured value."""
        self.goals.append(Goal(name, unit, bound, round(measured, 4)))

    def judge(self, name: str, servers: int, fan_out_goal: float) -> None:
        """Add goals for fan-out and balance of a plan on ``servers``."""
        figures = self.row(name, servers)
        self.goal(f"{name}, {servers} servers: fan-out", "servers", fan_out_goal, figures["fan_out"])
        self.goal(f"{name}, {servers} servers: max/mean load", "x", EVEN, figures["max_over_mean_load"])


def figures_of(problem: Problem, part: Parts, servers: int) -> dict[str, float]:
    """Return fan-out, balance and J of a placement on ``servers``; negative parts are hot."""
    found, hot = fan_out(problem.backend, part, servers), part < 0
    j_us = total_cost(problem.instance, problem.costs, connections(problem.instance, found), hot, servers)
    return {
        "fan_out": round(found.mean, 5),
        "fan_out_p99": found.p99,
        "max_over_mean_load": round(problem.balance(part, servers), 5),
        "j_ms_per_s": round(j_us / 1000, 3),
    }


def timed(run: Callable[[], T]) -> tuple[T, float]:
    """Return the result, and the CPU time in seconds."""
    before = time.process_time()
    result = run()
    return result, round(time.process_time() - before, 2)


def find(problem: Problem, current: Parts | None) -> Planned:
    """Plan; that without some of the clients is the caller's."""
    options = replace(problem.options, hold_out=0.0)
    return Planned(problem, plan(problem.instance, options, problem.costs, current, problem.backend))


def _by_plan(made: Planned, servers: int) -> Parts:
    return made.servers(made.result.placement, servers)


def alone(_made: Planned, _current: Parts | None) -> Iterator[tuple[str, Solve]]:
    """Yield nothing: the plan is compared with nothing."""
    yield from ()


def methods(made: Planned, current: Parts | None) -> Iterator[tuple[str, Solve]]:
    """Yield what a plan is compared with: placements without a plan, and others with its hot set."""
    problem = made.problem
    if current is not None:
        yield "current", lambda _, servers: server_of_endpoint(current, problem.options.current_partitions, servers)
    load = problem.load(np.zeros(problem.backend.endpoints, np.bool_))
    unlearnt = all_baselines(problem.instance.endpoints, load, made.result.partitions, problem.options.seed)
    for kind, placement in unlearnt.items():
        yield kind, partial(_unlearnt, placement)
    if made.is_hot.any():
        yield "murmur2, same hot set", partial(_with_hot_set, unlearnt["murmur2"])
    if not made.is_hot.all():
        yield "shp2", partial(_solved, placement_baselines.shp2)
        yield "freight", partial(_solved, placement_baselines.freight)


def with_reference(made: Planned, current: Parts | None) -> Iterator[tuple[str, Solve]]:
    """Yield :func:`methods`, and Mt-KaHyPar where it is installed."""
    yield from methods(made, current)
    if mt_kahypar.version() is not None:
        yield REFERENCE, _reference


def _unlearnt(placement: Parts, made: Planned, servers: int) -> Parts:
    return made.servers(placement, servers)


def _with_hot_set(placement: Parts, made: Planned, servers: int) -> Parts:
    return made.servers(np.where(made.is_hot, -1, placement).astype(np.int32), servers)


def _solved(solve: Callable[..., Parts], made: Planned, servers: int) -> Parts:
    problem = made.problem
    return solve(problem.backend, problem.load(made.is_hot), servers, problem.options.epsilon)


def _reference(made: Planned, servers: int) -> Parts:
    part = mt_kahypar.solve(made.problem, made.problem.load(made.is_hot), servers)
    assert part is not None
    return part


def problem_of(instance: Instance, costs: Costs = COSTS, **options: Any) -> Problem:
    """Return the problem of a plan."""
    backend = Backend(instance.blocks(), len(instance.endpoints))
    return Problem(instance, backend, costs, PlanOptions(**options))


def part_a(bench: Bench) -> None:
    """A on 16 servers: plain, for several numbers of servers, with a hot set, and after drift."""
    before = population(A)
    instance = before.instance()
    problem = problem_of(instance, servers=(16,), partitions=16, hot_budget=0.0)
    placed = bench.planned("A", problem, with_reference)
    bench.beside_reference("A", 16, 1.02)
    bench.judge("A", 16, 2.70)
    bench.goal("A: CPU time of the driver", "s", 5.0, bench.figures["A"]["cpu_s"])
    name = "A for 4, 8 and 16"
    bench.planned(name, problem_of(instance, servers=(4, 8, 16), hot_budget=0.0, current_partitions=24))
    bench.judge(name, 16, 2.70)
    _hot(bench, "A with hot endpoints", instance, 1.95)
    _hot(bench, "A with hot endpoints, built-in costs", instance, 1.95, DEFAULT)
    after = drifted(before, population(OTHER), DRIFT).instance()
    _drift(bench, after, placed.result.placement)


def _hot(bench: Bench, name: str, instance: Instance, bound: float, costs: Costs = COSTS) -> None:
    """With a hot set that adds at most half a percent of the load."""
    bench.planned(name, problem_of(instance, costs, servers=(16,), partitions=16, hot_budget=HOT))
    bench.judge(name, 16, bound)
    bench.goal(f"{name}: added load", "of the load", HOT, bench.figures[name]["hot"]["added_load"])


def _drift(bench: Bench, instance: Instance, current: Parts) -> None:
    """Replace clients by others with other interests: A's placement is kept, adapted, or computed anew."""
    options: dict[str, Any] = {"servers": (16,), "hot_budget": 0.0}
    name = "A after drift, warm start"
    warm = problem_of(instance, current_partitions=16, movement_budget=MOVED, **options)
    bench.planned(name, warm, current=current)
    moved = bench.figures[name]["moved"]["plan"]["subscriptions"]
    bench.rows[f"{name}, 16 servers: plan"] |= {"moved": moved}
    bench.goal("drift: max/mean load after the warm start", "x", EVEN, bench.row(name, 16)["max_over_mean_load"])
    bench.goal("drift: subscriptions moved", "share", MOVED, moved)
    name = "A after drift, made anew"
    again = bench.planned(name, problem_of(instance, partitions=16, **options), alone).result.placement
    cost = migration_cost(instance)
    renumbered = relabel(again, current, 16, (16,), cost)
    shares = [round(float(cost[each != current].sum() / cost.sum()), 4) for each in (again, renumbered)]
    bench.figures[name]["moved"] = dict(zip(("as numbered by the search", "renumbered"), shares, strict=True))
    bench.rows[f"{name}, 16 servers: plan"] |= {"moved": shares[1]}


def part_z(bench: Bench) -> None:
    """Z with a hot set."""
    _hot(bench, "Z with hot endpoints", population(Z).instance(), 2.6)


def part_p(bench: Bench, name: str, instance: Instance) -> None:
    """P or T with the built-in costs: J must be near that of the best hot set that is a prefix by subscribers."""
    problem = problem_of(instance, DEFAULT, servers=(8,), current_partitions=24)
    made = bench.planned(name, problem)
    best = min(hot_candidates(made))
    found = problem.cost(made.result.placement, made.result.partitions)
    bench.figures[name]["j_us_per_s"] = {"plan": found, "best candidate": best}
    bench.goal(f"{name}: J over the best candidate's", "x", 1.05, found / best)


def hot_candidates(made: Planned) -> Iterator[float]:
    """Yield J with the hot sets within the budget that are prefixes by subscribers; the rest is placed for each."""
    problem, partitions = made.problem, made.result.partitions
    order = np.argsort(-problem.instance.subscribers, kind="stable")
    for share in (0.02, 0.05, 0.15, 0.3, 0.6, 1.0):
        is_hot = np.zeros(order.size, np.bool_)
        is_hot[order[: round(share * order.size)]] = True
        if problem.added_load(is_hot) <= problem.options.hot_budget:
            yield problem.cost(place(problem, is_hot, partitions), partitions)


def part_r(bench: Bench, path: Path | None) -> None:
    """R on 16 servers, without hot endpoints."""
    instance = (listeners() if path is None else read_pairs(path)).instance()
    problem = problem_of(instance, servers=(16,), partitions=16, hot_budget=0.0)
    bench.planned("R", problem, with_reference)
    bench.beside_reference("R", 16, 1.06)


def part_b(bench: Bench) -> None:
    """B as 48 partitions on 48 servers."""
    bench.planned("B", problem_of(population(B).instance(), servers=(48,), partitions=48, hot_budget=0.0))
    bench.judge("B", 48, 2.90)


def part_spark(bench: Bench, before: Mapping[str, Any]) -> None:
    """Plan B (A with ``QUICK=1``, Z with ``SMOKE=1``) from single subscriptions, of which Spark makes the sets.

    ``before`` has the figures of the other parts.
    """
    name, recipe, leaves, bound = sized(("B", B, 48, 2.90), ("A", A, 16, 2.70), ("Z", Z, 16, 16.0))
    found = placement_spark.measured(population(recipe), leaves)
    own, name = before.get(name), f"{name} on Spark"
    bench.figures[name] = found
    bench.rows[f"{name}, {leaves} servers: plan"] = dict(bench.row(name, leaves))
    bench.rows[f"{name}: all processes, machine load {found['machine_load'][1]:.0f}"] = found["spent"]
    bench.judge(name, leaves, bound)
    if own is not None:
        bench.goal(f"{name}: plans that differ from the one without Spark", "", 0, found["sha256"] != own["sha256"])
    bench.goal(f"{name}: time from start to end", "s", 60, found["spent"]["wall_s"])
    bench.goal(f"{name}: memory of all processes", "GiB", 3, found["spent"]["peak_gib"])


def part_capacity(bench: Bench) -> None:
    """Random populations on servers with limits: what becomes of their plans."""
    count, outcome = POPULATIONS, placement_capacity.Outcome
    each = placement_capacity.outcomes(count, WRITTEN.with_name("placement-capacity.json"), commit() or "")
    names = [name for name, _ in each.values()]
    found = {str(name): names.count(name) for name in outcome}
    cpu_s = round(sum(spent for _, spent in each.values()), 2)
    bench.figures["Capacity"] = {"cpu_s": cpu_s, "servers": {}, "outcomes": found}
    bench.rows |= {f"of {count} populations: {name}": {"plans": number} for name, number in found.items()}
    bench.goal("Capacity: plans above it that are not reported", "", 0, found[outcome.SILENT])
    bench.goal("Capacity: plans above it where one within it exists", "of all", MISSED, found[outcome.MISSED] / count)


def picture(figures: Mapping[str, Any], goals: Sequence[Goal]) -> str:
    """Draw fan-out, balance and J of every placement, with the goals of plans."""
    bounds = {goal.name: goal.goal for goal in goals}
    groups = []
    for name, found in figures.items():
        for servers, placements in found["servers"].items():
            at = f"{name}, {servers} servers"
            goal = {"plan": bounds.get(f"{at}: fan-out")}
            rows = [
                Row(
                    kind,
                    (
                        Bar({"fan-out": row["fan_out"]}, goal.get(kind)),
                        Bar({"largest load": row["max_over_mean_load"]}, EVEN if kind == "plan" else None),
                        Bar({"J": row["j_ms_per_s"]}) if "j_ms_per_s" in row else None,
                    ),
                )
                for kind, row in placements.items()
                if "fan_out_p99" in row
            ]
            groups.append(Group(at, rows))
    columns = ("fan-out: servers per client", "largest load / mean", "J, ms/s")
    return draw("Placements on synthetic traffic", columns, groups)


def commit() -> str | None:
    """Return the commit, with a mark of changes; None outside of a repository."""
    git = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--exclude=*"], capture_output=True, text=True, check=False
    )
    return git.stdout.strip() or None


def circumstances(part: str, path: Path | None) -> dict[str, Any]:
    """Return what the figures of a part depend on: commit, date, machine load, packages, recipes and their seeds."""
    return {
        "commit": commit(),
        "date": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
        "cores": os.cpu_count(),
        "machine_load_before": os.getloadavg(),
        "numpy": np.__version__,
        "mt_kahypar": mt_kahypar.version(),
        "recipe": {"file": path.name} if part == "R" and path is not None else RECIPES[part],
    }


def measure(part: str, bench: Bench, before: Mapping[str, Any], path: Path | None) -> None:
    """Measure one part of :data:`RECIPES`; ``before`` has the figures of those measured before."""
    match part:
        case "A":
            part_a(bench)
        case "Z":
            part_z(bench)
        case "P":
            part_p(bench, part, page().instance())
        case "T":
            part_p(bench, part, dashboards().instance())
        case "R":
            part_r(bench, path)
        case "B":
            part_b(bench)
        case "Capacity":
            part_capacity(bench)
        case _:
            part_spark(bench, before)


def _write(result: dict[str, Any], goals: Sequence[Goal]) -> None:
    write("placement", result, goals)
    WRITTEN.with_suffix(".svg").write_text(picture(result["figures"], goals), encoding="utf-8")


def _parts(text: str) -> list[str]:
    chosen = text.split(",")
    if not set(chosen) <= set(RECIPES):
        raise argparse.ArgumentTypeError(f"parts are {', '.join(RECIPES)}")
    return chosen


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, write build/bench/placement.json and its picture, and print the figures."""
    command = parser(__spec__, __doc__, report="build/bench/placement.json and .svg", quick="leaves out B")
    command.add_argument("--pairs", type=Path, metavar="FILE", help="pairs of user and item: the instance R")
    command.add_argument("--only", type=_parts, metavar="PARTS", help=f"some of {','.join(RECIPES)}")
    given = command.parse_args(argv)
    possible = [part for part in RECIPES if part != "Spark" or placement_spark.possible()]
    left_out = sized(set[str](), {"B"}, {*RECIPES} - {"Z", "Capacity", "Spark"})
    chosen: list[str] = given.only or [part for part in possible if part not in left_out]
    result: dict[str, Any] = {"parts": {}, "figures": {}}
    kept: list[Goal] = []
    if given.only and WRITTEN.exists():
        before = read(WRITTEN)
        result |= {name: getattr(before, name) for name in result}
        kept = [each.goal_of() for each in before.goals]
    bench = Bench()
    with Report(len(chosen)) as report, np.errstate(all="raise", under="ignore"):
        for part in chosen:
            report.step(part)
            around = circumstances(part, given.pairs)
            measure(part, bench, result["figures"], given.pairs)
            result["parts"][part] = {**around, "machine_load_after": os.getloadavg()}
            result["figures"] |= bench.figures
            new = {goal.name for goal in bench.goals}
            _write(result, [*(goal for goal in kept if goal.name not in new), *bench.goals])
    report.rows("Placements", bench.rows)
    report.goals(bench.goals)
    print(f"written: {WRITTEN} and {WRITTEN.with_suffix('.svg')}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
