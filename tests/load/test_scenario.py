from tests.load.bench import Goal
from tests.load.observe import run
from tests.load.scenario import Scenario


async def test_small_run_with_a_killed_data_service_is_clean() -> None:
    small = Scenario(seconds=3, clients=20, endpoints=40, rate=500, churn_seconds=2, faults=("kill-data",))
    outcome = await run(small)
    assert outcome.report.violations == []
    assert [goal.name for goal in outcome.goals if not goal.reached] == []
    assert len(outcome.report.lags.faults) == 1
    assert outcome.report.counts["events update"] > 100


def test_goal_that_could_not_be_measured_is_not_reached() -> None:
    assert Goal("a", "s", 1, 0.5).reached
    assert not Goal("a", "s", 1, 1.5).reached
    assert Goal("a", "s", 1, 1.5, at_least=True).reached
    assert not Goal("a", "s", 1, None).reached
