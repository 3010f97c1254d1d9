import importlib.util
import json
import os
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from deploy.terminal import Terminal
from diem.errors import ConfigurationError
from learning.jobs.warehouse import BadStatistics
from learning.planning import traffic_input
from learning.planning.context import PlanRequest
from learning.planning.traffic_input import (
    DECAY,
    RELEVANT_MS,
    NoPlanner,
    NoTrafficToPlan,
    TrafficUnreadable,
    read_input,
    read_recorded,
    remove_old,
    require_planner,
)
from learning.statistics.constants import DAY_MS
from learning.statistics.window import Window
from tests.support.traffic import write
from tests.unit.learning.planning.recorded_traffic import events, recorded

QUIET = Terminal(quiet=True)


def test_unread_files_are_read_directly(tmp_path: Path) -> None:
    found = read_input(PlanRequest(recorded(tmp_path)), QUIET)
    assert found.instance.endpoints == tuple(sorted(f"/{pair}/{which}" for pair in range(8) for which in "ab"))
    assert (found.clients, found.sets) == (80, 8)
    assert found.source == f"1 file in {tmp_path / 'in'}"
    # Ten times 60 updates in ten minutes: before these, nothing was recorded.
    assert found.instance.rate.tolist() == pytest.approx([1.0] * 16)
    assert (found.minutes, found.active_minutes) == (10, 10)


def test_traffic_may_name_a_folder_of_files(tmp_path: Path) -> None:
    assert read_input(PlanRequest(recorded(tmp_path) / "in"), QUIET).clients == 80


def test_requested_window_is_the_input(tmp_path: Path) -> None:
    found = read_input(PlanRequest(recorded(tmp_path), window=60_000), QUIET)
    assert found.instance.seconds == 60


def test_a_window_that_is_given_is_not_cut(tmp_path: Path) -> None:
    now = time.time_ns() // 1_000_000
    found = read_input(PlanRequest(recorded(tmp_path), window=Window(now - 3_600_000, now)), QUIET)
    assert (found.minutes, found.active_minutes in {10, 11}) == (60, True)


def test_windows_before_are_learnt_from_as_far_as_they_are_recorded(tmp_path: Path) -> None:
    found = read_input(PlanRequest(recorded(tmp_path), window=180_000), QUIET)
    assert [share for _, share in found.earlier] == pytest.approx([1.0, DECAY])
    assert {each.seconds for each, _ in found.earlier} == {180}
    # The window that was named stands alone.
    now = time.time_ns() // 1_000_000
    assert not read_input(PlanRequest(tmp_path, window=Window(now - 180_000, now)), QUIET).earlier


def test_earlier_statistics_are_learnt_from_unless_they_overlap_or_are_old(tmp_path: Path) -> None:
    ends = {"a": 0.0, "b": 0.95, "c": 1.5, "d": 2.0, "e": 9.5, "later": -1.0}
    for name, hours in ends.items():
        (tmp_path / name).mkdir()
        times = (datetime(2026, 1, 2, tzinfo=UTC) - timedelta(hours=hours + each) for each in (1, 0))
        window = dict(zip(("from", "to"), (f"{each:%Y-%m-%dT%H:%M:%SZ}" for each in times), strict=True))
        (tmp_path / name / "window.json").write_text(json.dumps(window))
    found = {folder.name: share for folder, share in traffic_input.earlier_statistics(tmp_path / "a")}
    assert found == pytest.approx({"b": DECAY**-0.05, "d": DECAY})


def test_no_events_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(NoTrafficToPlan, match=r"there is no traffic yet .*`diem pipeline run`"):
        read_input(PlanRequest(tmp_path), QUIET)


def test_lines_that_are_no_events_are_counted_with_their_reasons(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = recorded(tmp_path) / "in"
    (folder / "websocket-9-a-1.jsonl").write_bytes(b"[]\n\n[]\n{")
    found = read_input(PlanRequest(tmp_path), QUIET)
    assert found.clients == 80
    warning = capsys.readouterr().err
    assert f"4 of {found.events + 4:,} lines were skipped: an event is a JSON object (2), not JSON: " in warning


def test_window_without_clients_is_reported_with_its_times(tmp_path: Path) -> None:
    with pytest.raises(NoTrafficToPlan, match=r"from 1970-01-01T00:00:00.000Z to 1970-01-01T00:00:01.000Z no client"):
        read_input(PlanRequest(recorded(tmp_path), window=Window(0, 1000)), QUIET)


def test_unreadable_file_is_named(tmp_path: Path) -> None:
    (recorded(tmp_path) / "in" / "gone.jsonl").symlink_to(tmp_path / "nowhere")
    with pytest.raises(TrafficUnreadable, match=r"in/gone\.jsonl: No such file"):
        read_input(PlanRequest(tmp_path), QUIET)


def test_too_many_files_are_left_to_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("learning.planning.traffic_input.MAX_BYTES", 100)
    with pytest.raises(ConfigurationError, match="`diem pipeline run`"):
        read_input(PlanRequest(recorded(tmp_path)), QUIET)


def test_latest_statistics_are_the_default_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Path] = []
    monkeypatch.setattr(traffic_input, "_from_statistics", seen.append)
    recorded(tmp_path)
    for hour in ("01", "03", "02"):
        folder = tmp_path / "warehouse" / "statistics" / hour
        folder.mkdir(parents=True)
        (folder / "window.json").write_text(json.dumps({"to": f"2026-01-01T{hour}:00:00.000Z"}))
    read_input(PlanRequest(tmp_path), QUIET)
    read_input(PlanRequest(tmp_path / "warehouse" / "statistics" / "02"), QUIET)
    assert [folder.name for folder in seen] == ["03", "02"]
    # Those of another window are of no use.
    assert read_input(PlanRequest(tmp_path, window=60_000, spark=False), QUIET).clients == 80


