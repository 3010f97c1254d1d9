"""Goals of a convergence run, and the negative controls of the oracle."""

from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

from tests.load import mix
from tests.load.bench import Goal
from tests.load.injection.attack import ATTACK, MORE_SECONDS
from tests.load.injection.repartition import SMOOTH, SOON_SECONDS
from tests.load.mixed_writer import OPERATIONS
from tests.load.scenario import Scenario
from tests.oracle import Bounds, Report, judge, read_history
from tests.oracle.judge import quantiles
from tests.oracle.mutate import CONTROLS, EXPECTED, NotApplicable
from tests.support.size import SIZE, RunSize

RATE_SHARE = 0.98
"""Least share of the due updates that must arrive in a run without faults."""
FELT = {"cut-black-hole", "upstream-black-hole", "all-brokers-down"}
"""Faults that clients must notice: a run in which none does proves nothing."""
HARNESS_SHARE = 0.8
"""Largest share of a CPU for each of the harness's two processes, so that they are not the bottleneck."""
HARNESS_PAUSE_SECONDS = 2.0
"""Longest pause of the load clients, and wait for owners: with longer ones a run breaks promises for want of CPU."""


def goals_of(scenario: Scenario, report: Report, figures: dict[str, Any]) -> list[Goal]:
    """Return the goals of a run from its ``figures`` and the oracle's report."""
    steady, bounds = quantiles(report.lags.steady), report.bounds
    total = sum(report.counts[name] for name in report.counts if name.startswith("I"))
    goals = [
        Goal("promises broken, by the oracle", "", 0, total),
        Goal("T_conv, maximum", "s", bounds.t_conv, steady.get("max")),
        Goal(
            "until all hold what the store has, after the last write",
            "s",
            bounds.t_conv + bounds.t_heal,
            figures["converged_s_after_writes"],
        ),
        Goal(
            "clients connected at the end",
            "",
            figures["clients"]["present"] if scenario.trace else scenario.clients,
            figures["clients"]["connected"],
            at_least=True,
        ),
        Goal("messages that no client should be sent", "", 0, figures["clients"]["unexpected"]),
        Goal("restarts that no fault explains", "", 0, sum(figures["unexplained_restarts"].values())),
    ]
    if scenario.mixes:
        goals += _goals_of_mix(scenario, figures)
    if scenario.data:
        carried = figures["clients"]["with_data"]
        goals.append(Goal("updates that carried the data that was asked for", "", 1, carried, at_least=True))
        compressed = figures["clients"]["compressed"]
        name = "updates that came compressed to clients that offer it"
        goals.append(Goal(name, "", int(scenario.compresses), compressed, at_least=scenario.compresses))
    if scenario.polls or scenario.streams:
        made = figures["clients"]["requests"]
        goals.append(Goal("long polls and event streams", "", scenario.clients, made, at_least=True))
    if scenario.retained_data_bytes is not None:
        lost, evicted = figures["clients"]["without_data"], sum(figures["evicted"].values())
        goals.append(Goal("updates without the data that was asked for", "", 1, lost, at_least=True))
        goals.append(Goal("retained updates that lost their data to others", "", 1, evicted, at_least=True))
    goals += _goals_of_harness(figures, is_clean=report.clean)
    if not scenario.faults:
        rate = round(scenario.rate * RATE_SHARE, 1)
        goals.append(Goal("updates accepted", "1/s", rate, figures["accepted_per_s"], at_least=True))
    for fault, behind in report.lags.faults.items():
        limit = round(fault.end - fault.start + (bounds.t_heal if fault.heal is None else fault.heal), 2)
        if not fault.excuses:
            limit = SOON_SECONDS if fault.kind in SMOOTH else bounds.t_conv
        goals.append(Goal(f"time behind, {fault.kind}", "s", limit, round(behind, 2)))
        if fault.kind == ATTACK:
            more = round(behind - steady.get("max", 0.0), 2)
            goals.append(Goal("attack, longest time behind, more than without it", "s", MORE_SECONDS, more))
        if fault.kind in FELT:
            least = round((fault.end - fault.start) / 2, 2)
            goals.append(Goal(f"{fault.kind} was felt, time behind", "s", least, round(behind, 2), at_least=True))
    return goals


def _goals_of_harness(figures: dict[str, Any], *, is_clean: bool) -> Iterator[Goal]:
    for part in ("clients", "writer"):
        share = figures["cpu_seconds"][part] / figures["run_seconds"]
        yield Goal(f"share of one CPU, load {part}", "", HARNESS_SHARE, round(share, 2))
    if not is_clean:
        # Clients without CPU are behind, and do not answer pings, whatever the system does.
        yield Goal("longest pause of the load clients", "s", HARNESS_PAUSE_SECONDS, figures["clients"]["pause"])
        # In mode z-client nobody knows a new owner before.
        yield Goal("longest wait for owners", "s", HARNESS_PAUSE_SECONDS, figures["clients"]["locate_s"])


def _goals_of_mix(scenario: Scenario, figures: dict[str, Any]) -> Iterator[Goal]:
    """Yield goals by which a run shows something about every kind; the smallest ones write for a second only."""
    is_long = SIZE is not RunSize.SMOKE
    missing = sorted(OPERATIONS - figures["operations"].keys()) if is_long else []
    yield Goal(f"kinds of writes that were never accepted {missing or ''}".strip(), "", 0, len(missing))
    if scenario.data and is_long:
        kinds = float(len(figures["kinds"]))
        yield Goal("kinds of data that clients held", "", len(mix.KINDS), kinds, at_least=True)
    if scenario.tokens and scenario.churn_seconds and is_long:
        refused = figures["clients"]["forbidden"]
        yield Goal("I12, requests of clients without the right that were refused", "", 1, refused, at_least=True)


def controls(folder: Path, bounds: Bounds, seed: int) -> list[Goal]:
    """Return a goal per control: 1 if the oracle detects it. Controls for which the run is too short are left out."""
    history = read_history(folder)
    goals = []
    for name, mutate in CONTROLS.items():
        try:
            broken = mutate(history, Random(seed))
        except NotApplicable:
            continue
        found = {type(violation).__name__ for violation in judge(broken, bounds).violations}
        goals.append(Goal(f"negative control {name} is named", "", 1, float(found >= EXPECTED[name]), at_least=True))
    return goals
