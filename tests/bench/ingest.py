"""``make bench-ingest``: the cost of accepting changes on SQLite and PostgreSQL, and the delay of the feed.

5,000 endpoints of 24 points, 1,000 changes a second in bulk writes of 50; stores with history and without take turns,
and one of documents, which are the same JSON. CPU is that of the Data Service's process, and beside it that of
PostgreSQL's. ``QUICK=1``: one short round.
"""

import asyncio
import contextlib
import random
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import httpx
import orjson

from diem.links.feed_reader import FeedReader
from diem.protocol import feed
from tests.bench.catchup import Parsing
from tests.bench.figures import Figure, figure
from tests.bench.procfs import cost, tree_cpu_seconds
from tests.bench.report import Report
from tests.bench.stores import stores
from tests.integration.data.process import DataProcess, serving
from tests.load.bench import Goal, exit_code, write
from tests.support.commandline import parser
from tests.support.postgres import Cluster
from tests.support.size import sized

BATCH, RATE, POINTS = 50, 1_000, 24
ENDPOINTS: Final = sized(5_000, 5_000, 500)
"""An endpoint that changes again within moments may be sent once, and the round would wait for the other record."""
ROUNDS, SECONDS = sized((5, 12.0), (1, 5.0), (1, 0.5))
PASSES: Final = sized(33, 2, 2)
"""Rounds over all endpoints beforehand, so that histories are full and each change removes an old version."""
AT_ONCE: Final = 4
LATE_S: Final = 10.0
BASE: Final = "sqlite"
CPU_GOALS: Final = {"sqlite": 0.30, "postgresql": 0.45}
P99_GOAL_MS: Final = 100.0
HISTORY_GOAL: Final = 1.35
DOCUMENTS: Final = f"{BASE}, documents"
DOCUMENT_GOAL: Final = 1.0


@dataclass
class Target:
    """A Data Service with a store of its own, and its measurements."""

    name: str
    process: DataProcess
    cluster: Cluster | None
    http: httpx.AsyncClient
    documents: bool = False
    """Changes documents instead of series."""
    turn: int = 0
    late_ms: list[float] = field(default_factory=list)
    """Delay of each record of the feed, from acceptance (its version) to arrival."""
    seen: int = 0

    def cpu(self) -> tuple[float, float]:
        """Return the CPU seconds so far of the service and of the database server."""
        return cost(self.process.child.pid).cpu, 0.0 if self.cluster is None else tree_cpu_seconds(self.cluster.pid)

    async def put(self, batch: int) -> float:
        """Change one batch of endpoints; return the time in milliseconds."""
        self.turn += 1
        began = time.perf_counter()
        answer = await self.http.put("/v1/data", content=_body(batch, self.turn, documents=self.documents))
        assert answer.status_code == 200, answer.text
        assert all(one["changed"] for one in answer.json()["accepted"])
        return (time.perf_counter() - began) * 1000


class Delays(Parsing):
    """Reads a target's feed, and takes the delay of each record."""

    def __init__(self, target: Target) -> None:
        super().__init__()
        self._target = target

    def batch(self, *batches: feed.Batch) -> None:
        now = time.time() * 1000
        late = [now - record.version for batch in batches for record in batch.records]
        self._target.seen += len(late)
        self._target.late_ms += late


@contextlib.asynccontextmanager
async def reading(target: Target) -> AsyncIterator[None]:
    """Read the feed of a target, which has nothing yet, while the context is open. Raises ``TimeoutError``."""
    sink = Delays(target)
    url = f"ws{target.process.internal.removeprefix('http')}/feed"
    reader = asyncio.create_task(FeedReader(url, target.process.key, sink).run())
    try:
        async with asyncio.timeout(LATE_S):
            await sink.done.wait()
        yield
    finally:
        reader.cancel()
        await asyncio.gather(reader, return_exceptions=True)


def _body(batch: int, turn: int, *, documents: bool = False) -> bytes:
    numbers = random.Random(turn)
    points = [
        {"time": f"2026-01-01T{hour:02d}:00:00Z", "value": round(numbers.uniform(0, 300), 2)} for hour in range(POINTS)
    ]
    names = [f"/ingest/{batch * BATCH + index:04}" for index in range(BATCH)]
    value = {"unit": "EUR/MWh", "resolution": "PT1H", "points": points}
    if documents:
        return orjson.dumps({"documents": [{"endpoint": name, "value": value} for name in names]})
    return orjson.dumps({"datasets": [{"endpoint": name, **value} for name in names]})


