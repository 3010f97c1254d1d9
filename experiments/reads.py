"""``make bench-reads``: what a GET of a current dataset costs the Data Service, and what readers cost writers.

CPU of the serving process, measured from another one that keeps 16 connections open with one request in flight on each,
or opens one for each request, against a bare loop, which writes the same bytes without looking at the request. Each
round measures all kinds in turn, so that a busy machine slows them alike. Then the time of writes, one after the other:
alone, and beside another process with 200 connections, each of which requests the dataset again as soon as it has it.
``QUICK=1``: fewer requests and rounds.
"""

import asyncio
import contextlib
import multiprocessing
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx
import orjson

from tests.bench.figures import figure, goal
from tests.bench.procfs import cost
from tests.bench.report import Report
from tests.integration.data.process import DataProcess, serving
from tests.load.bench import write
from tests.support.commandline import parser
from tests.support.size import sized

CONNECTIONS: Final = 16
POINTS: Final = 60
ENDPOINT: Final = "/bench/reads"
UNLIMITED: Final = {"READ_RATE_LOOPBACK": "1000000", "READ_BURST_LOOPBACK": "1000000"}
GOALS_US: Final = {"200": 120.0, "304": 80.0, "200 of a version": 120.0}
HERD: Final = sized(200, 200, 20)
"""Connections of the readers beside which writes are timed."""
MOST_X_IDLE: Final = 3.0
"""Goal: the 99th percentile of writes beside a herd of readers, as a multiple of that without readers."""
PAUSE_S: Final = 0.01
"""Between two writes."""
END: Final = b"\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of request: the bytes that are sent, and the server's process and port."""

    pid: int
    port: int
    request: bytes
    is_new: bool = False
    """Each request has a connection of its own."""


def exchange(connection: socket.socket) -> bytes:
    """Return one whole answer."""
    received = connection.recv(65536)
    head = received.index(END) + len(END)
    length = next(
        (int(line[15:]) for line in received[:head].split(b"\r\n") if line.lower().startswith(b"content-length:")), 0
    )
    while len(received) < head + length:
        received += connection.recv(65536)
    return received


def connected(kind: Kind) -> socket.socket:
    """Return a new connection."""
    connection = socket.create_connection(("127.0.0.1", kind.port))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def microseconds(kind: Kind, requests: int) -> float:
    """Return the CPU time of the server for one request."""
    if kind.is_new:
        before = cost(kind.pid).cpu
        for _ in range(requests):
            with connected(kind) as connection:
                connection.sendall(kind.request)
                exchange(connection)
        return (cost(kind.pid).cpu - before) * 1e6 / requests
    with contextlib.ExitStack() as stack:
        connections = [stack.enter_context(connected(kind)) for _ in range(CONNECTIONS)]
        in_turns(connections, kind.request, CONNECTIONS)
        before = cost(kind.pid).cpu
        in_turns(connections, kind.request, requests)
        return (cost(kind.pid).cpu - before) * 1e6 / requests


