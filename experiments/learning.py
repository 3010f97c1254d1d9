"""``make bench-learning``: whether plans hold for clients that they were not made from, and come to rest.

Generalisation: plans from few clients of A (communities) and of a population without structure
(tests/support/instances.py), against placement by hash. The gain that is reported, that of clients held out, is
compared with the gain for 20,000 others of the same population. Stationary traffic: a plan from some hours, then more
hours with Poisson counts of updates and 5 % of the subscriptions to move, each of which is judged by a plan from those
before, as ``diem autoplan`` does. Clients stay for the whole hour or for a part of it, each for another time, and all
are new in every hour or some return. Change: from then on a third of the clients have other interests, or a third of
the endpoints have each other's subscribers; the last placement is compared with
a plan from these hours alone, for other clients. Deterministic.
``QUICK=1`` has fewer clients and hours.
"""

import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any, Final

import numpy as np

from experiments.picture import Bar, Group, Row, draw
from learning.costs import DEFAULT
from learning.placement.backend import Backend
from learning.placement.baselines import murmur2
from learning.placement.blocks import Parts
from learning.placement.instance import Instance, split_time
from learning.placement.objective import balance, fan_out, loads, server_of_endpoint
from learning.placement.options import MARGIN, PlanOptions
from learning.placement.planner import PlanResult, plan
from learning.planning.traffic_input import DECAY, MAX_WINDOWS, enough
from tests.bench.report import Report
from tests.load.bench import Goal, write
from tests.support import instances
from tests.support.commandline import parser
from tests.support.instances import Population, Recipe, Timeline, drifted, exchanged, population, windows
from tests.support.size import sized

_SMALL: Final = {"endpoints": 300, "clients": 1500, "communities": 10}
A, OTHER = (sized(recipe, recipe, replace(recipe, **_SMALL)) for recipe in (instances.A, instances.OTHER))
NO_STRUCTURE: Final = Recipe(endpoints=1000, clients=sized(100_000, 100_000, 4000), mixing=1.0, zipf=0.0, seed=5)
POINTS: Final = 0.10
"""Largest difference between the reported gain and that of other clients."""
OTHERS: Final = sized(20_000, 20_000, 2000)
"""Clients for whom a plan is evaluated that it was not made from."""
NEW: Final = sized(150_000, 150_000, 6000)
"""Clients of a population of which each hour has new ones."""
HOURS: Final = sized(20, 4, 2)
SERVERS, PARTITIONS = sized((16, 48), (16, 48), (4, 8))
MOVEMENT: Final = 0.05
CHANGED: Final = 1 / 3
"""Share of the clients with other interests."""
STAYS: Final = {"": None, " for 20 minutes": 1200.0, " for 5 minutes": 300.0}
"""Mean seconds for which clients stay; None: the whole hour."""
RETURNING: Final = 0.3
"""Share of the clients of an hour who come back in the next one, where they do not stay."""
PATIENCE: Final = 3
"""Hours within which a plan is to be applied after a change."""
NEAR: Final = 1.05
"""Fan-out in the end, as a multiple of that of a plan from the changed traffic alone."""


def generalisation(base: Population, servers: int, clients: int, stay_s: float | None) -> dict[str, float]:
    """Plan from ``clients`` of a population against the hash, and return the gains: shares of the fan-out."""
    timelines = (Timeline(clients=each, session_s=stay_s, seed=each) for each in (clients, OTHERS))
    made, others = (next(windows(base, each, 1)) for each in timelines)
    current = murmur2(made.endpoints, servers)
    options = PlanOptions(servers=(servers,), partitions=servers, current_partitions=servers, hot_budget=0.0)
    outcome = plan(made, options, DEFAULT, current)
    figures = outcome.report["servers"][str(servers)]
    backend = Backend(others.blocks(), len(others.endpoints))

    def gain(key: str) -> float:
        # With ample subscribers nobody is held out.
        name = key if key in figures["plan"] else "fan_out"
        return float(1 - figures["plan"][name] / figures["current"][name])

    def mean_fan_out(placement: Parts) -> float:
        return fan_out(backend, placement, servers).mean

    return {
        "pays": float(outcome.pays),
        "gain in the window": gain("fan_out"),
        "gain reported": gain("held_out_fan_out"),
        "gain of others": 1 - mean_fan_out(outcome.placement) / mean_fan_out(current),
        "max/mean load in the window": float(figures["plan"]["max_over_mean_load"]),
        "its standard error": float(outcome.report["candidates"]["new"]["load_error"]),
        "max/mean load of others": balance(loads(others, DEFAULT), outcome.placement, servers),
    }


