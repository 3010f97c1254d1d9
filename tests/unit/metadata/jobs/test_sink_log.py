"""Spark's logs as Spark 4.0 writes them."""

import json
import os
from pathlib import Path

import pytest

from metadata.jobs.sink_log import data_files, is_relocated, last_committed, read_files, read_offsets, remove_ingested


def entry(path: str, **more: object) -> str:
    return json.dumps({"path": f"file://{path}", "size": 1, "action": "add"} | more)


def batch(log: Path, name: str, *lines: str, version: str = "v1") -> None:
    log.mkdir(parents=True, exist_ok=True)
    (log / name).write_text("\n".join((version, *lines)))


def test_committed_files_are_those_in_the_log_from_its_last_compact_file_on(tmp_path: Path) -> None:
    log = tmp_path / "_spark_metadata"
    batch(log, "8", entry("/w/old"))
    batch(log, "9.compact", entry("/w/table=events/day=2026-01-01/a%20b"), entry("/w/table=quarantine/c"))
    batch(log, "9", entry("/w/also-old"))
    batch(log, "10", entry("/w/table=events/d"), entry("/w/gone", action="delete"))
    batch(log, ".11.tmp", entry("/w/half"))
    batch(log, ".10.crc", "no log")
    assert data_files(tmp_path) == [
        Path("/w/table=events/d"),
        Path("/w/table=events/day=2026-01-01/a b"),
        Path("/w/table=quarantine/c"),
    ]
    assert data_files(tmp_path, "quarantine") == [Path("/w/table=quarantine/c")]


def test_files_of_a_moved_folder_are_found_in_its_new_place(tmp_path: Path) -> None:
    sink = tmp_path / "files-0"
    batch(sink / "_spark_metadata", "0", entry(f"{sink}/table=events/b"))
    assert not is_relocated(sink)
    batch(sink / "_spark_metadata", "1", entry("/before/files-0/table=events/a"))
    assert is_relocated(sink)
    assert data_files(sink) == [sink / "table=events" / "a", sink / "table=events" / "b"]


def test_sink_without_a_log_has_no_files(tmp_path: Path) -> None:
    (tmp_path / "part-0.parquet").touch()
    assert data_files(tmp_path) == []


def test_a_log_of_another_version_is_refused(tmp_path: Path) -> None:
    batch(tmp_path / "_spark_metadata", "0", entry("/a"), version="v2")
    with pytest.raises(ValueError, match="v2"):
        data_files(tmp_path)


def test_a_file_counts_as_read_once_its_batch_is_committed(tmp_path: Path) -> None:
    batch(tmp_path / "sources" / "0", "0", entry("/in/a", batchId=0))
    assert (last_committed(tmp_path), read_files(tmp_path)) == (None, [])
    batch(tmp_path / "commits", "0", "{}")
    batch(tmp_path / "sources" / "0", "1", entry("/in/b", batchId=1))
    assert (last_committed(tmp_path), read_files(tmp_path)) == (0, [Path("/in/a")])


def test_a_file_that_replaces_one_already_read_does_not_count_as_read(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.touch()
    read_ms = file.stat().st_mtime_ns // 1_000_000
    batch(tmp_path / "sources" / "0", "0", entry(str(file), batchId=0, timestamp=read_ms))
    batch(tmp_path / "commits", "0", "{}")
    assert read_files(tmp_path) == [file]
    os.utime(file, ns=((read_ms + 1) * 1_000_000,) * 2)
    assert read_files(tmp_path) == []
    remove_ingested(tmp_path)
    assert file.exists()


def test_offsets_are_those_after_the_last_committed_batch(tmp_path: Path) -> None:
    assert read_offsets(tmp_path) == {}
    for number in (0, 1):
        batch(tmp_path / "offsets", str(number), "{}", json.dumps({"diem.traffic": {"0": 5 + number, "1": 7}}))
    batch(tmp_path / "commits", "0", "{}")
    assert read_offsets(tmp_path) == {"diem.traffic": {0: 5, 1: 7}}
