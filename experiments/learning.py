"""``make bench-learning``: whether plans hold for clients that they were not made from, and come to rest.

Generalisation: plans from few clients of A (communities) and of a population without structure
(tests/support/instances.py), against placement by hash. The gain that is reported, that of clients held out, is
compared with the gain for 20,000 others of the same population. Stationary traffic: A's plan, then hours of other
clients with Poisson counts of updates and 1 % of the subscriptions to move; a plan that balances the load is applied
when the next hour is uneven, too, as ``diem autoplan`` does. The worst case: all clients are new in every hour. Change:
the same from the hour on in which a third of the clients have other interests, at the same rates. Generalisation and
stationary traffic also with clients who stay for a part of the hour, each for another time. Deterministic. ``QUICK=1``
has fewer clients and hours.
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
from learning.placement.instance import Instance
from learning.placement.objective import balance, fan_out, loads
from learning.placement.options import MARGIN, PlanOptions
from learning.placement.planner import PlanResult, plan
from tests.bench.report import Report
from tests.load.bench import Goal, write
from tests.support import instances
from tests.support.commandline import parser
from tests.support.instances import Population, Recipe, Timeline, drifted, population, windows
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
HOURS: Final = sized(20, 4, 1)
SERVERS, PARTITIONS = sized((16, 48), (16, 48), (4, 8))
MOVEMENT: Final = 0.01
CHANGED: Final = 1 / 3
"""Share of the clients with other interests."""
PART, STAY_S = " for 20 minutes", 1200.0
"""How long clients stay on average who do not stay the whole hour."""
STAYS: Final = {"": None, PART: STAY_S}
"""Mean seconds for which clients stay; None: the whole hour."""
PATIENCE: Final = 3
"""Hours within which a plan is to be applied then."""


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


def first_plan(hour: Instance) -> Parts:
    """Return the placement for an hour with none before."""
    return plan(hour, PlanOptions(servers=(SERVERS,), partitions=PARTITIONS, margin=MARGIN), DEFAULT).placement


def decide(hours: Iterable[Instance], current: Parts) -> dict[str, Any]:
    """Let every hour decide; return how many plans were applied, in which hours, and why or why not."""
    options = PlanOptions(servers=(SERVERS,), current_partitions=PARTITIONS, movement_budget=MOVEMENT, margin=MARGIN)
    applied: list[int] = []
    fan_outs: list[float] = []
    waiting, moved, why, began = False, 0.0, [], time.process_time()
    for number, hour in enumerate(hours, 1):
        outcome = plan(hour, options, DEFAULT, current)
        why.append(outcome.why)
        fan_outs.append(outcome.report["servers"][str(SERVERS)]["current"]["fan_out"])
        if outcome.pays and (waiting or not outcome.balances):
            applied.append(number)
            moved, current = moved + _moved(outcome), outcome.placement
        waiting = outcome.pays and outcome.balances and not waiting
    return {
        "applied": len(applied),
        "moved": round(moved, 4),
        "fan-out at first": fan_outs[0],
        "fan-out at last": fan_outs[-1],
        "cpu_s": round(time.process_time() - began, 1),
        "hours": applied,
        "why": why,
    }


def stationary(base: Population, clients: int, stay_s: float | None) -> tuple[Parts, dict[str, Any]]:
    """Return the plan for an hour of ``clients``, and what is decided in the hours after it."""
    hours = windows(base, Timeline(clients=clients, session_s=stay_s, seed=3), HOURS + 1)
    current = first_plan(next(hours))
    return current, decide(hours, current)


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
    crowds: tuple[int, ...] = sized((5000, 20_000, 60_000), (5000,), (500,))
    steps = len(STAYS) * sum(map(len, samples.values())) + len(crowds) + 2
    with Report(steps) as report, np.errstate(all="raise", under="ignore"):
        a, no_structure = population(replace(A, clients=NEW)), population(NO_STRUCTURE)
        for name, base, servers in (("A", a, SERVERS), ("no structure", no_structure, 8)):
            for clients, (stay, stay_s) in product(samples.get(name, ()), STAYS.items()):
                report.step(f"{clients:,} clients of {name}{stay}")
                found = rows[f"{name}, {clients:,} clients{stay}"] = generalisation(base, servers, clients, stay_s)
                off = abs(found["gain reported"] - found["gain of others"])
                goals.append(Goal(f"{name}, {clients:,} clients{stay}: gain reported", "off", POINTS, round(off, 4)))

        def rest(base: Population, clients: int, what: str, stay_s: float | None) -> Parts:
            report.step(f"{clients:,} clients{what} over {HOURS} hours")
            name = f"stationary, {clients:,} clients{what}"
            current, figures[name] = stationary(base, clients, stay_s)
            goals.append(Goal(name, "applied", max(1, HOURS // 20), figures[name]["applied"]))
            return current

        after = drifted(a, population(replace(OTHER, clients=NEW)), CHANGED, rates=0.0)
        for clients in crowds:
            current, changed = rest(a, clients, "", None), f"changed, {clients:,} clients"
            figures[changed] = decide(windows(after, Timeline(clients=clients, seed=7), HOURS), current)
            first = min(figures[changed]["hours"], default=HOURS + 1)
            goals.append(Goal(f"{changed}: first plan applied", "hours", PATIENCE, first))
        rest(a, crowds[0], PART, STAY_S)
        rest(no_structure, 300, f" without structure{PART}", STAY_S)
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
