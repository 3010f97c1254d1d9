"""``make bench-learning``: whether plans hold for clients that they were not made from, and come to rest.

Generalisation: plans from few clients of one hour, or of four, against placement by hash; of populations with
communities, without any (endpoints of different rates still let a plan gain something for all), and without anything to
gain (equal rates). The gain told, with its error, is compared with that of 100,000 others of the same population, over
many seeds. Stationary traffic: a plan from some hours, then more hours with Poisson counts of updates and 5 % of the
subscriptions to move, each of which is judged by a plan from those before, as ``diem autoplan`` does. Clients stay for
the whole hour or for a part of it, each for another time, and all are new in every hour or some return. Change: from
then on a third of the clients have other interests, or a third of the endpoints have each other's subscribers; the last
placement is compared with a plan from these hours alone, for other clients. Samples: plans from the sets of a part of
the clients (ADR 20), for all of them. Deterministic.

Each part (a seed of a row, a timeline) is a line of build/bench/learning.jsonl: a run that was interrupted reports what
it has, and goes on with ``--continue``. With it, processes with an ``--only`` of their own share the file.
``QUICK=1`` has fewer clients and seeds.
"""

import re
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache, partial
from itertools import product
from statistics import fmean
from typing import Any, Final, NamedTuple

import numpy as np
import orjson

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
from tests.load.bench import FOLDER, Goal, write
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
CLIENTS: Final[tuple[int, ...]] = sized((300, 1000, 3000), (300, 1000), (100,))
EARLIER: Final[tuple[int, ...]] = sized((0, 3), (0, 3), (0,))
"""Hours to learn from before the one that judges; without any, clients are held out."""
LEARNING: Final = 8
"""Servers, and partitions, of plans from few clients."""
OTHERS: Final = sized(100_000, 20_000, 2000)
"""Clients for whom a plan is evaluated that it was not made from."""
NEW: Final = sized(150_000, 150_000, 6000)
"""Clients of a population of which each hour has new ones."""
HOURS: Final = sized(20, 20, 2)
TIMELINES: Final = sized(3, 2, 1)
"""Seeds of the hours that are decided upon."""
CROWDS: Final[tuple[int, ...]] = sized((1000, 5000), (1000,), (500,))
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
PARTS: Final = FOLDER / "learning.jsonl"

Figures = Mapping[str, Any]


class Part(NamedTuple):
    """A part of the bench, which needs no other."""

    name: str
    run: Callable[[], Mapping[str, Figures]]
    """Returns figures of some rows."""


@cache
def populations() -> dict[str, Population]:
    """Return the populations that few clients are drawn from."""
    even = population(NO_STRUCTURE)
    of_one_rate = replace(even, rate=np.ones(even.endpoints))
    return {"communities": population(COMMUNITIES), "no structure": even, "nothing to gain": of_one_rate}


@cache
def others_of(name: str, stay_s: float | None) -> Backend:
    """Return the sets of others of a population."""
    return backend_of_others(populations()[name], stay_s)


def backend_of_others(of: Population, stay_s: float | None = None) -> Backend:
    """Return the sets of :data:`OTHERS` clients of a population."""
    others = next(windows(of, Timeline(clients=OTHERS, session_s=stay_s, seed=OTHERS), 1))
    return Backend(others.blocks(), len(others.endpoints))


def of_seed(
    row: str, name: str, clients: int, *, stay_s: float | None, earlier: int, seed: int
) -> dict[str, dict[str, Any]]:
    """Plan from an hour of a population and so many before; return the gains as shares of the fan-out by hash."""
    began = time.process_time()
    hours, others = hours_of(populations()[name], clients, stay_s, seed, earlier + 1), others_of(name, stay_s)
    options = PlanOptions(servers=(LEARNING,), partitions=LEARNING, current_partitions=LEARNING, hot_budget=0.0)
    current = murmur2(hours[0].endpoints, LEARNING)
    outcome = learn(hours[:-1], hours[-1], options, current) if earlier else plan(hours[0], options, DEFAULT, current)
    window, candidates = outcome.report["servers"][str(LEARNING)], dict(outcome.report["candidates"])
    before = candidates.pop("current")["cost_us_per_s"]
    moves = min(each["moves_us_per_s"] for each in candidates.values())
    truth = 1 - fan_out(others, outcome.placement, LEARNING).mean / fan_out(others, current, LEARNING).mean
    told, error = relative(outcome, "us_per_s"), relative(outcome, "error")
    found = {
        "gain in the window": 1 - window["plan"]["fan_out"] / window["current"]["fan_out"],
        "gain told": told,
        "its standard error": error,
        "gain of others": truth,
        "told less others'": told - truth,
        "off": abs(told - truth),
        "within the points": abs(told - truth) <= POINTS,
        "others' gain in two errors": abs(told - truth) <= 2 * error,
        "0 in two errors": abs(told) <= 2 * error,
        "pays": outcome.pays,
        "pays for nothing": outcome.pays and truth * before <= moves,
        "cpu_s": round(time.process_time() - began, 1),
    }
    return {row: found}


def relative(outcome: PlanResult, name: str) -> float:
    """Return a figure of what a plan saves as a share of the cost that a placement decides."""
    return float(outcome.report["saves"][name] / outcome.report["candidates"]["current"]["cost_us_per_s"])


def of_samples() -> dict[str, dict[str, float]]:
    """Return figures of plans from samples of A's clients: the fan-out of all over that of a plan from all."""
    base, found = population(A), dict[str, dict[str, float]]()
    whole = base.instance()
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
    best, reached, before = fan_outs(after, first_plan(hours), placed, current)
    return {
        **found,
        "first plan": min(found["hours"], default=len(hours) + 1),
        "others, over the best plan's": round(reached / best, 4),
        "before": round(before / best, 4),
    }


