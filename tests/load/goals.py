"""What a convergence run should show, beside what it did; and proof that the oracle could have said no."""

from pathlib import Path
from random import Random
from typing import Any

from tests.load.bench import Goal
from tests.load.injection.repartition import SMOOTH, SOON_SECONDS
from tests.load.scenario import Scenario
from tests.oracle import Bounds, Report, judge, read_history
from tests.oracle.judge import quantiles
from tests.oracle.mutate import CONTROLS, EXPECTED, NotApplicable

RATE_SHARE = 0.98
"""Of the updates that are due, in a run without faults."""
FELT = {"cut-black-hole", "upstream-black-hole", "all-brokers-down"}
"""Faults that nobody can pass over: a run in which they hit nobody shows nothing."""
HARNESS_SHARE = 0.8
"""Of one CPU, for each of the harness' two processes: with more, they would be what is slow."""


def goals_of(scenario: Scenario, report: Report, figures: dict[str, Any]) -> list[Goal]:
    """The goals of a run; ``figures`` are those of the run itself, the report is the oracle's."""
    steady, bounds = quantiles(report.lags.steady), report.bounds
    total = sum(report.counts[name] for name in report.counts if name.startswith("I"))
    goals = [
        Goal("promises broken, by the oracle", "", 0, total),
        Goal("T_conv, maximum", "s", bounds.t_conv, steady.get("max")),
        Goal("clients connected at the end", "", scenario.clients, figures["clients"]["connected"], at_least=True),
        Goal("messages that no client should be sent", "", 0, figures["clients"]["unexpected"]),
        Goal("restarts that no fault explains", "", 0, sum(figures["unexplained_restarts"].values())),
    ]
    for part in ("clients", "writer"):
        share = figures["cpu_seconds"][part] / figures["run_seconds"]
        goals.append(Goal(f"share of one CPU, load {part}", "", HARNESS_SHARE, round(share, 2)))
    if not scenario.faults:
        rate = round(scenario.rate * RATE_SHARE, 1)
        goals.append(Goal("updates accepted", "1/s", rate, figures["accepted_per_s"], at_least=True))
    for fault, behind in report.lags.faults.items():
        limit = round(fault.end - fault.start + (bounds.t_heal if fault.heal is None else fault.heal), 2)
        if not fault.excuses:
            limit = SOON_SECONDS if fault.kind in SMOOTH else bounds.t_conv
        goals.append(Goal(f"time behind, {fault.kind}", "s", limit, round(behind, 2)))
        if fault.kind in FELT:
            least = round((fault.end - fault.start) / 2, 2)
            goals.append(Goal(f"{fault.kind} was felt, time behind", "s", least, round(behind, 2), at_least=True))
    return goals


def controls(folder: Path, bounds: Bounds, seed: int) -> list[Goal]:
    """One goal per control: 1 when the oracle names it. A run that is too short for a control leaves it out."""
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
