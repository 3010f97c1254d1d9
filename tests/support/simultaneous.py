"""Python processes that act at the same moment."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def print_simultaneously(script: str, count: int) -> list[str]:
    """Release ``count`` processes at once and return what they print; all run until the last one has printed.

    A script gets ready, calls ``input()``, and then prints one line.
    """
    waiting = script + "\nsys.stdout.flush()\nsys.stdin.read()\n"
    made = [
        subprocess.Popen(
            [sys.executable, "-c", waiting], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(count)
    ]
    for process in made:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    printed = [process.stdout.readline() for process in made if process.stdout is not None]
    for process in made:
        process.communicate()
    return [word for line in printed for word in line.split()]
