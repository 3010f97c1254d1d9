"""Starts and ends the brokers' processes: no broker without its parent, and what a log says at its end."""

import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

_GUARD: Final = Path(__file__).parents[1] / "system" / "pdeathsig.py"


def start(argv: Sequence[str], log: Path, directory: Path) -> "subprocess.Popen[bytes]":
    """Start a process that gets SIGTERM when the calling thread ends in any way, and no Ctrl-C; appends to `log`."""
    with log.open("ab") as output:
        return subprocess.Popen(  # noqa: S603  # the caller made the command line
            [sys.executable, "-I", "-S", str(_GUARD), *argv],
            stdin=subprocess.PIPE,  # the guard sees from it that we are there
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=directory,
            start_new_session=True,
        )


def last_line(log: Path) -> str:
    """Return the last line that says why a process ended, or nothing."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines() if log.exists() else []
    messages = [line for line in lines if line.strip() and not line.startswith(("\t", " "))]
    return messages[-1][:300] if messages else ""


def end(process: "subprocess.Popen[bytes]", within: float) -> None:
    """Ask a process to end, and kill it when it does not `within` seconds; blocks."""
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(within)
    reap(process)


def reap(process: "subprocess.Popen[bytes]") -> None:
    """End a process that may have ended already, as a crash would; blocks only while the system buries it."""
    process.kill()
    process.wait()
    if process.stdin is not None:
        process.stdin.close()
