import math
from dataclasses import replace

import pytest

from diem.kafka.config import KafkaOptions
from tests.load.bench import Goal
from tests.load.faults import scenarios
from tests.load.injection.drain import absences, clients_moved, longest_absence
from tests.load.observe import run
from tests.load.scenario import Scenario
from tests.oracle import Bounds
from tests.oracle.history import Event, History, Kind


async def test_small_run_with_a_killed_data_service_and_little_room_for_data_is_clean(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # `make faults` measures the promised times.
    monkeypatch.setattr(Scenario, "bounds", Bounds(t_heal=60.0))
    # 40 updates of 600 bytes: a process has room for the data of 13. The others are notifications, and none is missed.
    small = Scenario(seconds=3, clients=20, endpoints=40, rate=500, churn_seconds=2, points=8, faults=("kill-data",))
    outcome = await run(replace(small, retained_data_bytes=8192))
    assert outcome.report.violations == []
    # Which kinds of writes meet the outage is chance in so short a run; times and shares are the machine's.
    missed = [goal.name for goal in outcome.goals if not goal.reached and goal.unit != "s"]
    assert [name for name in missed if not name.startswith(("kinds of", "share of one CPU"))] == []
    assert len(outcome.report.lags.faults) == 1
    assert outcome.report.counts["events update"] > 100


def test_absence_is_the_longest_time_from_a_close_until_subscribed_again() -> None:
    closed, subscribed = Kind.CLOSE, Kind.SUBSCRIBED
    moved = [Event(1, closed, code=1012), Event(1.2, closed, code=1006), Event(1.5, subscribed), Event(9, subscribed)]
    twice = [*moved, Event(10, closed, code=1012), Event(12, subscribed), Event(13, closed, code=1006)]
    lost = [Event(1, closed, code=1012)]
    found = absences({"moved": moved, "twice": twice, "lost": lost, "other": [Event(1, closed, code=1006)]})
    assert found == {"moved": 0.5, "twice": 2, "lost": math.inf}
    clients = {"moved": moved, "twice": twice}
    assert not longest_absence(
        History([], {"twice": [Event(1, closed, code=1012), Event(99, subscribed)]}, 100)
    ).reached
    assert not longest_absence(History([], {}, 100)).reached
    assert longest_absence(History([], clients, 100)).reached
    assert not clients_moved(History([], {**clients, "a": [], "b": []}, 100)).reached


def test_goal_that_could_not_be_measured_is_not_reached() -> None:
    assert Goal("a", "s", 1, 0.5).reached
    assert not Goal("a", "s", 1, 1.5).reached
    assert Goal("a", "s", 1, 1.5, at_least=True).reached
    assert not Goal("a", "s", 1, None).reached


def test_scenario_says_to_diem_up_what_it_runs() -> None:
    assert Scenario().options == []
    assert Scenario("x", servers=3, max_servers=4, brokers=3).options == [
        *("--servers", "3", "--max-servers", "4", "--brokers", "3"),
    ]
    assert Scenario("z-proxy", servers=2).options == [
        *("--servers", "2", "--brokers", "1"),
    ]
    assert Scenario("xz", clones=2).options == ["--clones", "2", "--brokers", "1"]
    cluster = KafkaOptions("127.0.0.1:1", topic_prefix="t.", replication=1)
    assert Scenario("x", kafka=cluster).options == [
        *("--bootstrap-servers", "127.0.0.1:1", "--topic-prefix", "t.", "--replication", "1"),
    ]


def test_run_in_mode_x_is_named_by_its_label_and_has_its_own_bounds() -> None:
    assert Scenario("x", faults=("kill-bridge", "poison"), label="faults").name == "convergence-x-faults"
    assert Scenario("single", faults=("kill-data",)).name == "convergence-single-kill-data"
    assert [Scenario(mode).bounds.t_conv for mode in ("x", "z-proxy", "single")] == [15, 15, 5]


def test_runs_of_a_mode_do_not_share_a_name() -> None:
    names = [scenario.name for scenario in scenarios("z", 1)]
    assert len(set(names)) == len(names) == 8
    assert "convergence-z-proxy-faults-3-brokers" in names
