from pathlib import Path

import pytest

from learning.modes.configuration import Configuration, Size
from tests.bench.modes.__main__ import about_s, main
from tests.bench.modes.plan import ALL, CONTROL, ONCE, REGIME_MODES, SEED, runs, size_of
from tests.bench.modes.runs import trace_of
from tests.load.regimes import R1, Regime, generate, write_trace
from tests.load.trace import read_trace
from tests.support.size import RunSize


def test_runs_that_the_constants_are_fitted_to_have_one_server_of_r1_and_come_first() -> None:
    for size in RunSize:
        planned = runs(size)
        fitted = [run.fitted for run in planned]
        assert fitted == sorted(fitted, reverse=True)
        assert all((run.regime.name, run.size) == ("R1", Size(1, 1)) for run in planned if run.fitted)
        assert len({run.name for run in planned}) == len(planned)


def test_rounds_go_there_and_back() -> None:
    first, second = (
        [run.group for run in runs(RunSize.FULL) if run.fitted and run.round == number] for number in (1, 2)
    )
    once = {run.group for run in runs(RunSize.FULL) if run.configuration in ONCE}
    assert [group for group in first if group not in once] == second[::-1]
    assert len(second) == 6


def test_every_configuration_is_there_with_one_and_with_four_servers() -> None:
    found = {(run.configuration, run.size.all_servers) for run in runs(RunSize.FULL) if run.regime.name == "R1"}
    once = {(Configuration.SINGLE, 1), (Configuration.ALL_TO_ALL, 1)}
    assert found == {(mode, count) for mode in ALL for count in (1, 4)} | once
    assert size_of(Configuration.XZ, 4) == Size(2, 2)


def test_control_is_the_same_as_another_run_but_for_its_name() -> None:
    again = next(run for run in runs(RunSize.QUICK) if run.control)
    other = next(run for run in runs(RunSize.QUICK) if run.configuration is CONTROL and run.size == again.size)
    assert {**again.as_json(), "control": False} == other.as_json()
    assert again.name != other.name


def test_every_regime_is_predicted() -> None:
    later = [run for run in runs(RunSize.FULL) if run.regime.name != "R1"]
    assert {run.regime.name for run in later} == {"R2", "R2s", "R3", "R4-100us", "R4-1000us", "R5"}
    assert len(later) == sum(len(modes) for _, modes in REGIME_MODES) + 4


def test_modes_without_kafka_have_no_updates_from_the_topic_and_composites_no_expensive_ones() -> None:
    for run in runs(RunSize.FULL):
        assert run.configuration.uses_kafka or not run.regime.to_topic
        assert run.configuration not in {Configuration.Z_COMPOSITE, Configuration.XZ} or not run.regime.work_us


def test_common_interests_are_measured_by_hash_and_by_plan() -> None:
    pairs = [(run.configuration, run.planned) for run in runs(RunSize.FULL) if run.regime.communities]
    client, passthrough = Configuration.Z_CLIENT, Configuration.Z_PASSTHROUGH
    assert pairs == [(client, False), (client, True), (passthrough, False), (passthrough, True)]
    assert all(run.size == Size(4) for run in runs(RunSize.FULL) if run.planned)


def test_comparison_takes_at_most_45_minutes_with_the_knee_and_other_servers() -> None:
    assert sum(map(about_s, runs(RunSize.FULL))) / 60 < 42


def test_recorded_trace_takes_the_place_of_the_other_regimes(tmp_path: Path) -> None:
    path = tmp_path / "recorded.jsonl"
    write_trace(path, generate(R1.smaller(10), 5.0, 1))
    trace = read_trace(path, batch=20)
    regime = Regime.recorded(str(path), trace)
    assert (regime.clients, regime.subscriptions, regime.endpoints, regime.updates) == (30, 10, 20, 30)
    later = [run for run in runs(RunSize.QUICK, recorded=(regime, trace.seconds)) if run.regime.name != "R1"]
    assert {(run.regime.file, run.regime.batch, run.seconds) for run in later} == {(str(path), 20, 5.0)}
    assert trace_of(regime, 5.0) == (path, read_trace(path, batch=20, seed=SEED))


def test_trace_that_is_none_is_an_error_of_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "none.jsonl"
    for options, what in (([], "No such file"), (["--batch", "51"], "--batch is between 1 and 50, not 51")):
        with pytest.raises(SystemExit) as ended:
            main(["--trace", str(path), *options])
        assert ended.value.code == 2
        assert what in capsys.readouterr().err
