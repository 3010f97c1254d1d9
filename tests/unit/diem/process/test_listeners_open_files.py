"""The limit of open files, tested in child processes because a lowered hard limit cannot be raised again."""

import subprocess
import sys

import pytest

PROGRAM = """
import resource, sys
from diem.process.listeners import allow_connections
soft, hard, clients = map(int, sys.argv[1:])
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
allow_connections(clients)
print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
"""


@pytest.mark.parametrize(
    ("limits", "wanted", "expected", "warns"),
    [
        ((256, 1000), 500, 756, False),
        ((256, 700), 500, 700, True),
        ((1000, 1000), 100, 1000, False),
    ],
)
def test_limit_is_raised_for_the_clients_as_far_as_allowed(
    limits: tuple[int, int], wanted: int, expected: int, warns: bool
) -> None:
    argv = [sys.executable, "-c", PROGRAM, *map(str, (*limits, wanted))]
    ran = subprocess.run(argv, capture_output=True, text=True, check=True)
    assert int(ran.stdout.splitlines()[-1]) == expected
    assert ("the limit of open files is too low" in ran.stdout + ran.stderr) == warns
