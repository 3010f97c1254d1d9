"""``make bench-polling``: the requests at an API whose endpoints are polled while they are watched (ADR 38).

2,000 clients of four servers in mode x watch 1,000 endpoints of one ``http`` source with ``{rest}`` in its URL. A
server of this process counts the requests by endpoint: while nobody watches; in quiet; after kill -9 of a server and of
the Data Service; while the system is scaled to three servers and back; and after the last client has left. Once the
documents stop changing, every client must have the latest version of each. ``QUICK=1``: 300 endpoints and clients.
"""

import asyncio
import sys
import tempfile
from bisect import bisect_left
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import pairwise
from pathlib import Path
from time import monotonic, time
from typing import Any, Final, NamedTuple
from zlib import crc32

import httpx

from tests.bench.report import Report
from tests.load.bench import Goal, exit_code, write
from tests.load.client_process import ClientProcess
from tests.load.clients import Plan
from tests.load.environment import CONNECTS_PER_S, PER_ADDRESS
from tests.load.system import System
from tests.support.commandline import parser
from tests.support.patience import PATIENCE_S
from tests.support.size import sized

MODE: Final = "x"
SERVERS: Final = sized(4, 4, 2)
ENDPOINTS: Final = sized(1_000, 300, 20)
CLIENTS: Final = sized(2_000, 300, 10)
SUBSCRIPTIONS: Final = sized(5, 10, 10)
EVERY_S: Final = sized(30.0, 5.0, 1.0)
INTERVALS: Final = sized(2, 3, 2)
"""Length of each phase."""
CHANGES_S: Final = 3 * EVERY_S
"""Seconds between two changes of a document."""
LEFT_S: Final = 1.0
"""Seconds after which no request may follow the last client."""
BEFORE, QUIET, DATA_KILLED = "nobody watches", "quiet", "kill -9 of the Data Service"
RATE, BUSIEST = "for each endpoint and interval", "in the busiest interval"
TABLE: Final = """
[[source]]
type = "http"
name = "orders"
url = "http://127.0.0.1:{port}/{{rest}}"
prefix = "/orders"
kind = "document"
every = {every}
"""


class Api:
    """The server of the documents: each changes every :data:`CHANGES_S`, with a new ETag."""

    def __init__(self) -> None:
        self.requests: list[tuple[float, str]] = []
        """Time and path of each request."""
        self.unchanged = 0
        """Answers with status 304."""
        self._frozen_at: float | None = None

    def freeze(self) -> None:
        """Change no document from now on."""
        self._frozen_at = time()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one connection."""
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                path = head.split(" ", 2)[1]
                self.requests.append((monotonic(), path))
                now = self._frozen_at or time()
                number = int(now / CHANGES_S + crc32(path.encode()) / (1 << 32))
                if f'"{number}"' in head:
                    self.unchanged += 1
                    writer.write(b'HTTP/1.1 304 X\r\nETag: "%d"\r\n\r\n' % number)
                    continue
                body = b'{"order":"%b","state":%d}' % (path.encode(), number)
                fields = b'ETag: "%d"\r\nContent-Type: application/json\r\nContent-Length: %d' % (number, len(body))
                writer.write(b"HTTP/1.1 200 X\r\n" + fields + b"\r\n\r\n" + body)
        except (OSError, asyncio.IncompleteReadError):
            writer.close()

    def gaps(self) -> list[float]:
        """Return the times between two requests of the same endpoint."""
        times: dict[str, list[float]] = defaultdict(list)
        for at, path in self.requests:
            times[path].append(at)
        return [b - a for each in times.values() for a, b in pairwise(each)]


@asynccontextmanager
async def api() -> AsyncIterator[tuple[Api, int]]:
    """Run the server of the documents."""
    made = Api()
    async with await asyncio.start_server(made.serve, "127.0.0.1", 0) as server:
        yield made, server.sockets[0].getsockname()[1]
        server.close()


class Phase(NamedTuple):
    """A part of the run."""

    name: str
    start: float
    end: float

    def row(self, times: Sequence[float]) -> dict[str, float]:
        """Return what was requested in it; ``times`` are those of all requests, sorted."""
        first, last = (bisect_left(times, at) for at in (self.start, self.end))
        ends = (bisect_left(times, times[index] + EVERY_S, hi=last) - index for index in range(first, last))
        seconds = self.end - self.start
        return {
            "seconds": round(seconds, 1),
            "requests": last - first,
            RATE: round((last - first) * EVERY_S / seconds / ENDPOINTS, 3),
            BUSIEST: round(max(ends, default=0) / ENDPOINTS, 3),
        }


async def observe(name: str, work: Callable[[], Awaitable[Any]] | None = None) -> Phase:
    """Let requests be counted during ``work``, and for :data:`INTERVALS` intervals at least."""
    start = monotonic()
    if work is not None:
        await work()
    await asyncio.sleep(max(0.0, start + INTERVALS * EVERY_S - monotonic()))
    return Phase(name, start, monotonic())


async def killed(system: System, name: str) -> None:
    """Kill a process, and wait until it is ready again."""
    await system.back(name, await system.kill(name))


async def until_watched(system: System, count: int) -> None:
    """Wait until so many endpoints are watched."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            status = (await system.ask("data", "GET", "/status")).json()
            if status["sources"][0].get("progress") == f"{count} watched":
                return
            await asyncio.sleep(0.1)


