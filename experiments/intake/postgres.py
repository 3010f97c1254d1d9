"""``make bench-postgres``: a Data Service follows a table of PostgreSQL: how fast, how soon, what kills lose.

Rows of 1 KB. A service on one core reads changes that were written before, and copies the table. Then a system of mode
single shows one row at a time. At last the service is killed at random under load, and the database crashes in between;
the oracle compares every version with the changes that triggers have noted. ``QUICK=1``: fewer rows and kills.
"""

import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final, NamedTuple

import orjson
from websockets import Subprotocol
from websockets.asyncio.client import connect

from diem.protocol.messages import SUBPROTOCOL
from experiments.intake.kills import Outcome, kill_again, status
from experiments.intake.rates import REST_S, Drained
from experiments.intake.table import TableOrigin
from tests.bench.drain import own_core
from tests.bench.procfs import cost
from tests.bench.report import Report
from tests.integration.data.process import serving
from tests.load.bench import Goal, exit_code, write
from tests.load.system import System
from tests.support.commandline import parser
from tests.support.patience import PATIENCE_S
from tests.support.postgres import running
from tests.support.size import SIZE, RunSize, sized

CHANGES: Final = sized(100_000, 20_000, 600)
KEYS: Final = sized(5000, 5000, 100)
LATENCIES: Final = sized(500, 100, 5)
KILLS: Final = sized(100, 5, 1)
CONTROL_KILLS: Final = sized(5, 3, 1)
KILL_KEYS: Final = 500
KILL_RATE: Final = sized(400, 400, 100)
TOGETHER: Final = 10
"""Rows of a transaction that is read from the slot."""


class Latency(NamedTuple):
    """From the commit to the frame of a client, while nothing else happens."""

    p50_ms: float
    p99_ms: float


class Found(NamedTuple):
    """All figures."""

    followed: Drained
    copied: Drained
    latency: Latency
    killed: Outcome
    apart: Outcome


async def run(folder: Path, report: Report) -> Found:
    """Measure everything with one server."""
    with running() as cluster:

        async def origin(name: str, keys: int, rate: int = 0) -> TableOrigin:
            made = TableOrigin(cluster, name, folder, keys=keys, rate=rate)
            await made.create()
            return made

        available = os.sched_getaffinity(0)
        core, _ = own_core()
        report.step(f"following {CHANGES} changes")
        drained = await origin("drained", KEYS)
        followed = await follow(drained, folder / "drained", core)
        report.step(f"copying {CHANGES} rows")
        copied = await copy(await origin("copied", KEYS), folder / "copied", core)
        os.sched_setaffinity(0, available)
        report.step("one row at a time")
        latency = await latencies(await origin("shown", KEYS), folder / "shown")
        control = (sys.executable, "-m", "experiments.intake.apart")
        killed = await _killed(await origin("killed", KILL_KEYS, KILL_RATE), folder / "killed", KILLS, report)
        apart = await _killed(
            await origin("apart", KILL_KEYS, KILL_RATE), folder / "apart", CONTROL_KILLS, report, launcher=control
        )
    return Found(followed, copied, latency, killed, apart)


async def _killed(
    origin: TableOrigin, folder: Path, kills: int, report: Report, launcher: Sequence[str] = ()
) -> Outcome:
    return await kill_again(
        origin, folder, kills, lambda text: report.step(f"{folder.name}: {text}"), launcher=launcher
    )


async def follow(origin: TableOrigin, folder: Path, core: int | None) -> Drained:
    """Read changes from the slot by a service on one core, after they were written."""
    async with serving(folder, config=origin.table) as process:
        await _until_ok(process)
    async with origin.session() as session:
        for first in range(0, CHANGES, TOGETHER):
            await origin.put(session, [number % KEYS for number in range(first, first + TOGETHER)])
    return await _drain(origin, folder, core, CHANGES)


async def copy(origin: TableOrigin, folder: Path, core: int | None) -> Drained:
    """Copy a table by a service on one core."""
    async with origin.session() as session:
        await session.execute("ALTER TABLE orders DISABLE TRIGGER written")
        await origin.put(session, [*range(CHANGES)])
    return await _drain(origin, folder, core, CHANGES)