def in_turns(connections: Sequence[socket.socket], request: bytes, requests: int) -> None:
    """Send requests on all connections at once, and read the answers, until so many are answered."""
    for _ in range(requests // len(connections)):
        for connection in connections:
            connection.sendall(request)
        for connection in connections:
            exchange(connection)


def herd(kind: Kind) -> None:
    """Send requests for ever."""
    with contextlib.ExitStack() as stack:
        connections = [stack.enter_context(connected(kind)) for _ in range(HERD)]
        while True:
            in_turns(connections, kind.request, HERD)


def write_ms(port: int, key: Mapping[str, str], writes: int) -> float:
    """Return the 99th percentile of the time of a write."""
    taken = []
    with connected(Kind(0, port, b"")) as connection:
        for number in range(writes):
            points = [{"time": "2026-01-01T00:00:00Z", "value": time.time() + number}]
            body = orjson.dumps({"unit": "MW", "resolution": "PT1H", "points": points})
            head = (
                f"PUT /v1/data/bench/writes HTTP/1.1\r\nHost: localhost\r\nAuthorization: {key['Authorization']}\r\n"
                f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
            )
            begun = time.perf_counter()
            connection.sendall(head.encode() + body)
            answer = exchange(connection)
            taken.append(time.perf_counter() - begun)
            assert answer.startswith(b"HTTP/1.1 200"), answer[:200]
            time.sleep(PAUSE_S)
    return 1000 * sorted(taken)[int(0.99 * (writes - 1))]


@contextlib.contextmanager
def reading(kind: Kind) -> Iterator[None]:
    """Run a herd of readers in a process of its own."""
    readers = multiprocessing.get_context("spawn").Process(target=herd, args=(kind,), daemon=True)
    before = cost(kind.pid).cpu
    readers.start()
    try:
        # Until it has begun.
        while cost(kind.pid).cpu < before + 0.2:
            time.sleep(0.05)
            assert readers.is_alive()
        yield
        assert readers.is_alive()
    finally:
        readers.kill()
        readers.join()


@contextlib.contextmanager
def floor(folder: Path, name: str, answer: bytes) -> Iterator[tuple[int, int]]:
    """Run the bare loop with an answer; return its process id and port."""
    file = folder / name
    file.write_bytes(answer)
    child = subprocess.Popen(
        (sys.executable, "-m", "experiments.floor_http", str(file)),
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    with child:
        assert child.stdin is not None
        assert child.stdout is not None
        yield child.pid, int(child.stdout.readline())
        child.stdin.close()


async def put(process: DataProcess) -> int:
    """Write a dataset of 3 KB; return its version."""
    points = [
        {"time": f"2026-01-{1 + hour // 24:02}T{hour % 24:02}:00:00Z", "value": hour + 0.25} for hour in range(POINTS)
    ]
    body = orjson.dumps({"unit": "MW", "resolution": "PT1H", "points": points})
    headers = {**process.write, "Content-Type": "application/json"}
    async with httpx.AsyncClient(base_url=process.url, headers=headers) as http:
        accepted = (await http.put(f"/v1/data{ENDPOINT}", content=body)).json()
    return int(accepted["version"])


@contextlib.asynccontextmanager
async def kinds(folder: Path) -> AsyncIterator[dict[str, Kind]]:
    """Run the servers; return the requests by name."""
    async with serving(folder / "state", **UNLIMITED) as process:
        version = await put(process)
        port, pid = int(process.serving.result()["port"]), process.child.pid

        def get(target: str = "", fields: str = "") -> bytes:
            # As the SDK's request in a browser.
            return (
                f"GET /v1/data{ENDPOINT}{target} HTTP/1.1\r\nHost: localhost:{port}\r\nConnection: keep-alive\r\n"
                "User-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0\r\n"
                f"Accept: application/json\r\n{fields}Sec-Fetch-Site: same-origin\r\nSec-Fetch-Mode: cors\r\n"
                "Sec-Fetch-Dest: empty\r\nAccept-Encoding: gzip, deflate, br\r\nAccept-Language: en\r\n\r\n"
            ).encode()

        plain, unchanged = get(), get(fields=f'If-None-Match: "{version}-json"\r\n')
        told = get(f"?version={version}")
        answers = {}
        for name, request in (("200", plain), ("304", unchanged), ("200 of a version", told)):
            with connected(Kind(pid, port, request)) as connection:
                connection.sendall(request)
                answers[name] = exchange(connection)
            assert answers[name].startswith(f"HTTP/1.1 {name[:3]}".encode()), answers[name][:200]
        with floor(folder, "200", answers["200"]) as whole, floor(folder, "304", answers["304"]) as short:
            yield {
                "floor, 200": Kind(*whole, plain),
                "200": Kind(pid, port, plain),
                "200 of a version": Kind(pid, port, told),
                "304": Kind(pid, port, unchanged),
                "floor, 304": Kind(*short, unchanged),
                "floor, new connection": Kind(*whole, plain, is_new=True),
                "200, new connection": Kind(pid, port, plain, is_new=True),
            }


async def measure(rounds: int, requests: int, report: Report) -> dict[str, list[float]]:
    """Return the microseconds of each kind in each round."""
    with tempfile.TemporaryDirectory() as folder:
        async with kinds(Path(folder)) as measured:
            spent: dict[str, list[float]] = {name: [] for name in measured}
            for number in range(1, rounds + 1):
                report.step(f"round {number}")
                # There and back again, as the machine may become slower meanwhile. In a thread, so that the log of the
                # service is still read.
                for name, kind in [*measured.items(), *reversed(measured.items())]:
                    count = requests // 4 if kind.is_new else requests
                    spent[name].append(await asyncio.to_thread(microseconds, kind, count))
    return spent


async def measure_writes(rounds: int, writes: int, report: Report) -> dict[str, list[float]]:
    """Return the 99th percentile of writes in milliseconds, idle and beside readers, in each round."""
    times: dict[str, list[float]] = {"idle": [], "beside readers": []}
    with tempfile.TemporaryDirectory() as folder:
        async with serving(Path(folder) / "state", **UNLIMITED) as process:
            await put(process)
            port = int(process.serving.result()["port"])
            request = f"GET /v1/data{ENDPOINT} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
            kind = Kind(process.child.pid, port, request)
            await asyncio.to_thread(write_ms, port, process.write, 20)
            for number in range(1, rounds + 1):
                report.step(f"writes, round {number}")
                times["idle"].append(await asyncio.to_thread(write_ms, port, process.write, writes))
                with reading(kind):
                    times["beside readers"].append(await asyncio.to_thread(write_ms, port, process.write, writes))
    return times


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark; return the exit code."""
    parser(__spec__, __doc__, report="build/bench/reads.json", quick="").parse_args(argv)
    rounds, requests, writes = sized((8, 4000, 300), (2, 800, 100), (1, 64, 10))
    with Report(2 * rounds) as report:
        spent = asyncio.run(measure(rounds, requests, report))
        times = asyncio.run(measure_writes(rounds, writes, report))
    found: dict[str, Any] = {"us": {name: figure(values) for name, values in spent.items()}}
    floors = {"200 of a version": "floor, 200"}
    found["x_floor"] = {
        name: figure(
            [ours / least for ours, least in zip(values, spent[floors.get(name, f"floor, {name}")], strict=True)]
        )
        for name, values in {name.replace("200, new", "new"): values for name, values in spent.items()}.items()
        if not name.startswith("floor")
    }
    report.figures("us of CPU for one request", found["us"])
    report.figures("x floor", found["x_floor"])
    found["write_p99_ms"] = {name: figure(values) for name, values in times.items()}
    found["write_p99_x_idle"] = figure([loaded / idle for idle, loaded in zip(*times.values(), strict=True)])
    report.figures("p99 of a write, ms", found["write_p99_ms"])
    goals = [goal(name, "us", bound, found["us"][name]) for name, bound in GOALS_US.items()]
    goals.append(goal("p99 of a write beside readers", "x idle", MOST_X_IDLE, found["write_p99_x_idle"]))
    report.goals(goals)
    print(f"written: {write('reads', found, goals)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