@contextlib.asynccontextmanager
async def targets(folder: Path, cluster: Cluster | None) -> AsyncIterator[list[Target]]:
    """Run the services, with all endpoints and full histories."""
    wanted: list[tuple[str, Cluster | None]] = [(BASE, None), *([("postgresql", cluster)] if cluster else [])]
    async with AsyncExitStack() as stack:
        made = []
        for name, server in wanted:
            kinds = [(24, name), (1, f"{name}, no history"), *([(24, DOCUMENTS)] if name == BASE else [])]
            for versions, title in kinds:
                place = folder / title.replace(", ", "-").replace(" ", "-")
                url = f"sqlite:///{place / 'data.db'}" if server is None else server.url(server.new_database())
                told = {"DATABASE_URL": url, "HISTORY_VERSIONS": str(versions)}
                process = await stack.enter_async_context(serving(place, **told))
                http = httpx.AsyncClient(base_url=process.url, headers=process.write, timeout=60)
                http.headers["Content-Type"] = "application/json"
                await stack.enter_async_context(http)
                made.append(Target(title, process, server, http, documents=title == DOCUMENTS))
        yield made


async def fill(target: Target) -> None:
    """Write every endpoint this many times, as fast as possible; nothing without history."""
    batches = iter(list(range(ENDPOINTS // BATCH)) * (1 if "no history" in target.name else PASSES))

    async def write() -> None:
        for batch in batches:
            await target.put(batch)

    await asyncio.gather(*(write() for _ in range(AT_ONCE)))


async def measure(target: Target) -> dict[str, float]:
    """Run one round: changes at the rate, and their cost."""
    batches = random.Random(target.turn).sample(range(ENDPOINTS // BATCH), ENDPOINTS // BATCH)
    count = int(SECONDS * RATE / BATCH)
    target.late_ms.clear()
    expected = target.seen + count * BATCH
    loop = asyncio.get_running_loop()
    before, start = target.cpu(), loop.time()
    writes: list[asyncio.Task[float]] = []
    for number in range(count):
        # At its time, whether or not those before were answered.
        await asyncio.sleep(start + number * BATCH / RATE - loop.time())
        writes.append(asyncio.create_task(target.put(batches[number % len(batches)])))
    answered = sorted(await asyncio.gather(*writes))
    async with asyncio.timeout(LATE_S):
        while target.seen < expected:
            await asyncio.sleep(0.01)
    elapsed = loop.time() - start
    service, server = (after - spent for after, spent in zip(target.cpu(), before, strict=True))
    late = sorted(target.late_ms)
    thousands = count * BATCH / 1000
    return {
        "cpu_s": service / thousands,
        "database_cpu_s": server / thousands,
        "p50_ms": late[len(late) // 2],
        "p99_ms": late[int(len(late) * 0.99)],
        "answer_p99_ms": answered[int(len(answered) * 0.99)],
        "changes_per_s": count * BATCH / elapsed,
    }


async def run(cluster: Cluster | None, folder: Path, report: Report) -> dict[str, dict[str, Figure]]:
    """Return all figures of all stores."""
    async with targets(folder, cluster) as all_, AsyncExitStack() as stack:
        for target in all_:
            report.step(f"filling: {target.name}")
            await stack.enter_async_context(reading(target))
            await fill(target)
        rounds: dict[str, list[dict[str, float]]] = {target.name: [] for target in all_}
        for number in range(ROUNDS):
            for target in all_:
                report.step(f"round {number + 1}: {target.name}")
                rounds[target.name].append(await measure(target))
    return {name: {what: figure([one[what] for one in found]) for what in found[0]} for name, found in rounds.items()}


def goals(figures: dict[str, dict[str, Figure]]) -> list[Goal]:
    """Return the goals."""
    made = []
    for name, bound in CPU_GOALS.items():
        if name in figures:
            of = figures[name]
            made.append(Goal(f"{name}: the service's CPU for 1,000 changes", "s", bound, of["cpu_s"].median))
            made.append(Goal(f"{name}: p99 from acceptance to the feed", "ms", P99_GOAL_MS, of["p99_ms"].median))
            ratio = of["cpu_s"].median / figures[f"{name}, no history"]["cpu_s"].median
            made.append(Goal(f"{name}: CPU with history, of that without", "x", HISTORY_GOAL, round(ratio, 3)))
    pairs = zip(figures[DOCUMENTS]["cpu_s"].rounds, figures[BASE]["cpu_s"].rounds, strict=True)
    ratio = figure([document / series for document, series in pairs]).median
    made.append(Goal(f"{BASE}: CPU for documents, of that for series of the same size", "x", DOCUMENT_GOAL, ratio))
    return made


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, write build/bench/ingest.json and print the figures."""
    parser(__spec__, __doc__, report="build/bench/ingest.json", quick="one short round").parse_args(argv)
    with stores("ingest") as (folder, cluster), Report((3 if cluster is None else 5) * (1 + ROUNDS)) as report:
        figures = asyncio.run(run(cluster, folder, report))
        found = goals(figures)
        report.medians(figures)
        report.goals(found)
    of = {"endpoints": ENDPOINTS, "batch": BATCH, "rate": RATE, "points": POINTS}
    print(f"written: {write('ingest', {**of, 'stores': figures}, found)}")
    return exit_code(found)


if __name__ == "__main__":
    sys.exit(main())
