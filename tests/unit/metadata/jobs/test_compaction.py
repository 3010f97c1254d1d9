"""What is removed of the files that no log names, and what a day that cannot be read, or an end in the middle, leaves.

What Spark writes is tests/integration/pipeline/test_compaction.py.
"""

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
from metadata.jobs.compaction import KEPT_S, MIN_FILES, compact, remove_unreferenced


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
    remove_unreferenced(sink)
    assert [file.exists() for file in (named, old, new)] == [True, False, True]


@pytest.mark.parametrize("before", ["elsewhere/files-0", "files-1"])
def test_nothing_that_counts_is_removed_of_a_folder_that_was_moved_or_renamed(tmp_path: Path, before: str) -> None:
    sink = tmp_path / "files-0"
    file = data(sink, "a", 9 * KEPT_S)
    logged(sink, tmp_path / before / file.relative_to(sink))
    remove_unreferenced(sink)
    assert file.exists()


TODAY = date(2026, 2, 1)


def small(sink: Path, *days: str) -> dict[str, list[Path]]:
    """A sink with as many small files of each day as are made one."""
    found = {}
    for day in days:
        folder = sink / "table=events" / f"day={day}"
        folder.mkdir(parents=True)
        found[day] = [folder / f"part-{number}.parquet" for number in range(MIN_FILES)]
        for file in found[day]:
            file.touch()
            os.utime(file, (time.time() - 3 * KEPT_S,) * 2)
    files = [file for own in found.values() for file in own]
    log = sink / "_spark_metadata"
    log.mkdir()
    (log / "9.compact").write_text("\n".join(["v1", *(json.dumps({"path": f.as_uri(), "size": 1}) for f in files)]))
    return found


def merged(_spark: Any, _sink: Path, folder: Path, lines: list[str]) -> str:
    """As if Spark had read and written; a file that is not there is a fault."""
    for line in lines:
        if not (folder / json.loads(line)["path"].rpartition("/")[2]).exists():
            raise RuntimeError("PATH_NOT_FOUND")
    file = folder / "part-compacted.parquet"
    file.touch()
    return json.dumps({"path": file.as_uri(), "size": 1})


def test_a_day_that_cannot_be_read_does_not_keep_the_others_from_it(
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


def test_who_reads_the_old_files_keeps_them_for_a_day_wherever_it_ended(
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