async def latest(rest: str) -> dict[str, int]:
    """Return the versions of all endpoints in the catalogue."""
    found: dict[str, int] = {}
    async with httpx.AsyncClient(base_url=rest, trust_env=False, timeout=PATIENCE_S) as http:
        query: dict[str, str] = {}
        while True:
            page = (await http.get("/v1/endpoints", params=query)).json()
            found |= {each["endpoint"]: each["version"] for each in page["endpoints"]}
            if "next" not in page:
                return found
            query = {"after": page["next"]}


async def measure(report: Report) -> tuple[dict[str, Any], list[Goal]]:
    """Run all phases; return figures and goals."""
    names = [f"/orders/{number}" for number in range(ENDPOINTS)]
    phases: list[Phase] = []
    async with AsyncExitStack() as stack:
        made, port = await stack.enter_async_context(api())
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="diem-")))
        options = ("--servers", str(SERVERS), "--max-servers", str(SERVERS), "--partitions", "4")
        table = TABLE.format(port=port, every=EVERY_S)
        report.step(f"{SERVERS} servers in mode {MODE}")
        system = await stack.enter_async_context(System(MODE, folder, options, tables=table))
        phases.append(await observe(BEFORE))
        plan = Plan(
            servers=system.servers,
            rest=system.rest,
            endpoints=names,
            clients=CLIENTS,
            subscriptions=SUBSCRIPTIONS,
            addresses=max(16, CLIENTS // PER_ADDRESS),
            start_seconds=max(0.5, CLIENTS / CONNECTS_PER_S),
        )
        async with ClientProcess(plan) as clients:
            report.step(f"{CLIENTS} clients")
            await until_watched(system, ENDPOINTS)
            # The second poll of an endpoint follows the first within one and a half intervals.
            await asyncio.sleep(2 * EVERY_S)
            cpu = system.measure()
            for name, work in {
                QUIET: None,
                "kill -9 of a server": lambda: killed(system, "websocket-1"),
                DATA_KILLED: lambda: killed(system, "data"),
                "fewer servers": lambda: system.scale(SERVERS - 1),
                "more servers": lambda: system.scale(SERVERS),
            }.items():
                report.step(name)
                phases.append(await observe(name, work))
                if work is None:
                    cpu = {each: used - cpu.get(each, 0.0) for each, used in system.measure().items()}
            report.step("the documents stop changing")
            made.freeze()
            await asyncio.sleep(2 * EVERY_S)
            await clients.expect(await latest(system.rest))
            await clients.until(lambda figures: figures["behind"] == 0, PATIENCE_S)
            behind = clients.figures["behind"]
            unexplained = await system.unexplained()
        left = monotonic()
        report.step("nobody watches any more")
        await observe("")
    gaps = made.gaps()
    times = [at for at, _ in made.requests]
    rows = {phase.name: phase.row(times) for phase in phases}
    busy = [row for name, row in rows.items() if name != BEFORE]
    figures = {
        "mode": MODE,
        "servers": SERVERS,
        "endpoints": ENDPOINTS,
        "clients": CLIENTS,
        "subscriptions": CLIENTS * SUBSCRIPTIONS,
        "every_s": EVERY_S,
        "requests": len(made.requests),
        "not_modified": made.unchanged,
        "phases": rows,
        "shortest_gap_s": round(min(gaps), 3),
        "longest_gap_s": round(max(gaps), 3),
        "cpu_share_in_quiet": {name: round(used / rows[QUIET]["seconds"], 3) for name, used in cpu.items()},
    }
    total = sum(row["requests"] for row in busy) * EVERY_S / sum(row["seconds"] for row in busy) / ENDPOINTS
    # While the Data Service is down, nothing is polled.
    least = min(row[RATE] for name, row in rows.items() if name not in {BEFORE, DATA_KILLED})
    goals = [
        Goal(f"requests, {BEFORE}", "", 0, rows[BEFORE]["requests"]),
        Goal(f"requests later than {LEFT_S:g} s after the last client", "", 0, sum(at > left + LEFT_S for at in times)),
        Goal(f"requests {RATE}", "", 1.01, total),
        Goal(f"the same in the phase with most, {INTERVALS} intervals long", "", 1.05, max(row[RATE] for row in busy)),
        Goal("the same in the phase with least while there is a Data Service", "", 0.95, least, at_least=True),
        Goal(f"the same {BUSIEST}", "", 1.25, max(row[BUSIEST] for row in busy)),
        Goal("shortest time between two polls of an endpoint", "intervals", 0.4, min(gaps) / EVERY_S, at_least=True),
        Goal("clients' endpoints without the latest version at the end", "", 0, behind),
        Goal("restarts without a kill", "", 0, len(unexplained)),
    ]
    return figures, goals


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark; return the exit code."""
    parser(__spec__, __doc__, report="build/bench/polling.json", quick="").parse_args(argv)
    with Report(9, bar=False) as report:
        figures, goals = asyncio.run(measure(report))
    report.rows("Requests at the API", figures["phases"])
    report.goals(goals)
    print(f"written: {write('polling', figures, goals)}")
    return exit_code(goals)


if __name__ == "__main__":
    sys.exit(main())
