import json
from pathlib import Path
from typing import Any

import pytest

from deploy.plans.journal import AlreadyPlanning, Journal
from deploy.plans.loop import Decision
from deploy.statedir import BadStateDir


def test_decisions_are_written_down(tmp_path: Path) -> None:
    said: list[str] = []
    journal = Journal(tmp_path / "state", said.append)
    with journal.held():
        journal.note(Decision("nothing", "it is even"), 1.26)
        journal.note(Decision("applied", "it pays", "p-1", None), 2.0)
    entries: list[dict[str, Any]] = [json.loads(line) for line in journal.file.read_text().splitlines()]
    assert [(entry["what"], entry["plan"], entry["seconds"]) for entry in entries] == [
        ("nothing", None, 1.3),
        ("applied", "p-1", 2.0),
    ]
    assert [line.split("  ", 1)[1] for line in said] == ["nothing: it is even", "applied p-1: it pays"]


def test_two_loops_of_a_state_directory_are_one_too_many(tmp_path: Path) -> None:
    first, second = Journal(tmp_path, print), Journal(tmp_path, print)
    with first.held(), pytest.raises(AlreadyPlanning, match=r"autoplan\.lock"), second.held():
        pass
    with second.held():
        pass


def test_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BadStateDir, match="file"), Journal(tmp_path / "file", print).held():
        pass
    said: list[str] = []
    Journal(tmp_path / "nowhere", said.append).note(Decision("nothing", "it is even"), 1.0)
    assert "was not written" in said[1]
