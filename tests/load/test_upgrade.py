from dataclasses import replace

import pytest

from tests.load.faults import LAST_RELEASE
from tests.load.injection import UPGRADE
from tests.load.injection import upgrade as injection
from tests.load.injection.upgrade import order_of
from tests.load.observe import run
from tests.load.scenario import Scenario
from tests.load.trees import why_not_extracted
from tests.support.required import in_cluster


@pytest.mark.parametrize(
    ("names", "order"),
    [
        (["data", "websocket-1"], ["data", "websocket-1"]),
        (
            ["nginx", "websocket-2", "websocket-1", "broadcast", "data"],
            ["data", "broadcast", "websocket-1", "websocket-2"],
        ),
        (
            ["kafka-1", "data", "proxy-1", "metadata", "bridge-2", "websocket-1", "bridge-1", "websocket-2"],
            ["bridge-1", "websocket-1", "bridge-2", "websocket-2", "data", "metadata", "proxy-1"],
        ),
    ],
)
def test_processes_are_replaced_before_those_that_dial_them_and_readers_of_kafka_before_writers(
    names: list[str], order: list[str]
) -> None:
    assert order_of(names) == order


def test_a_release_that_the_history_does_not_have_is_no_error() -> None:
    assert "0123456789" in why_not_extracted("0123456789" * 4)


@pytest.mark.skipif(bool(why_not_extracted(LAST_RELEASE)), reason="the history does not have the last release")
@in_cluster()
@pytest.mark.usefixtures("executed_processes")
async def test_small_run_from_the_last_release_to_this_one_misses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(injection, "MIXED_SECONDS", 0.2)
    small = Scenario(seconds=1, clients=10, endpoints=20, rate=100, churn_seconds=2, points=8, faults=(UPGRADE,))
    outcome = await run(replace(small, release=LAST_RELEASE, label=UPGRADE))
    assert outcome.report.violations == []
    assert [goal.name for goal in outcome.goals if not goal.reached] == []
