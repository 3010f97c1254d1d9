"""Further processes of a load test: each is a ``diem load`` with a part of the clients, whose result is added."""

import asyncio
import json
import signal
import tempfile
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from deploy.system.launch import command, pdeathsig_command
from deploy.terminal import Terminal
from tools.load.result import BadResult, LoadResult

LATER_S: Final = 60.0
"""Time for the last process to compare, beyond that which each may wait for the last updates."""
_MESSAGE: Final = 500
"""Characters of a process's errors in a problem."""


def shares(clients: int, processes: int) -> list[int]:
    """Divide clients as evenly as possible; at most one process for each."""
    processes = min(processes, clients)
    return [clients // processes + (number < clients % processes) for number in range(processes)]


class LoadProcesses:
    """Runs the parts of a test in processes of their own, as an asynchronous context manager that ends them.

    Args:
        parts: the clients of each.
        arguments: of ``diem load`` for all of them, without those that this adds.
        rate: connections a second of each.
        within_s: longest time of a part.
        terminal: for progress.
    """

    def __init__(
        self, parts: Sequence[int], arguments: Sequence[str], rate: float, within_s: float, terminal: Terminal
    ) -> None:
        self._parts = parts
        self._arguments = arguments
        self._rate = rate
        self._within_s = within_s
        self._terminal = terminal
        self._folder = tempfile.TemporaryDirectory(prefix="diem-load-")
        self._running: list[Process] = []
        self._results: list[LoadResult] = []
        self._lost: dict[int, str] = {}
        """Clients of processes without a result, and why there is none, by number."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._running:
            if process.returncode is None:
                process.kill()
                await process.wait()
        self._folder.cleanup()

    async def start(self) -> None:
        """Start all of them."""
        for number, clients in enumerate(self._parts, 1):
            own = ("--clients", str(clients), "--rate", f"{self._rate:g}", "--seed", str(number))
            argv = (*command(), "load", *self._arguments, *own, "--json", str(self._file(number)), "--quiet")
            process = await asyncio.create_subprocess_exec(
                *pdeathsig_command(argv),
                stdin=DEVNULL,
                stdout=DEVNULL,
                stderr=PIPE,
                # Ctrl-C reaches this process alone, which interrupts them once.
                start_new_session=True,
            )
            self._running.append(process)

    async def finish(self) -> None:
        """Wait for all of them, and read their results."""
        with self._terminal.counting("other processes") as show:
            done = 0

            async def result(number: int, process: Process) -> None:
                nonlocal done
                await self._result(number, process)
                done += 1
                show(done, len(self._running))

            await asyncio.gather(*(result(number, process) for number, process in enumerate(self._running, 1)))

    def interrupt(self) -> None:
        """End them with what they have so far."""
        for process in self._running:
            if process.returncode is None:
                process.send_signal(signal.SIGINT)

    def results(self, mine: LoadResult) -> list[LoadResult]:
        """Return the results of all, with that of this process; of a process that has none its clients are missing."""
        lost = [
            LoadResult(
                **{name: getattr(mine, name) for name in ("base", "endpoints", "urls", "partitioned", "wait_s")},
                clients=self._parts[number - 1],
                subscribed=0,
                subscriptions=mine.subscriptions,
                problems=[why],
            )
            for number, why in self._lost.items()
        ]
        return [mine, *self._results, *lost]

    async def _result(self, number: int, process: Process) -> None:
        try:
            async with asyncio.timeout(self._within_s + LATER_S):
                _, errors = await process.communicate()
        except TimeoutError:
            process.kill()
            self._lost[number] = f"process {number + 1} did not end"
            return
        try:
            self._results.append(LoadResult.from_json(json.loads(self._file(number).read_text(encoding="utf-8"))))
        except (OSError, ValueError, BadResult):
            said = " ".join(errors.decode(errors="replace").split())[-_MESSAGE:]
            self._lost[number] = f"process {number + 1} ended without a result: {said or process.returncode}"

    def _file(self, number: int) -> Path:
        return Path(self._folder.name) / f"{number}.json"
