"""The command `diem` as a person runs it, in an empty directory."""

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from deploy import cli


@pytest.fixture
def diem(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., int]:
    """Return a function that runs the command in this process and returns its exit code, on two cores."""
    for name in [name for name in os.environ if name.startswith("DIEM_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("deploy.cli.up.usable_cores", lambda: 2)

    def call(*arguments: str) -> int:
        monkeypatch.setattr(sys, "argv", ["diem", *arguments])
        with pytest.raises(SystemExit) as caught:
            cli.app()
        assert isinstance(caught.value.code, int)
        return caught.value.code

    return call
