"""One seeded fault per mode under load, judged by the oracle; `make faults` runs all of them, longer."""

import pytest

from tests.load.observe import run
from tests.load.scenario import Scenario

RUNS = [
    Scenario("single", seconds=8, clients=200, rate=500, faults=("kill-data",), seed=11),
    Scenario("single", seconds=8, clients=100, rate=300, faults=("wipe-store",), seed=12),
    Scenario("x-broadcast", seconds=8, clients=200, rate=500, faults=("kill-broadcast",), seed=13),
    Scenario("all-to-all", seconds=8, clients=100, rate=300, faults=("kill-websocket",), seed=14),
]


@pytest.mark.parametrize("scenario", RUNS, ids=lambda scenario: scenario.name)
async def test_everyone_ends_at_the_latest_through_a_fault(scenario: Scenario) -> None:
    outcome = await run(scenario)
    assert outcome.clean, f"histories are in {outcome.folder}: {outcome.report}"
