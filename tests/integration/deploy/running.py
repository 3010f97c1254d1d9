"""`diem` as a user runs it: as a program, in a state directory of its own."""

import asyncio
import json
import os
import sys
import time
from asyncio.subprocess import PIPE, STDOUT, Process
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from deploy.system import control
from deploy.system.state_dir import StateDir
from tests.support.patience import PATIENCE_S, until

DIEM = (sys.executable, "-m", "deploy")
ROOT = Path(__file__).parents[3]


def report_of(status: dict[str, dict[str, Any]], name: str) -> dict[str, Any]:
    """Return the report of a process; empty if it did not answer in time."""
    report: dict[str, Any] = status[name]["report"] or {}
    return report


def fine(status: dict[str, dict[str, Any]]) -> bool:
    """Return whether every process is live, or ready if it does not report liveness."""
    reports = [entry["report"] or {} for entry in status.values()]
    return all(report.get("ready") and report.get("live", True) for report in reports)


def environment() -> dict[str, str]:
    """Return the environment without DIEM's settings, in a checkout or not."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("DIEM_") or "FACTOR" in name}
    return {**kept, "PYTHONPATH": str(ROOT)}


async def diem(*arguments: str, cwd: Path, stdin: bytes = b"") -> tuple[int, str, str]:
    """Run a command to its end; return exit code, standard output and standard error."""
    process = await asyncio.create_subprocess_exec(
        *DIEM, *arguments, cwd=cwd, env=environment(), stdin=PIPE, stdout=PIPE, stderr=PIPE
    )
    async with asyncio.timeout(PATIENCE_S):
        out, err = await process.communicate(stdin)
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


class Running:
    """A `diem up` that is ready."""

    def __init__(self, cwd: Path, process: Process) -> None:
        self.cwd = cwd
        self.process = process
        self.output: list[str] = []

    def described(self) -> dict[str, Any]:
        """Return `processes.json`."""
        try:
            described: dict[str, Any] = json.loads((self.cwd / ".diem" / "processes.json").read_text())
        except OSError:
            described = {}
        return described if described.get("pid") == self.process.pid else {"up": False, "processes": []}

    def pids(self) -> dict[str, int]:
        """Return the running children."""
        return {entry["name"]: entry["pid"] for entry in self.described()["processes"] if entry["pid"]}

    async def follow(self) -> None:
        """Collect its output."""
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            self.output.append(line.decode().rstrip())

    async def status(self) -> dict[str, dict[str, Any]]:
        """Return the processes of `diem status --json` by name."""
        code, out, err = await diem("status", "--json", cwd=self.cwd)
        assert code == 0, err
        return {entry["name"]: entry for entry in json.loads(out)["processes"]}

    async def until_status(self, condition: Callable[[dict[str, dict[str, Any]]], bool]) -> dict[str, dict[str, Any]]:
        """Wait until the status fulfils `condition`.

        It asks as the command does, without a process for each time.
        """
        state = StateDir(self.cwd / ".diem")
        deadline = time.monotonic() + PATIENCE_S
        while True:
            answer = await control.request(state, "status")
            status = {entry["name"]: entry for entry in answer["processes"]}
            if condition(status):
                return status
            assert time.monotonic() < deadline, status
            await asyncio.sleep(0.25)


@asynccontextmanager
async def up(cwd: Path, *options: str, launcher: Sequence[str] = (), market: bool = False) -> AsyncIterator[Running]:
    """Run `diem up`, started by a launcher if there is one, until the block ends; it is ready when the block begins.

    Without a `diem.toml` in the directory it has the simulated `market`, or no source: the first 190 datasets take half
    a second of CPU time. Without a mode it is `single`, whatever the number of cores.
    """
    if not market and not (cwd / "diem.toml").exists():
        (cwd / "diem.toml").write_text("source = []\n")
    if "--mode" not in options:
        options = ("--mode", "single", *options)
    process = await asyncio.create_subprocess_exec(
        *launcher, *DIEM, "up", "--free-ports", *options, cwd=cwd, env=environment(), stdout=PIPE, stderr=STDOUT
    )
    running = Running(cwd, process)
    following = asyncio.create_task(running.follow())
    try:
        await until(lambda: running.described()["up"] or process.returncode is not None)
        assert process.returncode is None, running.output
        yield running
    finally:
        if process.returncode is None:
            process.terminate()
        async with asyncio.timeout(PATIENCE_S):
            await process.wait()
            await following
