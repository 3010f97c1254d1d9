"""``make bench-learning``: whether plans hold for clients that they were not made from, and come to rest.

Generalisation: plans from few clients of one hour, or of four, against placement by hash; of populations with
communities, without any (endpoints of different rates still let a plan gain something for all), and without anything to
gain (equal rates). The gain told, with its error, is compared with that of 20,000 others of the same population, over
many seeds. Stationary traffic: a plan from some hours, then more hours with Poisson counts of updates and 5 % of the
subscriptions to move, each of which is judged by a plan from those before, as ``diem autoplan`` does. Clients stay for
the whole hour or for a part of it, each for another time, and all are new in every hour or some return. Change: from
then on a third of the clients have other interests, or a third of the endpoints have each other's subscribers; the last
placement is compared with a plan from these hours alone, for other clients. Samples: plans from the sets of a part of
the clients (ADR 20), for all of them. Deterministic.
``QUICK=1`` has fewer clients and seeds.
"""

import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any, Final

import numpy as np

from deploy.terminal import amount
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
from tests.support.instances import Population, Recipe, Timeline, drifted, exchanged, population, sampled, windows
from tests.support.size import sized

_MEDIUM: Final = {"endpoints": 2000, "clients": 20_000, "communities": 50}
_SMALL: Final = {"endpoints": 300, "clients": 1500, "communities": 10}
A, OTHER = (
    sized(recipe, replace(recipe, **_MEDIUM), replace(recipe, **_SMALL)) for recipe in (instances.A, instances.OTHER)
)
COMMUNITIES: Final = Recipe(endpoints=1000, clients=sized(100_000, 100_000, 4000), communities=25, seed=5)
NO_STRUCTURE: Final = replace(COMMUNITIES, communities=250, mixing=1.0, zipf=0.0)
POINTS: Final = 0.04
"""Largest difference between the gain told and that of other clients, in :data:`USUALLY` of the seeds."""
USUALLY: Final = 0.95
SEEDS: Final = sized(40, 20, 2)
LEARNING: Final = 8
"""Servers, and partitions, of plans from few clients."""
OTHERS: Final = sized(20_000, 20_000, 2000)
"""Clients for whom a plan is evaluated that it was not made from."""
NEW: Final = sized(150_000, 150_000, 6000)
"""Clients of a population of which each hour has new ones."""
HOURS: Final = sized(20, 20, 2)
TIMELINES: Final = sized(3, 2, 1)
"""Seeds of the hours that are decided upon."""
SERVERS, PARTITIONS = sized((16, 48), (8, 24), (4, 8))
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
SAMPLES: Final = sized((1, 2, 3, 4), (1, 2, 3, 4), (1,))
"""Numbers of halvings of the clients."""


def generalisation(others: Backend, hours: Sequence[Instance]) -> dict[str, float]:
    """Plan from hours of a population against the hash; return the gains as shares of the fan-out by hash."""
    options = PlanOptions(servers=(LEARNING,), partitions=LEARNING, current_partitions=LEARNING, hot_budget=0.0)
    current = murmur2(hours[0].endpoints, LEARNING)
    if len(hours) > 1:
        outcome = learn(hours[:-1], hours[-1], options, current)
    else:
        outcome = plan(hours[0], options, DEFAULT, current)
    figures, candidates = outcome.report["servers"][str(LEARNING)], dict(outcome.report["candidates"])
    before = candidates.pop("current")["cost_us_per_s"]
    moves = min(each["moves_us_per_s"] for each in candidates.values())
    truth = 1 - fan_out(others, outcome.placement, LEARNING).mean / fan_out(others, current, LEARNING).mean
    told, error = relative(outcome, "us_per_s"), relative(outcome, "error")
    return {
        "gain in the window": 1 - figures["plan"]["fan_out"] / figures["current"]["fan_out"],
        "gain told": told,
        "its standard error": error,
        "gain of others": truth,
        "off": abs(told - truth),
        "within the points": float(abs(told - truth) <= POINTS),
        "others' gain in two errors": float(abs(told - truth) <= 2 * error),
        "0 in two errors": float(abs(told) <= 2 * error),
        "pays": float(outcome.pays),
        "pays for nothing": float(outcome.pays and truth * before <= moves),
    }


def relative(outcome: PlanResult, name: str) -> float:
    """Return a figure of what a plan saves as a share of the cost that a placement decides."""
    return float(outcome.report["saves"][name] / outcome.report["candidates"]["current"]["cost_us_per_s"])


def of_seeds(base: Population, clients: int, stay_s: float | None, earlier: int) -> dict[str, float]:
    """Return the means of :func:`generalisation` over the seeds, from an hour and so many before."""
    timeline = Timeline(clients=OTHERS, session_s=stay_s, seed=OTHERS)
    others = next(windows(base, timeline, 1))
    backend = Backend(others.blocks(), len(others.endpoints))
    found = [generalisation(backend, hours_of(base, clients, stay_s, seed, earlier + 1)) for seed in range(SEEDS)]
    return {name: float(np.mean([each[name] for each in found])) for name in found[0]}


