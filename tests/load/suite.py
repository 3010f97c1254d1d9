"""Several runs in sequence, with one bench file."""

import asyncio
import traceback
from collections.abc import Iterable
from typing import Any

from tests.load import bench
from tests.load.injection.traffic_plan import table
from tests.load.observe import run
from tests.load.run import end_in_order, told
from tests.load.scenario import Scenario, quick


def run_all(name: str, scenarios: Iterable[Scenario]) -> int:
    """Run the scenarios and write build/bench/NAME.json; return 1 if a promise was broken or a goal missed."""
    end_in_order()
    goals: list[bench.Goal] = []
    broken = False
    figures: dict[str, dict[str, Any]] = {}
    for scenario in map(quick, scenarios):
        try:
            outcome = asyncio.run(run(scenario))
        except Exception:  # noqa: BLE001 - whatever it is, it is shown, and counts as a miss
            traceback.print_exc()
            broken, figures[scenario.name] = True, {"error": traceback.format_exc()}
            goals.append(bench.Goal(f"{scenario.name}: ran to its end", "", 1, 0, at_least=True))
            continue
        broken |= not told(outcome)
        figures[scenario.name] = outcome.figures
        goals += [goal._replace(name=f"{scenario.name}: {goal.name}") for goal in outcome.goals]
    bench.write(name, {"runs": figures}, goals)
    missed = [goal for goal in goals if not goal.reached]
    for run_name, found in figures.items():
        if shown := table(run_name, found):
            print(shown)
    print(f"{name}: {len(goals) - len(missed)} of {len(goals)} goals reached")
    return 1 if broken else bench.exit_code(goals)