def fan_outs(of: Population, *placements: Parts) -> Iterator[float]:
    """Yield the mean fan-out of others of a population with each placement."""
    backend = backend_of_others(of)
    for each in placements:
        yield fan_out(backend, server_of_endpoint(each, PARTITIONS, SERVERS), SERVERS).mean


def of_timeline(of: str, clients: int, stay_s: float | None, seed: int) -> dict[str, dict[str, Any]]:
    """Return what is decided in hours without a change, and in those after either change."""
    a = population(replace(A, clients=NEW))
    drift = drifted(a, population(replace(OTHER, clients=NEW)), CHANGED, rates=0.0)
    swapped = exchanged(a, CHANGED)
    hours = hours_of(a, clients, stay_s, 3 + 10 * seed, MAX_WINDOWS + HOURS)
    first = first_plan(hours[:MAX_WINDOWS])
    current, stationary = decide(hours[:MAX_WINDOWS], hours[MAX_WINDOWS:], first)
    before, after = fan_outs(a, first, current)
    found = {f"stationary, {of}": {**stationary, "others, over the first plan's": round(after / before, 4)}}
    for what, changed in {"other clients": drift, "exchanged": swapped}.items():
        then = hours_of(changed, clients, stay_s, 7 + 10 * seed, sized(HOURS, 12, 2))
        found[f"{what}, {of}"] = change(hours, changed, then, current)
    return found


def parts() -> Iterator[Part]:
    """Yield all parts, seed by seed: a run that was interrupted has figures of every row."""
    for seed, clients, stay in product(range(TIMELINES), CROWDS, STAYS):
        of = f"{clients:,} clients of A{stay}"
        yield Part(f"{of}, timeline {seed + 1}", partial(of_timeline, of, clients, STAYS[stay], seed))
    for seed, (clients, name, stay, earlier) in product(range(SEEDS), product(CLIENTS, populations(), STAYS, EARLIER)):
        row = f"{clients:,} clients of {name}{stay}, {amount(earlier + 1, 'hour')}"
        run = partial(of_seed, row, name, clients, stay_s=STAYS[stay], earlier=earlier, seed=seed)
        yield Part(f"{row}, seed {seed + 1}", run)
    yield Part("samples of the clients of A", of_samples)


def read_parts() -> dict[str, Mapping[str, Figures]]:
    """Return what was found, by part."""
    lines = PARTS.read_bytes().splitlines() if PARTS.exists() else []
    return {each["part"]: each["found"] for each in map(orjson.loads, lines)}


def write_part(part: Part) -> None:
    """Run a part, and write what it found."""
    found = part.run()
    PARTS.parent.mkdir(parents=True, exist_ok=True)
    line = {"part": part.name, "found": found}
    with PARTS.open("ab") as file:
        file.write(orjson.dumps(line, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_APPEND_NEWLINE))


def by_row(found: Mapping[str, Mapping[str, Figures]]) -> dict[str, list[Figures]]:
    """Return the figures of each row, of every part that has some."""
    rows = defaultdict[str, list[Figures]](list)
    for part in found.values():
        for row, figures in part.items():
            rows[row].append(figures)
    return rows


def mean(figures: Sequence[Figures]) -> dict[str, float]:
    """Return the means of the figures of a row over its seeds."""
    names = (name for name, value in figures[0].items() if isinstance(value, int | float))
    return {"seeds": len(figures), **{name: fmean(each[name] for each in figures) for name in names}}


def goals_of(row: str, figures: Sequence[Figures]) -> list[Goal]:
    """Return the goals of a row, by the figures of its seeds."""
    means = mean(figures)
    if "pays for nothing" in means:
        shares = ("within the points", "others' gain in two errors")
        goals = [Goal(f"{row}: {what}", "share of seeds", USUALLY, means[what], at_least=True) for what in shares]
        return [*goals, Goal(f"{row}: pays for nothing", "share of seeds", 1 - USUALLY, means["pays for nothing"])]
    if row.startswith("stationary"):
        return [Goal(row, "applied", max(1, HOURS // 20), means["applied"])]
    if row.startswith("exchanged"):
        worst = {name: max(each[name] for each in figures) for name in ("first plan", "others, over the best plan's")}
        bounds = zip(worst.items(), (PATIENCE, NEAR), ("hours", "of the best"), strict=True)
        return [Goal(f"{row}: {name}", unit, bound, value) for (name, value), bound, unit in bounds]
    return []


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
    options = parser(__spec__, __doc__, report="build/bench/learning.json and .svg", quick="")
    options.add_argument("--continue", dest="goes_on", action="store_true", help="keep the parts that are there")
    options.add_argument("--only", metavar="REGEX", default="", help="run the parts whose names match")
    given = options.parse_args(argv)
    if not given.goes_on:
        PARTS.unlink(missing_ok=True)
    everything, there = [*parts()], read_parts()
    chosen = [each for each in everything if each.name not in there and re.search(given.only, each.name)]
    with Report(len(chosen)) as report, suppress(KeyboardInterrupt), np.errstate(all="raise", under="ignore"):
        for part in chosen:
            report.step(part.name)
            write_part(part)
    there = read_parts()
    found = {each.name: there[each.name] for each in everything if each.name in there}
    figures = by_row(found)
    rows = {row: mean(each) for row, each in figures.items()}
    goals = [goal for row, each in figures.items() for goal in goals_of(row, each)]
    report.rows("Plans", rows)
    report.goals(goals)
    decided = {name: each for name, each in found.items() if "timeline" in name}
    path = write("learning", {"rows": rows, "timelines": decided}, goals)
    path.with_suffix(".svg").write_text(picture(rows, goals), encoding="utf-8")
    print(f"written: {path} and {path.with_suffix('.svg')}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
