"""What is removed of the files that no log names; the rest needs Spark."""

import json
import os
import time
from pathlib import Path

import pytest

from metadata.jobs.compaction import KEPT_S, remove_unnamed


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


def test_only_what_no_log_names_for_a_day_is_removed(tmp_path: Path) -> None:
    sink = tmp_path / "files-0"
    named, old, new = (data(sink, n, age) for n, age in (("a", 9 * KEPT_S), ("b", KEPT_S + 60), ("c", KEPT_S - 60)))
    logged(sink, named)
    remove_unnamed(sink)
    assert [file.exists() for file in (named, old, new)] == [True, False, True]


@pytest.mark.parametrize("before", ["elsewhere/files-0", "files-1"])
def test_nothing_that_counts_is_removed_of_a_folder_that_was_moved_or_renamed(tmp_path: Path, before: str) -> None:
    sink = tmp_path / "files-0"
    file = data(sink, "a", 9 * KEPT_S)
    logged(sink, tmp_path / before / file.relative_to(sink))
    remove_unnamed(sink)
    assert file.exists()
