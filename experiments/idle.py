"""Cost per second of an idle connection, at servers and proxies that have nothing else."""

import asyncio
import contextlib
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from experiments.loads import Write, settle
from experiments.regression import Estimate, Quantities, fit
from tests.bench.drain import draining
from tests.bench.procfs import cost
from tests.bench.proxy import Kind, Proxied, proxied
from tests.bench.servers import diem

CLIENT, LINK, UPSTREAM = "connection_us_per_s", "proxy_connection_us_per_s", "upstream_us_per_s"
"""Costs: a client's connection at a server; a client's link to a server, at the proxy; the same at the server."""
KINDS: Final = (CLIENT, LINK, UPSTREAM)
Cores = tuple[int | None, int | None]


def writer(proxy: Proxied) -> Write:
    """Return a function that writes to the server behind a proxy."""

    async def write(names: Sequence[str]) -> None:
        proxy.publish(*names)

    return write


class Idle:
    """One server and one passthrough proxy, with a server of its own, for each number of ``connections``."""

    def __init__(self, directory: Path, program: Path, cores: Cores, connections: Sequence[int]) -> None:
        self._directory = directory
        self._program = program
        self._cores = cores
        self._connections = connections
        self._pids: dict[str, list[tuple[int, int]]] = {kind: [] for kind in KINDS}

    async def start(self, stack: contextlib.AsyncExitStack) -> None:
        """Start all at once, with their connections."""
        await asyncio.gather(*(self._start(stack, number) for number in self._connections))

    async def _start(self, stack: contextlib.AsyncExitStack, connections: int) -> None:
        direct, behind = (self._directory / f"{name}-{connections}" for name in ("direct", "behind"))
        direct.mkdir()
        behind.mkdir()
        core, other = self._cores
        server = await stack.enter_async_context(diem(direct, core=core))
        if connections:
            clients = draining(self._program, server.port, connections, net=1, core=other)
            await stack.enter_async_context(clients)
        proxy = await stack.enter_async_context(proxied(behind, Kind("passthrough", "unix"), self._cores))
        # All proxies have as many clients; as many of these as said subscribe, which takes a link for each.
        clients = draining(self._program, proxy.port, max(self._connections), net=1, core=other)
        drain = await stack.enter_async_context(clients)
        await settle(drain, [["/cost/idle"]] * connections, writer(proxy))
        for kind, pid in zip(KINDS, (server.pid, proxy.pid, proxy.server_pid), strict=True):
            self._pids[kind].append((connections, pid))

    async def measure(self, slices: int, seconds: float) -> dict[str, Estimate]:
        """Return the CPU seconds per second of one more connection, measured over a full period of the pings."""
        there: dict[str, list[Quantities]] = {kind: [] for kind in KINDS}
        spent: dict[str, list[float]] = {kind: [] for kind in KINDS}
        for _ in range(slices):
            began, before = time.monotonic(), self._spent()
            await asyncio.sleep(seconds)
            lasted, after = time.monotonic() - began, self._spent()
            for kind, found in self._pids.items():
                for connections, pid in found:
                    there[kind].append({"process": 1.0, "connections": float(connections)})
                    spent[kind].append((after[pid] - before[pid]) / lasted)
        return {kind: fit(there[kind], spent[kind], [1.0] * len(spent[kind]))["connections"] for kind in KINDS}

    def _spent(self) -> dict[int, float]:
        return {pid: cost(pid).cpu for found in self._pids.values() for _, pid in found}
