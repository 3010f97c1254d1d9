from pathlib import Path

import pytest

from diem.process.files import replace_file


def test_a_file_is_replaced_as_a_whole_whatever_a_killed_writer_left(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"before")
    (tmp_path / ".file.new").write_bytes(b"incomplete, and longer")
    with path.open("rb") as reader:
        replace_file(path, b"after")
        assert reader.read() == b"before"
    assert path.read_bytes() == b"after"
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_that_cannot_be_written_is_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"before")
    (tmp_path / ".file.new").mkdir()
    with pytest.raises(IsADirectoryError):
        replace_file(path, b"after")
    assert path.read_bytes() == b"before"
