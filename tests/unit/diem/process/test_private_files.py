"""Files of one user, created and replaced as a whole."""

from pathlib import Path

import pytest

from diem.process.private_files import create_private, replace_private


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


@pytest.mark.parametrize("sync", [False, True])
def test_a_file_is_replaced_as_a_whole(tmp_path: Path, sync: bool) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"before")
    path.chmod(0o644)
    with path.open("rb") as reader:
        replace_private(path, b"after", sync=sync)
        assert reader.read() == b"before"
    assert path.read_bytes() == b"after"
    assert path.stat().st_mode & 0o777 == 0o600
    assert names(tmp_path) == ["file"]


def test_a_file_that_exists_is_not_created_again(tmp_path: Path) -> None:
    path = tmp_path / "file"
    create_private(path, b"first")
    assert path.stat().st_mode & 0o777 == 0o600
    create_private(path, b"second")
    assert path.read_bytes() == b"first"
    assert names(tmp_path) == ["file"]


@pytest.mark.parametrize("step", ["os.fsync", "pathlib.Path.replace"])
def test_a_failure_leaves_the_file_as_it_was_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"before")

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(step, fail)
    with pytest.raises(OSError, match="No space"):
        replace_private(path, b"after", sync=True)
    assert path.read_bytes() == b"before"
    assert names(tmp_path) == ["file"]
