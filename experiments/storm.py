"""``make bench-storm``: the WebSocket server of ``diem up`` is killed with all of its clients; time until all are live.

The clients reconnect by the protocol's back-off, from 50 to an address. The whole system shares one core, and the
clients have the other. Beside them, viewers of another endpoint, which is written 20 times a second, reconnect at once:
how late are their updates while the others return? ``QUICK=1``: one outage of 2,000 clients.
"""

import asyncio
import contextlib
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import httpx
import orjson
import uvloop
from websockets.asyncio.client import connect
from websockets.exceptions import WebSocketException
from websockets.typing import Subprotocol

from tests.bench.drain import Lost, own_core, pin
from tests.bench.figures import Figure, figure, goal
from tests.bench.native import program
from tests.bench.procfs import cost, rss_kib
from tests.bench.report import Report
from tests.load.bench import exit_code, write
from tests.load.system import System
from tests.support.commandline import parser
from tests.support.patience import PATIENCE_S
from tests.support.size import sized

LIVE_S, LATE_S = 8.0, 1.0
PER_ADDRESS: Final = 50
ENDPOINT, OTHER = "/storm/all", "/storm/other"
VIEWERS: Final = 5
WRITE_EVERY_S: Final = 0.05
FIRST_RATE: Final = 1000
"""First dials a second; those that are refused come back."""
HELD_S: Final = 2.0
"""Time between two outages."""
SERVER: Final = "websocket-1"


class Outage(NamedTuple):
    """What followed the loss of a server."""

    ready_s: float
    """From the kill to the end of the server's start."""
    half_s: float
    """From the kill until so many clients were live: half of them, 99 %, all."""
    most_s: float
    all_s: float
    cpu_s: float
    """Of the new server, from its exec until all were live."""
    waited_s: float
    """Time for which it was ready to run, and had no core."""
    attempts: float
    """Dials for each client."""
    refused: float
    """Answers for each client that were no WebSocket."""
    late_s: float
    """Longest delay of an update for a viewer of another endpoint, while it was connected."""
    rss_mib: float


class Storm:
    """The clients."""

    def __init__(self, process: asyncio.subprocess.Process, count: int) -> None:
        self._process = process
        self.count = count

    async def all_live(self, since: float = 0.0) -> list[float]:
        """Wait until all are live after a loss, and return when (LOST, T50, T99, T100), with ATTEMPTS and REFUSED."""
        assert self._process.stdout is not None
        async with asyncio.timeout(2 * PATIENCE_S):
            while line := await self._process.stdout.readline():
                found = [float(each) for each in line.split()]
                if found[0] >= since:
                    return found
        raise Lost("the clients ended")


@contextlib.asynccontextmanager
async def storming(port: int, path: str, count: int, core: int | None) -> AsyncIterator[Storm]:
    """Run the clients."""
    arguments = map(str, (port, count, 2, path, ENDPOINT, FIRST_RATE))
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(program("storm"), *arguments, stdin=pipe, stdout=pipe)
    pin(process.pid, core)
    try:
        yield Storm(process, count)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        await process.wait()


class Viewers:
    """Clients that return at once, and the delays of their updates."""

    def __init__(self, system: System) -> None:
        self._system = system
        host, port, path = system.servers[0]
        self._url = f"ws://{host}:{port}{path}"
        self._written: dict[int, float] = {}
        self.delays: list[tuple[float, float]] = []
        """When each update arrived, and how late."""

    async def write(self) -> None:
        """Write until cancelled."""
        headers = {"Authorization": f"Bearer {self._system.write_key}", "Content-Type": "application/json"}
        async with httpx.AsyncClient(timeout=PATIENCE_S, trust_env=False) as http:
            number = 0
            while True:
                number, began = number + 1, time.monotonic()
                self._written[number] = began
                answer = await http.put(f"{self._system.rest}/v1/data{OTHER}", headers=headers, content=b"%d" % number)
                answer.raise_for_status()
                await asyncio.sleep(max(0.0, began + WRITE_EVERY_S - time.monotonic()))

    async def view(self, address: str) -> None:
        """View until cancelled, with the data of updates, which is the number of the write."""
        subscribe = orjson.dumps({"type": "subscribe", "id": 1, "endpoints": {OTHER: None}, "data": True}).decode()
        while True:
            with contextlib.suppress(OSError, WebSocketException):
                options: dict[str, Any] = {"local_addr": (address, 0), "proxy": None, "compression": None}
                async with connect(self._url, subprotocols=[Subprotocol("diem.v1.json")], **options) as connection:
                    await connection.send(subscribe)
                    replayed = False
                    async for text in connection:
                        arrived, frame = time.monotonic(), orjson.loads(text)
                        if frame["type"] == "update" and replayed:
                            self.delays.append((arrived, arrived - self._written[frame["data"]]))
                        # The first one was written before the client was there.
                        replayed = replayed or frame["type"] == "update"
            await asyncio.sleep(WRITE_EVERY_S)


