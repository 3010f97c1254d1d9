"""``make bench-writes``: what a write costs the Data Service, beside the disk's own floor and a publish of Centrifugo.

Single writes one after another and on many connections, bulk requests, and a stream, on SQLite and PostgreSQL; and one
write at a time through whole systems of modes single and x, from its request to the frame of its only client. The
floor is SQLite by the standard library: rows of the same size with a history, in a thread; and a commit of one. CPU is
that of the service's process and, for PostgreSQL, of the server's beside it. Centrifugo keeps in memory what is
published; it is measured where its program is found (``PATH``, or ``CENTRIFUGO``): ``go install
github.com/centrifugal/centrifugo/v6@latest``. ``QUICK=1``: fewer writes.
"""

import asyncio
import contextlib
import os
import random
import shutil
import sqlite3
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final, NamedTuple

import httpx
import orjson
from websockets import Subprotocol
from websockets.asyncio.client import connect

from diem.protocol.messages import SUBPROTOCOL
from tests.bench.procfs import cost, cpu_seconds, tree_cpu_seconds
from tests.bench.report import Report
from tests.bench.stores import stores
from tests.integration.data.process import serving
from tests.load.bench import Goal, exit_code, write
from tests.load.processes import children
from tests.load.system import System
from tests.support.commandline import parser
from tests.support.patience import PATIENCE_S
from tests.support.ports import free_port
from tests.support.postgres import Cluster
from tests.support.size import sized

SINGLE: Final = sized(1_000, 300, 20)
MANY: Final = sized(20_000, 3_000, 100)
CONNECTIONS: Final = 64
BULKS: Final = sized(400, 60, 4)
STREAMED: Final = sized(60_000, 8_000, 100)
FLOOR_ROWS: Final = sized(100_000, 20_000, 500)
BATCH, POINTS, DOCUMENT_BYTES = 50, 24, 1024
WARM_UP: Final = 0.1
"""Share of the writes that are made before those that count."""
LINES_AT_ONCE: Final = 64
THROUGH: Final = sized(500, 100, 5)
MODES: Final = {"single": 4.0, "x": 8.0}
"""Goals from the request to the frame, p50 in ms."""
REST_S: Final = 0.03
"""Pause between two writes through a whole system, which is idle then."""
IDLE_S: Final = sized(10.0, 4.0, 0.5)

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Measured(NamedTuple):
    """Figures of one phase."""

    per_s: float
    cpu_ms: float
    """Of the service, for each update."""
    database_ms: float
    """Of PostgreSQL, for each update."""
    p50_ms: float
    p99_ms: float


class Server(NamedTuple):
    """A server that takes writes."""

    name: str
    port: int
    head: str
    """Header fields of each request."""
    cpu: Callable[[], tuple[float, float]]
    """Returns the CPU seconds so far, of the server and of its database."""


Make = Callable[[int], bytes]
"""Returns the n-th request."""


def request(server: Server, target: str, media_type: str, body: bytes, method: str = "PUT") -> bytes:
    """Return the bytes of a request."""
    head = f"{method} {target} HTTP/1.1\r\nHost: 127.0.0.1\r\n{server.head}Content-Type: {media_type}\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def points(number: int, count: int) -> list[dict[str, object]]:
    """Return points of a series that differ with the number."""
    values = random.Random(number)
    return [
        {"time": f"2026-01-01T{hour:02d}:00:00Z", "value": round(values.uniform(0, 300), 2)} for hour in range(count)
    ]


def document(number: int) -> dict[str, object]:
    """Return a document of about :data:`DOCUMENT_BYTES`."""
    return {"number": number, "text": "x" * (DOCUMENT_BYTES - 40)}


async def ask(streams: Streams, sent: bytes) -> bytes:
    """Send a request; return the body of its answer."""
    reader, writer = streams
    writer.write(sent)
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    at = head.index(b"content-length: ") + len(b"content-length: ")
    body = await reader.readexactly(int(head[at : head.index(b"\r\n", at)]))
    if not head.startswith(b"http/1.1 200"):
        raise RuntimeError((head + body).decode())
    return body


