"""Several runs one after the other, with one bench file for all of them."""

import asyncio
from collections.abc import Iterable

from tests.load import bench
from tests.load.observe import run
from tests.load.run import end_in_order, told
from tests.load.scenario import Scenario, quick


def run_all(name: str, scenarios: Iterable[Scenario]) -> int:
    """Run them and write build/bench/NAME.json; returns the exit code: 1 when any goal was missed."""
    end_in_order()
    goals: list[bench.Goal] = []
    figures = {}
    for scenario in map(quick, scenarios):
        outcome = asyncio.run(run(scenario))
        told(outcome)
        figures[scenario.name] = outcome.figures
        goals += [goal._replace(name=f"{scenario.name}: {goal.name}") for goal in outcome.goals]
    bench.write(name, {"runs": figures}, goals)
    missed = [goal for goal in goals if not goal.reached]
    print(f"{name}: {len(goals) - len(missed)} of {len(goals)} goals reached")
    return 1 if missed else 0
