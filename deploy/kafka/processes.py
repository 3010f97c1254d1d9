"""Starts and ends the brokers' processes, which end with their parent; diagnoses ended ones."""

import shutil
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

_GUARD: Final = Path(__file__).parents[1] / "system" / "pdeathsig.py"


def start(argv: Sequence[str], log: Path, directory: Path) -> "subprocess.Popen[bytes]":
    """Start a process that gets SIGTERM when the calling thread ends, but no Ctrl-C; append to ``log``."""
    with log.open("ab") as output:
        return subprocess.Popen(  # noqa: S603  # the caller made the command line
            [sys.executable, "-I", "-S", str(_GUARD), *argv],
            stdin=subprocess.PIPE,  # the guard detects our death by it
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=directory,
            start_new_session=True,
        )


FULL_BYTES: Final = 32 * 1024 * 1024
"""Free space below which a broker cannot start: it allocates 10 MiB for each index of an opened log."""


def full_disk(directory: Path) -> str:
    """Return a message if the disk of a broker's directory is full; empty if it has room or cannot be measured.

    Measured, not read from the log: a broker's last line on a full disk names another cause, or is lost.
    """
    try:
        free = shutil.disk_usage(directory).free
    except OSError:
        return ""
    return f"disk full: {free // 1024:,} KiB are free for {directory}" if free < FULL_BYTES else ""


def end(process: "subprocess.Popen[bytes]", within: float) -> None:
    """Terminate a process, and kill it unless it ends ``within`` seconds; blocking."""
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(within)
    reap(process)


def reap(process: "subprocess.Popen[bytes]") -> None:
    """Kill a process, possibly ended already; blocks until the system has removed it."""
    process.kill()
    process.wait()
    if process.stdin is not None:
        process.stdin.close()
