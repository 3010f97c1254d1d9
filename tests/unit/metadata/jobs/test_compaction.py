"""Compaction without Spark; tests/integration/pipeline/test_compaction.py is with it."""

import json
import os
import time
from datetime import date
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

pytest.importorskip("pyspark")

from metadata.jobs import compaction
from metadata.jobs.compaction import MIN_FILES, REMOVAL_DELAY_S, compact, remove_unreferenced
from metadata.jobs.sink_log import data_files


def data(sink: Path, name: str, age: float) -> Path:
    file = sink / "table=events" / "day=2026-01-01" / f"{name}.parquet"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.touch()
    os.utime(file, (time.time() - age,) * 2)
    return file


def logged(sink: Path, *files: Path) -> None:
    log = sink / "_spark_metadata"
    log.mkdir()
    (log / "2.compact").write_text("\n".join(["v1", *(json.dumps({"path": file.as_uri()}) for file in files)]))


def test_files_absent_from_the_log_are_removed_after_a_day(tmp_path: Path) -> None:
    sink = tmp_path / "files-0"
    named, old, new = (
        data(sink, n, age)
        for n, age in (("a", 9 * REMOVAL_DELAY_S), ("b", REMOVAL_DELAY_S + 60), ("c", REMOVAL_DELAY_S - 60))
    )
    logged(sink, named)
    remove_unreferenced(sink)
    assert [file.exists() for file in (named, old, new)] == [True, False, True]


@pytest.mark.parametrize("before", ["elsewhere/files-0", "files-1"])
def test_no_file_in_the_log_of_a_moved_or_renamed_folder_is_removed(tmp_path: Path, before: str) -> None:
    sink = tmp_path / "files-0"
    file = data(sink, "a", 9 * REMOVAL_DELAY_S)
    logged(sink, tmp_path / before / file.relative_to(sink))
    remove_unreferenced(sink)
    assert file.exists()


TODAY = date(2026, 2, 1)


def small(sink: Path, *days: str) -> dict[str, list[Path]]:
    """Make a sink with just enough small files of each day for their compaction."""
    found = {}
    for day in days:
        folder = sink / "table=events" / f"day={day}"
        folder.mkdir(parents=True)
        found[day] = [folder / f"part-{number}.parquet" for number in range(MIN_FILES)]
        for file in found[day]:
            file.touch()
            os.utime(file, (time.time() - 3 * REMOVAL_DELAY_S,) * 2)
    files = [file for own in found.values() for file in own]
    log = sink / "_spark_metadata"
    log.mkdir()
    (log / "9.compact").write_text("\n".join(["v1", *(json.dumps({"path": f.as_uri(), "size": 1}) for f in files)]))
    return found


def merged(_spark: Any, _sink: Path, folder: Path, lines: list[str]) -> str:
    """Stand in for Spark's merge; a missing file is a fault."""
    for line in lines:
        if not (folder / json.loads(line)["path"].rpartition("/")[2]).exists():
            raise RuntimeError("PATH_NOT_FOUND")
    file = folder / "part-compacted.parquet"
    file.touch()
    return json.dumps({"path": file.as_uri(), "size": 1})


def test_an_unreadable_day_does_not_keep_the_others_from_being_compacted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction, "_merge_files", merged)
    sink = tmp_path / "files-0"
    files = small(sink, "2026-01-01", "2026-01-02", "2026-01-03")
    files["2026-01-02"][3].unlink()
    with pytest.raises(RuntimeError):
        compact(None, sink, TODAY)  # type: ignore[arg-type]
    lines = (sink / "_spark_metadata" / "9.compact").read_text().splitlines()[1:]
    names = [unquote(json.loads(line)["path"]).split("/")[-2:] for line in lines]
    assert sorted(day for day, name in names if name == "part-compacted.parquet") == [
        "day=2026-01-01",
        "day=2026-01-03",
    ]
    assert [day for day, _ in names].count("day=2026-01-02") == MIN_FILES


def test_old_days_leave_the_log_at_once_and_the_disk_a_day_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction, "_merge_files", merged)
    sink = tmp_path / "files-0"
    files = small(sink, "2026-01-21", "2026-01-22")
    assert compact(None, sink, TODAY, 10) == MIN_FILES - 1  # type: ignore[arg-type]
    assert [path.parent.name for path in data_files(sink)] == ["day=2026-01-22"]
    assert all(file.exists() for file in files["2026-01-21"]), "a reader may still use them"
    for file in files["2026-01-21"]:
        os.utime(file, (time.time() - REMOVAL_DELAY_S - 60,) * 2)
    compact(None, sink, TODAY, 10)  # type: ignore[arg-type]
    assert not any(file.exists() for file in files["2026-01-21"])
    # Also where there is nothing to merge.
    compact(None, sink, TODAY, 9)  # type: ignore[arg-type]
    assert data_files(sink) == []


def test_replaced_files_stay_for_a_day_even_if_compaction_is_killed_after_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction, "_merge_files", merged)
    sink = tmp_path / "files-0"
    files = small(sink, "2026-01-01")["2026-01-01"]
    exchange = compaction._replace_log

    def ends(*given: Any) -> None:
        exchange(*given)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(compaction, "_replace_log", ends)
        compact(None, sink, TODAY)  # type: ignore[arg-type]
    compact(None, sink, TODAY)  # type: ignore[arg-type]
    assert all(file.exists() for file in files)