def learn(earlier: Sequence[Instance], hour: Instance, options: PlanOptions, current: Parts | None) -> PlanResult:
    """Return the plan from earlier hours, judged on the next one."""
    found = [*enough((each, DECAY**age) for age, each in enumerate(reversed(earlier[-MAX_WINDOWS:])))]
    windows, shares = zip(*found, strict=True)
    latest, learnt = split_time(hour, windows, shares)
    return plan(latest, options, DEFAULT, current, learnt=learnt)


def first_plan(hours: Sequence[Instance]) -> Parts:
    """Return the placement for hours with none before."""
    options = PlanOptions(servers=(SERVERS,), partitions=PARTITIONS, margin=MARGIN)
    return learn(hours[:-1], hours[-1], options, None).placement


def decide(earlier: Sequence[Instance], hours: Iterable[Instance], current: Parts) -> tuple[Parts, dict[str, Any]]:
    """Let every hour decide; return the last placement, how many plans were applied, in which hours, and why or not."""
    options = PlanOptions(servers=(SERVERS,), current_partitions=PARTITIONS, movement_budget=MOVEMENT, margin=MARGIN)
    earlier = list(earlier)
    applied: list[int] = []
    fan_outs: list[float] = []
    moved, why, began = 0.0, [], time.process_time()
    for number, hour in enumerate(hours, 1):
        outcome = learn(earlier, hour, options, current)
        earlier.append(hour)
        why.append(outcome.why)
        fan_outs.append(outcome.report["servers"][str(SERVERS)]["current"]["fan_out"])
        if outcome.pays:
            applied.append(number)
            moved, current = moved + _moved(outcome), outcome.placement
    return current, {
        "applied": len(applied),
        "moved": round(moved, 4),
        "fan-out at first": fan_outs[0],
        "fan-out at last": fan_outs[-1],
        "cpu_s": round(time.process_time() - began, 1),
        "hours": applied,
        "why": why,
    }


def hours_of(base: Population, clients: int, stay_s: float | None, seed: int, count: int) -> list[Instance]:
    """Return hours of clients who stay, or come, go and return."""
    returning = RETURNING if stay_s else 0.0
    return [*windows(base, Timeline(clients=clients, returning=returning, session_s=stay_s, seed=seed), count)]


def change(earlier: Sequence[Instance], after: Population, hours: Sequence[Instance], current: Parts) -> dict[str, Any]:
    """Return what is decided in ``hours`` after a change, and others' fan-out then over that of a plan from these."""
    placed, found = decide(earlier, hours, current)
    others = next(windows(after, Timeline(clients=OTHERS, seed=OTHERS), 1))
    backend = Backend(others.blocks(), len(others.endpoints))
    best, reached, before = (
        fan_out(backend, server_of_endpoint(each, PARTITIONS, SERVERS), SERVERS).mean
        for each in (first_plan(hours), placed, current)
    )
    return {**found, "others, over the best plan's": round(reached / best, 4), "before": round(before / best, 4)}


def _moved(outcome: PlanResult) -> float:
    return float(outcome.report["moved"]["plan"]["subscriptions"])


