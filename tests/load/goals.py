"""What a convergence run should show, beside what it did; and proof that the oracle could have said no."""

from pathlib import Path
from random import Random
from typing import Any

from tests.load.bench import Goal
from tests.load.scenario import Scenario
from tests.oracle import Bounds, Report, judge, read_history
from tests.oracle.judge import quantiles
from tests.oracle.mutate import CONTROLS, EXPECTED, NotApplicable

RATE_SHARE = 0.98
"""Of the updates that are due, in a run without faults."""


def goals_of(scenario: Scenario, report: Report, figures: dict[str, Any]) -> list[Goal]:
    """The goals of a run; ``figures`` are those of the run itself, the report is the oracle's."""
    steady, bounds = quantiles(report.lags.steady), report.bounds
    total = sum(report.counts[name] for name in report.counts if name.startswith("I"))
    goals = [
        Goal("promises broken, by the oracle", "", 0, total),
        Goal("T_conv, maximum", "s", bounds.t_conv, steady.get("max")),
        Goal("clients connected at the end", "", scenario.clients, figures["clients"]["connected"], at_least=True),
    ]
    if not scenario.faults:
        rate = round(scenario.rate * RATE_SHARE, 1)
        goals.append(Goal("updates accepted", "1/s", rate, figures["accepted_per_s"], at_least=True))
    for fault, behind in report.lags.faults.items():
        limit = round(fault.end - fault.start + bounds.t_heal, 2)
        goals.append(Goal(f"time behind, {fault.kind}", "s", limit, round(behind, 2)))
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
