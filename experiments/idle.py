"""Cost per second of an idle connection, at servers that have nothing else."""

import asyncio
import contextlib
import time
from collections.abc import Sequence
from pathlib import Path

from experiments.regression import Estimate, Quantities, fit
from tests.bench.drain import draining
from tests.bench.procfs import cost
from tests.bench.servers import diem

Cores = tuple[int | None, int | None]


class Idle:
    """One server for each number of ``connections``."""

    def __init__(self, directory: Path, program: Path, cores: Cores, connections: Sequence[int]) -> None:
        self._directory = directory
        self._program = program
        self._cores = cores
        self._connections = connections
        self._pids: list[tuple[int, int]] = []

    async def start(self, stack: contextlib.AsyncExitStack) -> None:
        """Start all at once, with their connections."""
        await asyncio.gather(*(self._start(stack, number) for number in self._connections))

    async def _start(self, stack: contextlib.AsyncExitStack, connections: int) -> None:
        folder = self._directory / f"idle-{connections}"
        folder.mkdir()
        core, other = self._cores
        server = await stack.enter_async_context(diem(folder, core=core))
        if connections:
            clients = draining(self._program, server.port, connections, net=1, core=other)
            await stack.enter_async_context(clients)
        self._pids.append((connections, server.pid))

    async def measure(self, slices: int, seconds: float) -> dict[str, Estimate]:
        """Return the CPU seconds per second of one more connection, measured over a full period of the pings."""
        there: list[Quantities] = []
        spent: list[float] = []
        for _ in range(slices):
            began, before = time.monotonic(), self._spent()
            await asyncio.sleep(seconds)
            lasted, after = time.monotonic() - began, self._spent()
            for connections, pid in self._pids:
                there.append({"process": 1.0, "connections": float(connections)})
                spent.append((after[pid] - before[pid]) / lasted)
        return {"connection_us_per_s": fit(there, spent, [1.0] * len(spent))["connections"]}

    def _spent(self) -> dict[int, float]:
        return {pid: cost(pid).cpu for _, pid in self._pids}