def test_missing_packages_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    require_planner()
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "scipy" else object())
    with pytest.raises(NoPlanner, match="planning needs scipy: install with `make spark` or "):
        require_planner()


def test_statistics_with_a_missing_table_are_named(tmp_path: Path) -> None:
    (tmp_path / "window.json").write_text(json.dumps({"to": "2026-01-01T00:00:00.000Z", "sets": 1}))
    with pytest.raises(BadStatistics, match=rf"{tmp_path} cannot be used .*endpoints\.parquet"):
        read_input(PlanRequest(tmp_path), QUIET)


def test_statistics_with_a_missing_figure_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    window = {"from": "2026-01-01", "to": "2026-01-02", "sets": 1, "events": 1, "clients": 1}
    (tmp_path / "window.json").write_text(json.dumps(window))
    monkeypatch.setattr("learning.placement.instance.read_statistics", lambda _folder: None)
    monkeypatch.setattr("learning.placement.instance.read_waste", lambda _folder: (0, 0))
    with pytest.raises(BadStatistics, match=rf"{tmp_path} cannot be used .*twins"):
        read_input(PlanRequest(tmp_path), QUIET)


def test_statistics_that_are_replaced_while_they_are_read_are_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "warehouse" / "statistics" / "current"
    folder.mkdir(parents=True)
    names, days = ("sets", "events", "clients", "twins", "active_minutes"), ["2026-01-03", "2026-01-02"]

    def replace(_folder: Path | None = None) -> None:
        if days:
            window = {"from": "2026-01-01", "to": days.pop(), **dict.fromkeys(names, 1)}
            (folder / "window.json").write_text(json.dumps(window))

    replace()
    monkeypatch.setattr("learning.placement.instance.read_statistics", replace)
    monkeypatch.setattr("learning.placement.instance.read_waste", lambda _folder: (0, 0))
    assert read_input(PlanRequest(tmp_path), QUIET).end == "2026-01-03"
    assert not days


def test_computed_statistics_are_used_whatever_others_exist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    computed, later, seen = tmp_path / "computed", tmp_path / "warehouse" / "statistics" / "later", list[Path]()
    later.mkdir(parents=True)
    (later / "window.json").write_text(json.dumps({"to": "2999-01-01T00:00:00.000Z"}))
    monkeypatch.setattr("learning.spark.pipeline.run", lambda *_, **_options: computed)
    monkeypatch.setattr(traffic_input, "_from_statistics", seen.append)
    read_input(PlanRequest(tmp_path, window=60_000, spark=True), QUIET)
    assert seen == [computed]


DAY_S = DAY_MS // 1000


def aged(file: Path, days: float) -> Path:
    at = time.time() - days * DAY_S
    os.utime(file, (at, at))
    return file


def test_files_too_old_for_the_window_are_not_read(tmp_path: Path) -> None:
    folder = recorded(tmp_path) / "in"
    aged(write(folder, "websocket-2-a-1.jsonl", events(pairs=9)), 8.5)
    aged(write(folder, "websocket-2-a-2.jsonl", events(pairs=10)), 7.5)
    assert read_recorded(folder, 3_600_000, QUIET)[1] == 2
    week_ago = int(time.time() * 1000) - 7 * DAY_MS
    assert read_recorded(folder, Window(week_ago, week_ago + 8 * DAY_MS), QUIET)[1] == 3


def test_a_file_of_a_clock_that_was_ahead_hides_no_others(tmp_path: Path) -> None:
    folder = recorded(tmp_path) / "in"
    aged(write(folder, "websocket-2-a-1.jsonl", events(pairs=9)), -30)
    assert read_recorded(folder, 3_600_000, QUIET)[1] == 2


def test_incomplete_files_are_ignored(tmp_path: Path) -> None:
    folder = recorded(tmp_path) / "in"
    aged(write(folder, ".websocket-1-b-1.jsonl", events(pairs=9)), 100)
    write(folder, ".websocket-1-c-1.jsonl", events(pairs=9))
    assert read_recorded(folder, 3_600_000, QUIET)[1] == 1
    assert remove_old(folder, RELEVANT_MS) == 0


def test_old_traffic_is_read_like_any_other(tmp_path: Path) -> None:
    for file in (recorded(tmp_path) / "in").iterdir():
        aged(file, 100)
    assert read_recorded(tmp_path / "in", 3_600_000, QUIET)[1] == 1


def test_files_that_no_window_needs_are_removed(tmp_path: Path) -> None:
    old, new, other = (write(tmp_path, name, events()[:1]) for name in ("a.jsonl", "b.jsonl", "c.txt"))
    for file, days in ((old, 8.01), (new, 7.99), (other, 100)):
        aged(file, days)
    assert remove_old(tmp_path, RELEVANT_MS) == 1
    assert sorted(tmp_path.iterdir()) == [new, other]
    assert remove_old(tmp_path / "nowhere", RELEVANT_MS) == 0


def test_a_clock_that_is_years_ahead_removes_files_of_three_days_a_round(tmp_path: Path) -> None:
    files = [aged(write(tmp_path, f"{days}.jsonl", events()[:1]), 1000 + days) for days in (0, 1.5, 2.5, 4, 6)]
    assert [remove_old(tmp_path, RELEVANT_MS) for _ in range(3)] == [2, 3, 0]
    assert not any(file.exists() for file in files)
