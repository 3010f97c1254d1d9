"""diem.toml of a test, and the faults of a wrong one."""

from pathlib import Path

import pytest

from services.data.sources.config import BadConfig, load


def write(path: Path, text: str) -> Path:
    file = path / "diem.toml"
    file.write_text(text)
    return file


def assert_fault(path: Path, text: str, expected: str) -> None:
    """Check that a configuration is refused, and that a line about it begins with the file and this text."""
    file = write(path, text)
    with pytest.raises(BadConfig) as caught:
        load(file)
    assert f"{file}: {expected}" in f"{caught.value}\n"