def of_samples(base: Population) -> dict[str, dict[str, float]]:
    """Return figures of plans from samples of the clients: the fan-out of all over that of a plan from all."""
    whole, found = base.instance(), dict[str, dict[str, float]]()
    backend = Backend(whole.blocks(), len(whole.endpoints))
    current = murmur2(whole.endpoints, SERVERS)
    options = PlanOptions(
        servers=(SERVERS,), partitions=SERVERS, current_partitions=SERVERS, hot_budget=0.0, hold_out=0.0
    )
    for halvings in (0, *SAMPLES):
        began = time.process_time()
        outcome = plan(sampled(base, halvings), options, DEFAULT, current)
        found[f"A, a sample of 1 in {2**halvings} clients"] = {
            "cpu_s": round(time.process_time() - began, 1),
            "fan-out": fan_out(backend, outcome.placement, SERVERS).mean,
            "max/mean load": balance(loads(whole, DEFAULT), outcome.placement, SERVERS),
            "standard error": relative(outcome, "error"),
        }
    of_all = next(iter(found.values()))["fan-out"]
    for row in found.values():
        row["over the plan from all"] = row["fan-out"] / of_all
    return found


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
    """Draw the gains told and those of others, and the plans applied."""
    bounds = {goal.name: goal.goal for goal in goals}

    def gains(row: Mapping[str, float]) -> list[Bar]:
        kinds = ("gain in the window", "gain told", "gain of others")
        return [Bar({kind: 100 * row[kind]}) for kind in kinds]

    def plans(name: str, row: Mapping[str, float]) -> list[Bar | None]:
        return [Bar({"plans applied": row["applied"]}, bounds.get(name)), Bar({"moved": 100 * row["moved"]}), None]

    made = [Row(name, gains(row)) for name, row in rows.items() if "pays" in row]
    hours = [Row(name, plans(name, row)) for name, row in rows.items() if "applied" in row]
    columns = ("in the window | applied", "told | moved, %", "of others")
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
    even = population(NO_STRUCTURE)
    populations = {
        "communities": population(COMMUNITIES),
        "no structure": even,
        "nothing to gain": replace(even, rate=np.ones(even.endpoints)),
    }
    numbers: tuple[int, ...] = sized((300, 1000, 3000), (300, 1000), (100,))
    cases = [*product(populations, numbers, STAYS, sized((0, 3), (0, 3), (0,)))]
    crowds: tuple[int, ...] = sized((1000, 5000), (1000,), (500,))
    timelines = [*product(crowds, STAYS, range(TIMELINES))]
    with Report(len(cases) + len(timelines) + 1) as report, np.errstate(all="raise", under="ignore"):
        for name, clients, stay, earlier in cases:
            learnt = f"{clients:,} clients of {name}{stay}, {amount(earlier + 1, 'hour')}"
            report.step(learnt)
            found = rows[learnt] = of_seeds(populations[name], clients, STAYS[stay], earlier)
            goals += [
                Goal(f"{learnt}: {what}", "share of seeds", USUALLY, found[what], at_least=True)
                for what in ("within the points", "others' gain in two errors")
            ]
            goals.append(Goal(f"{learnt}: pays for nothing", "share of seeds", 1 - USUALLY, found["pays for nothing"]))
        a = population(replace(A, clients=NEW))
        drift = drifted(a, population(replace(OTHER, clients=NEW)), CHANGED, rates=0.0)
        swapped = exchanged(a, CHANGED)
        for clients, stay, seed in timelines:
            of, stay_s = f"{clients:,} clients of A{stay}, timeline {seed + 1}", STAYS[stay]
            report.step(f"{of}, over {HOURS} hours")
            hours = hours_of(a, clients, stay_s, 3 + 10 * seed, MAX_WINDOWS + HOURS)
            first = first_plan(hours[:MAX_WINDOWS])
            current, stationary = decide(hours[:MAX_WINDOWS], hours[MAX_WINDOWS:], first)
            figures[f"stationary, {of}"] = stationary
            goals.append(Goal(f"stationary, {of}", "applied", max(1, HOURS // 20), stationary["applied"]))
            then = (hours_of(each, clients, stay_s, 7 + 10 * seed, sized(HOURS, 12, 2)) for each in (drift, swapped))
            figures[f"other clients, {of}"] = change(hours, drift, next(then), current)
            changed = figures[f"exchanged, {of}"] = change(hours, swapped, next(then), current)
            goals += [
                Goal(f"exchanged, {of}: first plan", "hours", PATIENCE, min(changed["hours"], default=HOURS + 1)),
                Goal(f"exchanged, {of}: others", "of the best", NEAR, changed["others, over the best plan's"]),
            ]
        report.step("samples of the clients")
        rows |= of_samples(population(A))
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
