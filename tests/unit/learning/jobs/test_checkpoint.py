"""Spark's checkpoint as Spark 4.0 writes it; tests/integration/pipeline/test_ingest.py reads those of the real one."""

import json
import os
from pathlib import Path

import pytest

from learning.jobs import checkpoint
from learning.jobs.checkpoint import (
    begin_anew,
    last_committed,
    query_id,
    read_files,
    read_offsets,
    remove_ingested,
)


def entry(path: str, **more: object) -> str:
    return json.dumps({"path": f"file://{path}", "timestamp": 1, "batchId": 0} | more)


def batch(log: Path, name: str, *lines: str, version: str = "v1") -> None:
    log.mkdir(parents=True, exist_ok=True)
    (log / name).write_text("\n".join((version, *lines)))


def test_read_files_are_those_in_the_log_from_its_last_compact_file_on(tmp_path: Path) -> None:
    log = tmp_path / "sources" / "0"
    batch(log, "8", entry("/in/old", batchId=8))
    batch(log, "9.compact", entry("/in/a%20b", batchId=8), entry("/in/c", batchId=9))
    batch(log, "9", entry("/in/also-old", batchId=9))
    batch(log, "10", entry("/in/d", batchId=10))
    batch(log, ".11.tmp", entry("/in/half", batchId=10))
    batch(log, ".10.crc", "no log")
    batch(tmp_path / "commits", "10", "{}")
    assert read_files(tmp_path) == [Path("/in/a b"), Path("/in/c"), Path("/in/d")]


def test_a_log_of_another_version_is_refused(tmp_path: Path) -> None:
    batch(tmp_path / "commits", "0", "{}")
    batch(tmp_path / "sources" / "0", "0", entry("/a"), version="v2")
    with pytest.raises(ValueError, match="v2"):
        read_files(tmp_path)


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


def test_the_identity_of_the_query_is_that_of_its_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "metadata").write_text('{"id":"6c0e2b0e-0c29-4f4c-9d0c-9f6cb0a1d8f1"}')
    assert query_id(tmp_path) == "6c0e2b0e-0c29-4f4c-9d0c-9f6cb0a1d8f1"


def test_files_of_later_batches_are_removed_alone(tmp_path: Path) -> None:
    files = [tmp_path / name for name in "abc"]
    for file in files:
        file.touch()
    recent = {"timestamp": 2**60}
    log = tmp_path / "sources" / "0"
    batch(log, "1.compact", *(entry(str(file), batchId=number, **recent) for number, file in enumerate(files[:2])))
    batch(log, "2", entry(str(files[2]), batchId=2, **recent))
    batch(tmp_path / "commits", "2", "{}")
    assert read_files(tmp_path, 1) == files[1:]
    remove_ingested(tmp_path, 2)
    assert [file.exists() for file in files] == [True, True, False]


@pytest.mark.parametrize("needed", [None, "few", "a file is there", "a batch is not committed"])
def test_a_long_list_of_removed_files_is_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, needed: str | None
) -> None:
    monkeypatch.setattr(checkpoint, "MAX_REMOVED", 3 if needed == "few" else 2)
    own, file = tmp_path / "files-1", tmp_path / "b"
    batch(own / "sources" / "0", "1.compact", entry("/in/a", batchId=0), entry(str(file), batchId=1))
    batch(own / "offsets", "1")
    batch(own / "commits", "1", "{}")
    if needed == "a file is there":
        file.touch()
    if needed == "a batch is not committed":
        batch(own / "offsets", "2")
    assert begin_anew(own) == (needed is None)
    assert own.exists() == (needed is not None)
    assert not begin_anew(tmp_path / "never used")