async def _drain(origin: TableOrigin, folder: Path, core: int | None, count: int) -> Drained:
    launcher = () if core is None else ("taskset", "-c", str(core))
    settings = {"MAX_ENDPOINTS": str(2 * CHANGES)}
    async with serving(folder, config=origin.table, launcher=launcher, **settings) as process:
        began, before = time.perf_counter(), cost(process.child.pid).cpu
        async with asyncio.timeout(10 * PATIENCE_S):
            while (await status(process))["records"] < count:
                await asyncio.sleep(0.1)
        elapsed, cpu = time.perf_counter() - began, cost(process.child.pid).cpu - before
    return Drained(count, count / elapsed, count / cpu)


async def _until_ok(process: Any) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not (await status(process))["ok"]:
            await asyncio.sleep(0.05)


async def latencies(origin: TableOrigin, folder: Path) -> Latency:
    """Write one row at a time, and wait for the frame of a client of mode single."""
    found: list[float] = []
    async with AsyncExitStack() as stack:
        session = await stack.enter_async_context(origin.session())
        system = await stack.enter_async_context(System("single", folder, ("--traffic", "off"), None, origin.table))
        _, port, path = system.servers[0]
        url = f"ws://127.0.0.1:{port}{path}"
        client = await stack.enter_async_context(connect(url, subprotocols=[Subprotocol(SUBPROTOCOL)]))
        await client.send('{"type":"subscribe","id":1,"endpoints":{"/orders/1":null},"data":true}')
        for number in range(-10, LATENCIES):
            began = time.perf_counter()
            text = "INSERT INTO orders VALUES (1, $1, '') ON CONFLICT (id) DO UPDATE SET n = $1"
            await session.execute(text, number)
            async with asyncio.timeout(PATIENCE_S):
                while True:
                    frame = orjson.loads(await client.recv())
                    if frame["type"] == "update" and frame.get("data", {}).get("n") == number:
                        break
            if number >= 0:
                found.append(time.perf_counter() - began)
            await asyncio.sleep(REST_S)
    found.sort()
    return Latency(found[len(found) // 2] * 1000, found[int(len(found) * 0.99)] * 1000)


def goals(found: Found) -> list[Goal]:
    """Return the goals."""
    # One kill within a second may be too few.
    is_judged = SIZE is not RunSize.SMOKE
    control = Goal("positions apart from data: changes doubled or lost", "", 1, found.apart.faults.total, at_least=True)
    caught = [control] if is_judged else []
    return [
        Goal("changes for a second of one core", "1/s", 5000, found.followed.per_core_s, at_least=True),
        Goal("copied rows for a second of one core", "1/s", 5000, found.copied.per_core_s, at_least=True),
        Goal("commit to frame, idle, p50", "ms", 30, found.latency.p50_ms),
        Goal(f"{found.killed.kills} kills: changes lost, doubled or misplaced", "", 0, found.killed.faults.total),
        *caught,
    ]


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, write build/bench/postgres.json and print the figures."""
    parser(__spec__, __doc__, report="build/bench/postgres.json", quick="fewer rows and kills").parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="diem-intake-") as folder, Report(4 + KILLS // 20 + 3) as report:
        found = asyncio.run(run(Path(folder), report))
        outcomes = {"killed": found.killed, "apart": found.apart}
        rates = {"followed": found.followed._asdict(), "copied": found.copied._asdict()}
        report.rows("rates", {**rates, "latency": found.latency._asdict()})
        report.rows("kills", {name: {**each._asdict(), "faults": each.faults.total} for name, each in outcomes.items()})
        report.goals(goals(found))
    figures = {
        **rates,
        "latency": found.latency._asdict(),
        **{name: {**each._asdict(), "faults": each.faults._asdict()} for name, each in outcomes.items()},
    }
    print(f"written: {write('postgres', figures, goals(found))}")
    return exit_code(goals(found))


if __name__ == "__main__":
    sys.exit(main())
