import os
import time
from pathlib import Path

import pytest

from deploy.plans.recorded import NEEDED_MS, NoTrafficToPlan, read_recorded, remove_old
from metadata.statistics.rules import DAY_MS
from metadata.statistics.window import Window
from tests.support.traffic import write
from tests.unit.deploy.plans.recorded import events, recorded

DAY_S = DAY_MS // 1000


def aged(file: Path, days: float) -> Path:
    at = time.time() - days * DAY_S
    os.utime(file, (at, at))
    return file


def test_files_that_are_too_old_for_the_window_are_not_read(tmp_path: Path) -> None:
    folder = recorded(tmp_path) / "in"
    aged(write(folder, "websocket-2-a-1.jsonl", events(pairs=9)), 8.5)
    aged(write(folder, "websocket-2-a-2.jsonl", events(pairs=10)), 7.5)
    assert read_recorded(folder, 3_600_000)[1] == 2
    week_ago = int(time.time() * 1000) - 7 * DAY_MS
    assert read_recorded(folder, Window(week_ago, week_ago + 8 * DAY_MS))[1] == 3


def test_files_that_are_being_written_are_left_alone(tmp_path: Path) -> None:
    folder = recorded(tmp_path) / "in"
    aged(write(folder, ".websocket-1-b-1.jsonl", events(pairs=9)), 100)
    write(folder, ".websocket-1-c-1.jsonl", events(pairs=9))
    assert read_recorded(folder, 3_600_000)[1] == 1
    assert remove_old(folder, NEEDED_MS) == 0


def test_traffic_of_long_ago_is_read_as_any_other(tmp_path: Path) -> None:
    for file in (recorded(tmp_path) / "in").iterdir():
        aged(file, 100)
    assert read_recorded(tmp_path / "in", 3_600_000)[1] == 1


def test_files_that_no_window_needs_any_more_are_removed(tmp_path: Path) -> None:
    old, new, other = (write(tmp_path, name, events()[:1]) for name in ("a.jsonl", "b.jsonl", "c.txt"))
    for file, days in ((old, 8.01), (new, 7.99), (other, 100)):
        aged(file, days)
    assert remove_old(tmp_path, NEEDED_MS) == 1
    assert sorted(tmp_path.iterdir()) == [new, other]
    assert remove_old(tmp_path / "nowhere", NEEDED_MS) == 0


def test_a_window_in_which_nobody_looked_at_anything_is_told_from_no_traffic(tmp_path: Path) -> None:
    with pytest.raises(NoTrafficToPlan, match="there is no traffic yet"):
        read_recorded(tmp_path, 1000)
    with pytest.raises(NoTrafficToPlan, match="no client was subscribed"):
        read_recorded(recorded(tmp_path) / "in", Window(0, 1000))
