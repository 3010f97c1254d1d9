import json
from pathlib import Path

from metadata.jobs.behind import unread_files


def test_files_that_are_being_written_are_not_unread(tmp_path: Path) -> None:
    folder, checkpoint = tmp_path / "in", tmp_path / "checkpoint"
    folder.mkdir()
    for name in ("read.jsonl", "new.jsonl", ".websocket-1-0a-1.jsonl", "other.txt"):
        (folder / name).touch()
    (checkpoint / "sources" / "0").mkdir(parents=True)
    (checkpoint / "commits").mkdir()
    (checkpoint / "commits" / "0").touch()
    entry = json.dumps({"path": (folder / "read.jsonl").as_uri(), "batchId": 0})
    (checkpoint / "sources" / "0" / "0").write_text(f"v1\n{entry}")
    assert unread_files(folder, checkpoint).unread == 1
    assert unread_files(tmp_path / "nowhere", tmp_path).unread == 0
