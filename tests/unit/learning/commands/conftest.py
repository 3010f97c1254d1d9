"""Commands of ``learning`` as a person runs them, in an empty directory."""

from collections.abc import Callable

import pytest

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(diem: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> Run:
    """Return a function that runs ``diem`` and returns its exit code, and what it has written."""

    def call(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        return diem(*arguments), *capsys.readouterr()

    return call