def picture(rows: Mapping[str, Mapping[str, float]], goals: Sequence[Goal]) -> str:
    """Draw the gains reported and those of others, and the plans applied."""
    bounds = {goal.name: goal.goal for goal in goals}

    def gains(row: Mapping[str, float]) -> list[Bar]:
        kinds = ("gain in the window", "gain reported", "gain of others")
        return [Bar({kind: 100 * row[kind]}) for kind in kinds]

    def plans(name: str, row: Mapping[str, float]) -> list[Bar | None]:
        return [Bar({"plans applied": row["applied"]}, bounds.get(name)), Bar({"moved": 100 * row["moved"]}), None]

    made = [Row(name, gains(row)) for name, row in rows.items() if "pays" in row]
    hours = [Row(name, plans(name, row)) for name, row in rows.items() if "applied" in row]
    columns = ("in the window | applied", "reported | moved, %", "of others")
    return draw(
        "Plans learnt from traffic",
        columns,
        [Group("Gain of plans from few clients, % of the fan-out", made), Group(f"Plans of {HOURS} hours", hours)],
    )


def main(argv: Sequence[str] | None = None) -> int:
    parser(__spec__, __doc__, report="build/bench/learning.json and .svg", quick="").parse_args(argv)
    goals: list[Goal] = []
    figures: dict[str, Any] = {}
    rows: dict[str, dict[str, float]] = {}
    samples: dict[str, tuple[int, ...]] = sized(
        {"A": (1000, 5000, 20_000), "no structure": (300, 1000, 3000)},
        {"A": (1000,), "no structure": (300,)},
        {"no structure": (300,)},
    )
    crowds: tuple[int, ...] = sized((5000, 20_000), (5000,), (500,))
    steps = len(STAYS) * (sum(map(len, samples.values())) + 1 + len(crowds))
    with Report(steps) as report, np.errstate(all="raise", under="ignore"):
        a, no_structure = population(replace(A, clients=NEW)), population(NO_STRUCTURE)
        for name, base, servers in (("A", a, SERVERS), ("no structure", no_structure, 8)):
            for clients, (stay, stay_s) in product(samples.get(name, ()), STAYS.items()):
                report.step(f"{clients:,} clients of {name}{stay}")
                found = rows[f"{name}, {clients:,} clients{stay}"] = generalisation(base, servers, clients, stay_s)
                off = abs(found["gain reported"] - found["gain of others"])
                goals.append(Goal(f"{name}, {clients:,} clients{stay}: gain reported", "off", POINTS, round(off, 4)))

        drift = drifted(a, population(replace(OTHER, clients=NEW)), CHANGED, rates=0.0)
        swapped = exchanged(a, CHANGED)
        for (name, base, clients), (stay, stay_s) in product(
            [*(("A", a, each) for each in crowds), ("no structure", no_structure, 300)], STAYS.items()
        ):
            report.step(f"{clients:,} clients of {name}{stay} over {HOURS} hours")
            of, hours = f"{clients:,} clients of {name}{stay}", hours_of(base, clients, stay_s, 3, MAX_WINDOWS + HOURS)
            first = first_plan(hours[:MAX_WINDOWS])
            current, figures[f"stationary, {of}"] = decide(hours[:MAX_WINDOWS], hours[MAX_WINDOWS:], first)
            goals.append(
                Goal(f"stationary, {of}", "applied", max(1, HOURS // 20), figures[f"stationary, {of}"]["applied"])
            )
            if name == "A":
                then = (hours_of(each, clients, stay_s, 7, HOURS) for each in (drift, swapped))
                figures[f"other clients, {of}"] = change(hours, drift, next(then), current)
                found = figures[f"exchanged, {of}"] = change(hours, swapped, next(then), current)
                goals += [
                    Goal(f"exchanged, {of}: first plan", "hours", PATIENCE, min(found["hours"], default=HOURS + 1)),
                    Goal(f"exchanged, {of}: others", "of the best", NEAR, found["others, over the best plan's"]),
                ]
        for name, made in figures.items():
            rows[name] = {each: value for each, value in made.items() if isinstance(value, int | float)}
    report.rows("Plans", rows)
    report.goals(goals)
    path = write("learning", {"rows": rows, "figures": figures}, goals)
    path.with_suffix(".svg").write_text(picture(rows, goals), encoding="utf-8")
    print(f"written: {path} and {path.with_suffix('.svg')}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
