"""Past days are merged, and old ones dropped; tests/integration/pipeline/test_maintenance.py reads them in Spark."""

import os
import time
from datetime import date, timedelta
from pathlib import Path

import pytest

pytest.importorskip("deltalake")

from learning.jobs.delta_table import RETENTION_H, committed_files, data_files
from learning.jobs.maintenance import MIN_FILES, maintain
from learning.jobs.warehouse import EVENTS, QUARANTINE
from tests.support.delta import bad, event, ids, write

TODAY = date(2026, 2, 1)
PAST, OLDER = (TODAY - timedelta(days=days) for days in (1, 2))


def test_many_small_files_of_a_past_day_become_one(tmp_path: Path) -> None:
    for number in range(MIN_FILES):
        rows = [event(f"{day}-{number}", day) for day in (PAST, TODAY)]
        few = [event(f"few-{number}", OLDER)] if number else []
        write(tmp_path, number, [*rows, *few, bad(f"bad {number}", PAST)])
    before, names = data_files(tmp_path), ids(tmp_path)
    assert maintain(tmp_path, TODAY) == 2 * (MIN_FILES - 1)
    files = {(file.kind, file.day): 0 for file in committed_files(tmp_path)}
    for file in committed_files(tmp_path):
        files[file.kind, file.day] += 1
    assert files == {
        (EVENTS, PAST): 1,
        (QUARANTINE, PAST): 1,
        (EVENTS, TODAY): MIN_FILES,
        (EVENTS, OLDER): MIN_FILES - 1,
    }
    assert ids(tmp_path) == names
    assert all(file.exists() for file in before), "a query may be reading them"
    assert maintain(tmp_path, TODAY) == 0, "a second run changes nothing"


def test_old_days_are_dropped_at_once_and_their_files_stay_for_readers(tmp_path: Path) -> None:
    days = [TODAY - timedelta(days=days) for days in (10, 11)]
    write(tmp_path, 0, [row for day in days for row in (event(f"{day}", day), bad("x", day))])
    before = data_files(tmp_path)
    maintain(tmp_path, TODAY, 10)
    assert {file.day for file in committed_files(tmp_path)} == {days[0]}
    assert all(file.exists() for file in before)
    maintain(tmp_path, TODAY)
    assert ids(tmp_path) == [f"{days[0]}"]


def test_a_clock_that_is_years_ahead_drops_three_days_a_run(tmp_path: Path) -> None:
    days = [TODAY - timedelta(days=days) for days in (4, 3, 2, 1, 0)]
    write(tmp_path, 0, [event(f"{day}", day) for day in days])
    left = []
    for _ in range(3):
        maintain(tmp_path, TODAY + timedelta(days=400), 10)
        left.append(ids(tmp_path))
    assert left == [[f"{PAST}", f"{TODAY}"], [], []]


def test_what_interrupted_attempts_left_behind_is_removed_after_a_day(tmp_path: Path) -> None:
    write(tmp_path, 0, [event("a", PAST)])
    (committed,) = data_files(tmp_path)
    left = {hours: committed.with_name(f"part-{hours}.parquet") for hours in (RETENTION_H - 1, RETENTION_H + 1)}
    for hours, file in left.items():
        file.write_bytes(committed.read_bytes())
        os.utime(file, (time.time() - 3600 * hours,) * 2)
    maintain(tmp_path, TODAY)
    assert [file.exists() for file in (committed, *left.values())] == [True, True, False]


def test_an_unreadable_day_does_not_keep_the_others_from_being_merged(tmp_path: Path) -> None:
    for number in range(MIN_FILES):
        write(tmp_path, number, [event(f"{day}-{number}", day) for day in (PAST, OLDER)])
    next(file.path for file in committed_files(tmp_path) if file.day == OLDER).unlink()
    with pytest.raises(Exception, match=r"part-"):
        maintain(tmp_path, TODAY)
    assert [file.day for file in committed_files(tmp_path)] == [OLDER] * MIN_FILES + [PAST]


def test_there_is_nothing_to_do_before_the_first_batch(tmp_path: Path) -> None:
    assert maintain(tmp_path, TODAY, 10) == 0