async def phase(server: Server, count: int, connections: int, make: Make, updates: int = 1) -> Measured:
    """Make requests on some connections, each after the answer to the last one."""
    latencies: list[float] = []

    async def work(streams: Streams, requests: Iterator[bytes]) -> None:
        for sent in requests:
            began = time.perf_counter()
            await ask(streams, sent)
            latencies.append(time.perf_counter() - began)

    opened = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(connections)]
    try:
        for counts in (False, True):
            latencies.clear()
            number = count if counts else max(connections, int(count * WARM_UP))
            # Made before: a request takes the client nearly as long as the service.
            requests = iter([make(n) for n in range(number, 2 * number)])
            before, began = server.cpu(), time.perf_counter()
            await asyncio.gather(*(work(streams, requests) for streams in opened))
            elapsed = time.perf_counter() - began
    finally:
        for _, writer in opened:
            writer.close()
    return _measured(server, before, elapsed, len(latencies) * updates, sorted(latencies))


async def streamed(server: Server, count: int) -> Measured:
    """Send lines of documents on one connection, and read the answers meanwhile."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    head = f"POST /v1/data HTTP/1.1\r\nHost: 127.0.0.1\r\n{server.head}Content-Type: application/x-ndjson\r\n"
    writer.write(f"{head}Transfer-Encoding: chunked\r\n\r\n".encode())
    before, began = server.cpu(), time.perf_counter()

    async def send() -> None:
        for first in range(0, count, LINES_AT_ONCE):
            numbers = range(first, min(count, first + LINES_AT_ONCE))
            lines = b"".join(
                orjson.dumps({"endpoint": f"/s/{n % 5000}", "value": document(n)}) + b"\n" for n in numbers
            )
            writer.write(b"%x\r\n%b\r\n" % (len(lines), lines))
            await writer.drain()
        writer.write(b"0\r\n\r\n")

    async def read() -> int:
        changed = 0
        while (size := await reader.readline()) != b"0\r\n":
            chunk = await reader.readexactly(int(size, 16) + 2)
            changed += chunk.count(b'"changed":true')
        return changed

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(send())
        await reader.readuntil(b"\r\n\r\n")
        reading = tasks.create_task(read())
    elapsed = time.perf_counter() - began
    writer.close()
    if reading.result() != count:
        raise RuntimeError(f"{reading.result()} of {count} lines were accepted")
    return _measured(server, before, elapsed, count, [elapsed / count])


def _measured(
    server: Server, before: tuple[float, float], elapsed: float, updates: int, latencies: Sequence[float]
) -> Measured:
    service, database = (now - then for now, then in zip(server.cpu(), before, strict=True))
    return Measured(
        updates / elapsed,
        service / updates * 1000,
        database / updates * 1000,
        latencies[len(latencies) // 2] * 1000,
        latencies[int(len(latencies) * 0.99)] * 1000,
    )


def floor_of_commits(folder: Path, count: int) -> Measured:
    """Commit one row after another as the store does: what the disk takes."""
    connection = _table(folder / "commits.db")
    latencies = []
    before = time.thread_time()
    for number in range(count):
        began = time.perf_counter()
        connection.execute("INSERT OR REPLACE INTO rows VALUES (?, ?)", (number % 100, b"x" * 100))
        latencies.append(time.perf_counter() - began)
    cpu = time.thread_time() - before
    connection.close()
    latencies.sort()
    total = sum(latencies)
    return Measured(count / total, cpu / count * 1000, 0.0, latencies[count // 2] * 1000, latencies[-1] * 1000)


def floor_of_rows(folder: Path, count: int, size: int) -> Measured:
    """Write rows of a size and as many of a history, in transactions of 400 rows."""
    connection = _table(folder / "rows.db")
    connection.execute("CREATE TABLE history (id INTEGER PRIMARY KEY, content BLOB)")
    began, before = time.perf_counter(), time.thread_time()
    for first in range(0, count, 400):
        rows = [(number % 5000, os.urandom(8) + b"x" * (size - 8)) for number in range(first, first + 400)]
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany(
            "INSERT INTO history (content) SELECT content FROM rows WHERE id = ?", [row[:1] for row in rows]
        )
        connection.executemany("INSERT OR REPLACE INTO rows VALUES (?, ?)", rows)
        connection.execute("COMMIT")
    elapsed, cpu = time.perf_counter() - began, time.thread_time() - before
    connection.close()
    return Measured(count / elapsed, cpu / count * 1000, 0.0, elapsed / count * 1000, 0.0)


def _table(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None)
    for pragma in ("journal_mode=WAL", "synchronous=FULL"):
        connection.execute(f"PRAGMA {pragma}")
    connection.execute("CREATE TABLE rows (id INTEGER PRIMARY KEY, content BLOB)")
    return connection


@contextlib.asynccontextmanager
async def data_service(folder: Path, cluster: Cluster | None) -> AsyncIterator[Server]:
    """Run a Data Service on SQLite, or on PostgreSQL."""
    more = {} if cluster is None else {"DATABASE_URL": cluster.url(cluster.new_database())}
    async with serving(folder, **more) as process:
        pid = process.child.pid

        def cpu() -> tuple[float, float]:
            return cost(pid).cpu, 0.0 if cluster is None else tree_cpu_seconds(cluster.pid)

        head = f"Authorization: {process.write['Authorization']}\r\n"
        port = int(process.url.rpartition(":")[2])
        yield Server("sqlite" if cluster is None else "postgresql", port, head, cpu)


@contextlib.asynccontextmanager
async def centrifugo(program: str, folder: Path) -> AsyncIterator[Server]:
    """Run Centrifugo with its HTTP API, and a history of one publication, as DIEM keeps the latest version."""
    port = free_port()
    config = {
        "http_server": {"port": port, "address": "127.0.0.1"},
        "http_api": {"insecure": True},
        "channel": {"without_namespace": {"history_size": 1, "history_ttl": "1h"}},
    }
    (folder / "config.json").write_bytes(orjson.dumps(config))
    child = await asyncio.create_subprocess_exec(
        program, "--config", str(folder / "config.json"),
        stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    try:
        async with asyncio.timeout(PATIENCE_S), httpx.AsyncClient() as http:
            while True:
                with contextlib.suppress(httpx.TransportError):
                    await http.post(f"http://127.0.0.1:{port}/api/info", json={})
                    break
                await asyncio.sleep(0.05)
        yield Server("centrifugo", port, "", lambda: (cpu_seconds(child.pid), 0.0))
    finally:
        child.terminate()
        await child.wait()


async def measure(server: Server, report: Report) -> dict[str, Measured]:
    """Return the figures of a Data Service."""

    def series(target: str, number: int) -> bytes:
        body = orjson.dumps({"unit": "MW", "resolution": "PT1H", "points": points(number, 1)})
        return request(server, target, "application/vnd.diem.series+json", body)

    def bulk(number: int) -> bytes:
        datasets = [
            {
                "endpoint": f"/b/{number % 20 * BATCH + n}",
                "unit": "MW",
                "resolution": "PT1H",
                "points": points(number, POINTS),
            }
            for n in range(BATCH)
        ]
        return request(server, "/v1/data", "application/json", orjson.dumps({"datasets": datasets}))

    made: dict[str, Measured] = {}
    report.step(f"{server.name}: one after another")
    made["single"] = await phase(server, SINGLE, 1, lambda n: series("/v1/data/a", n))
    report.step(f"{server.name}: {CONNECTIONS} connections")
    made["many"] = await phase(server, MANY, CONNECTIONS, lambda n: series(f"/v1/data/m/{n % 1000}", n))
    report.step(f"{server.name}: bulk")
    made["bulk"] = await phase(server, BULKS, 2, bulk, BATCH)
    report.step(f"{server.name}: stream")
    made["stream"] = await streamed(server, STREAMED)
    return made


async def run(
    folder: Path, cluster: Cluster | None, peer: str | None, report: Report
) -> dict[str, dict[str, Measured]]:
    """Return the figures of all servers and of the floor."""
    found: dict[str, dict[str, Measured]] = {}
    report.step("floor")
    found["floor"] = {
        "single": await asyncio.to_thread(floor_of_commits, folder, SINGLE),
        "bulk": await asyncio.to_thread(floor_of_rows, folder, FLOOR_ROWS, POINTS * 50),
        "stream": await asyncio.to_thread(
            floor_of_rows, Path(tempfile.mkdtemp(dir=folder)), FLOOR_ROWS, DOCUMENT_BYTES
        ),
    }
    async with AsyncExitStack() as stack:
        if peer is not None:
            server = await stack.enter_async_context(centrifugo(peer, folder))

            def publish(number: int) -> bytes:
                body = orjson.dumps({"channel": f"m{number % 1000}", "data": {"points": points(number, 1)}})
                return request(server, "/api/publish", "application/json", body, "POST")

            report.step("centrifugo")
            found["centrifugo"] = {
                "single": await phase(server, SINGLE, 1, publish),
                "many": await phase(server, MANY, CONNECTIONS, publish),
            }
        for database in (None, cluster) if cluster is not None else (None,):
            place = folder / ("sqlite" if database is None else "postgresql")
            async with data_service(place, database) as server:
                found[server.name] = await measure(server, report)
    return found


class Through(NamedTuple):
    """One write at a time through a whole system."""

    p50_ms: float
    """From the request to the frame."""
    p99_ms: float
    cpu_ms: dict[str, float]
    """Of each kind of process, for a write, above its idle."""

    @property
    def total_ms(self) -> float:
        """CPU of a write without the brokers."""
        return sum(cpu for kind, cpu in self.cpu_ms.items() if kind != "kafka")

    def figures(self) -> dict[str, float]:
        """Return the figures by name."""
        kinds = {f"{kind}_ms": cpu for kind, cpu in self.cpu_ms.items()}
        return {"p50_ms": self.p50_ms, "p99_ms": self.p99_ms, **kinds}


async def through(mode: str, folder: Path) -> Through:
    """Write to an idle system with one client."""
    async with System(mode, folder, ("--traffic", "off")) as system, AsyncExitStack() as stack:
        port = system.process("data").public_port or 0
        server = Server(mode, port, f"Authorization: Bearer {system.write_key}\r\n", lambda: (0.0, 0.0))
        streams = await asyncio.open_connection("127.0.0.1", port)
        stack.callback(streams[1].close)
        _, socket_port, path = system.servers[0]
        url = f"ws://127.0.0.1:{socket_port}{path}"
        client = await stack.enter_async_context(connect(url, subprotocols=[Subprotocol(SUBPROTOCOL)]))
        await client.send('{"type":"subscribe","id":1,"endpoints":{"/one":null}}')

        def cpu() -> Counter[str]:
            spent = Counter[str]()
            for process in system.processes():
                for pid in () if process.pid is None else (process.pid, *children(process.pid)):
                    spent[process.name.rstrip("-0123456789")] += cost(pid).cpu
            return spent

        async def write_one(number: int) -> float:
            sent = request(server, "/v1/data/one", "application/json", b"%d" % number)
            began = time.perf_counter()
            accepted = orjson.loads(await ask(streams, sent))
            async with asyncio.timeout(PATIENCE_S):
                while True:
                    frame = orjson.loads(await client.recv())
                    if frame["type"] == "update" and frame["version"] == accepted["version"]:
                        return time.perf_counter() - began

        for number in range(10):
            await write_one(-number)
        idle = cpu()
        await asyncio.sleep(IDLE_S)
        before, began, latencies = cpu(), time.perf_counter(), []
        for number in range(1, THROUGH + 1):
            latencies.append(await write_one(number) * 1000)
            await asyncio.sleep(REST_S)
        after, share = cpu(), (time.perf_counter() - began) / IDLE_S
        cpu_ms = {
            kind: (after[kind] - before[kind] - (before[kind] - idle[kind]) * share) / THROUGH * 1000 for kind in after
        }
        latencies.sort()
        return Through(latencies[len(latencies) // 2], latencies[int(len(latencies) * 0.99)], cpu_ms)


def goals_of_systems(found: dict[str, Through]) -> list[Goal]:
    """Return the goals of whole systems."""
    made = [Goal(f"{mode}: request to frame, p50", "ms", MODES[mode], each.p50_ms) for mode, each in found.items()]
    return [*made, Goal("x: CPU of a write without the broker", "ms", 2.0, found["x"].total_ms)]


def goals(found: dict[str, dict[str, Measured]]) -> list[Goal]:
    """Return the goals."""
    floor, own = found["floor"], found["sqlite"]
    made = [
        Goal("one write after another: CPU of the service", "ms", 0.5, own["single"].cpu_ms),
        Goal(
            "one write after another: p50 above the disk's commit",
            "ms",
            2.0,
            own["single"].p50_ms - floor["single"].p50_ms,
        ),
        Goal(f"{CONNECTIONS} connections: writes", "1/s", 5_000, own["many"].per_s, at_least=True),
        Goal("bulk: updates", "1/s", 10_000, own["bulk"].per_s, at_least=True),
        Goal("bulk: CPU of an update, of the floor's", "x", 3.0, own["bulk"].cpu_ms / floor["bulk"].cpu_ms),
        Goal("stream: documents", "1/s", 15_000, own["stream"].per_s, at_least=True),
    ]
    if (other := found.get("postgresql")) is not None:
        for name, phase_ in (("many", "connections"), ("bulk", "bulk"), ("stream", "stream")):
            share = other[name].per_s / own[name].per_s
            made.append(Goal(f"PostgreSQL, {phase_}: rate, of SQLite's", "x", 0.5, share, at_least=True))
    if (peer := found.get("centrifugo")) is not None:
        ratio = own["single"].cpu_ms / peer["single"].cpu_ms
        made.append(Goal("one write after another: CPU, of a publish of Centrifugo", "x", 5.0, ratio))
    return made


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, write build/bench/writes.json and print the figures."""
    parser(__spec__, __doc__, report="build/bench/writes.json", quick="fewer writes").parse_args(argv)
    peer = os.environ.get("CENTRIFUGO") or shutil.which("centrifugo")
    with (
        stores("writes") as (folder, cluster),
        Report(1 + (peer is not None) + 4 * (1 if cluster is None else 2) + len(MODES)) as report,
    ):
        measured = asyncio.run(run(folder, cluster, peer, report))
        systems: dict[str, Through] = {}
        for mode in MODES:
            report.step(f"{mode}: a whole system")
            systems[mode] = asyncio.run(through(mode, folder / mode))
        found = [*goals(measured), *goals_of_systems(systems)]
        for name, phases in measured.items():
            report.rows(name, {what: one._asdict() for what, one in phases.items()})
        report.rows("whole systems", {mode: each.figures() for mode, each in systems.items()})
        report.goals(found)
    of = {"connections": CONNECTIONS, "batch": BATCH, "points": POINTS, "document_bytes": DOCUMENT_BYTES}
    servers = {name: {what: one._asdict() for what, one in each.items()} for name, each in measured.items()}
    through_ = {mode: each.figures() for mode, each in systems.items()}
    print(f"written: {write('writes', {**of, 'servers': servers, 'systems': through_}, found)}")
    return exit_code(found)


if __name__ == "__main__":
    sys.exit(main())
