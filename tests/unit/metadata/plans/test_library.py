from pathlib import Path

import pytest

from metadata.plans import library
from metadata.plans.library import Library, NotKept
from metadata.plans.plan import Plan


def plan(number: int) -> Plan:
    return Plan(epoch=number, partitions=4, homes={"/a": 1}, created=f"2026-01-02T03:04:{number:02}Z")


def test_plans_and_what_they_replaced_outlive_the_process(tmp_path: Path) -> None:
    Library(tmp_path / "new").put(plan(1))
    Library(tmp_path / "new").put_before(plan(1).id, {"/a": 3})
    again = Library(tmp_path / "new")
    assert (again.names(), again.get(plan(1).id), again.before(plan(1).id)) == ([plan(1).id], plan(1), {"/a": 3})


def test_of_too_many_the_first_are_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "KEPT", 3)
    kept = Library(tmp_path)
    for number in range(5):
        kept.put(plan(number))
        kept.put_before(plan(number).id, {})
    assert kept.names() == [plan(number).id for number in (2, 3, 4)]
    assert len(list(tmp_path.iterdir())) == 6


def test_a_name_is_no_path(tmp_path: Path) -> None:
    (tmp_path / "secret.plan").write_text("x")
    assert Library(tmp_path / "plans").get("../secret") is None


def test_a_directory_that_cannot_be_written_to_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(NotKept, match="cannot be kept"):
        Library(tmp_path / "file").put(plan(1))