async def outage(system: System, storm: Storm, viewers: Viewers) -> Outage:
    """Kill the server, and wait until all clients are live."""
    viewers.delays.clear()
    began = time.monotonic()
    killed = await system.kill(SERVER)
    ready = await system.back(SERVER, killed)
    pid = system.process(SERVER).pid or 0
    _, half, most, last, attempts, refused = await storm.all_live(began)
    spent = cost(pid)
    await asyncio.sleep(0.2)
    late = [delay for arrived, delay in viewers.delays if began < arrived < last]
    return Outage(
        *(round(each - began, 3) for each in (ready, half, most, last)),
        round(spent.cpu, 3),
        round(spent.waited, 3),
        round(attempts / storm.count, 2),
        round(refused / storm.count, 2),
        round(max(late, default=PATIENCE_S), 3),
        round(rss_kib(pid) / 1024, 1),
    )


class Size(NamedTuple):
    """How much is measured."""

    clients: tuple[int, ...]
    outages: int


async def measure(size: Size, report: Report, cores: tuple[int | None, int | None]) -> dict[str, list[Outage]]:
    """Return the outages by number of clients."""
    found: dict[str, list[Outage]] = {}
    for clients in size.clients:
        with tempfile.TemporaryDirectory() as name:
            async with contextlib.AsyncExitStack() as stack:
                settings = {"DIEM_WEBSOCKET_CAPACITY": str(clients + 100)}
                options = ("--traffic", "off", "--clients-per-address", str(PER_ADDRESS))
                with _pinned(cores[0]):
                    system = await stack.enter_async_context(System("single", Path(name), options, settings))
                _, port, path = system.servers[0]
                viewers = Viewers(system)
                tasks = [
                    asyncio.create_task(viewers.write()),
                    *(asyncio.create_task(viewers.view(f"127.0.3.{number}")) for number in range(1, VIEWERS + 1)),
                ]
                for task in tasks:
                    stack.callback(task.cancel)
                report.step(f"{clients} clients connect")
                storm = await stack.enter_async_context(storming(port, path, clients, cores[1]))
                await storm.all_live()
                for number in range(1, size.outages + 1):
                    await asyncio.sleep(HELD_S)
                    report.step(f"outage {number} of {clients} clients")
                    found.setdefault(str(clients), []).append(await outage(system, storm, viewers))
                    if failed := next((task for task in tasks if task.done()), None):
                        failed.result()
    return found


@contextlib.contextmanager
def _pinned(core: int | None) -> Iterator[None]:
    before = os.sched_getaffinity(0)
    pin(0, core)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark; return the exit code."""
    parser(__spec__, __doc__, report="build/bench/storm.json", quick="").parse_args(argv)
    size = sized(Size((5000, 10_000), 3), Size((2000,), 1), Size((100,), 1))
    cores = own_core()
    with Report(len(size.clients) * (1 + size.outages)) as report:
        found = uvloop.run(measure(size, report, cores))
    figures: dict[str, dict[str, Figure]] = {
        clients: {name: figure([each._asdict()[name] for each in outages]) for name in Outage._fields}
        for clients, outages in found.items()
    }
    report.medians(figures)
    goals = [
        each
        for clients, of in figures.items()
        for each in (
            goal(f"{clients} clients live after a kill", "s", LIVE_S, of["all_s"]),
            goal(f"updates of others while {clients} return", "s late", LATE_S, of["late_s"]),
        )
    ]
    report.goals(goals)
    print(f"written: {write('storm', {'outages': figures, 'load': os.getloadavg()[0]}, goals)}")
    return exit_code(goals)


if __name__ == "__main__":
    sys.exit(main())
