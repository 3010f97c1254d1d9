import tempfile
from pathlib import Path

import pytest

from metadata.jobs.spark_session import scratch_folder


@pytest.fixture(autouse=True)
def temporary(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_folder_is_removed_with_what_is_in_it(temporary: Path) -> None:
    with scratch_folder() as folder:
        (folder / "some").mkdir()
        assert folder.parent == temporary
    assert list(temporary.iterdir()) == []


def test_folder_that_a_killed_process_left_behind_is_removed_by_the_next_one(temporary: Path) -> None:
    left = temporary / "diem-spark-left"
    (left / "blocks").mkdir(parents=True)
    (left / "lock").touch()
    with scratch_folder() as first, scratch_folder() as second:
        assert sorted(temporary.iterdir()) == sorted((first, second))


def test_what_is_not_ours_is_left_alone(temporary: Path) -> None:
    elsewhere = temporary / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "lock").touch()
    (temporary / "diem-spark-link").symlink_to(elsewhere)
    (temporary / "diem-spark-without").mkdir()
    with scratch_folder():
        pass
    assert sorted(path.name for path in temporary.iterdir()) == ["diem-spark-link", "diem-spark-without", "elsewhere"]
    assert (elsewhere / "lock").exists()
