"""``make bench-updates``: CPU of a delivery by event stream and by long poll beside WebSocket, and of an idle poll.

Three real servers, one for each carrier, with as many clients. Each tick changes the endpoints of all clients: one, the
worst case of polls, or ten, which one answer carries. CPU is the servers' alone, in turns, so that a busy machine slows
all alike. Idle: memory of a poll that waits, and CPU of a thousand that come back every 25 s. ``QUICK=1``: fewer
clients and rounds.
"""

import asyncio
import contextlib
import re
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

import orjson
import uvloop

from tests.bench.figures import Figure, figure, goal
from tests.bench.procfs import cost, rss_kib
from tests.bench.report import Report
from tests.bench.servers import SETTLE, WARM_UP, Diem, diem
from tests.load.bench import exit_code, write
from tests.support.commandline import parser
from tests.support.patience import PATIENCE_S
from tests.support.size import sized

WEBSOCKET, STREAM, POLL = "WebSocket", "event stream", "long poll"
STREAM_X, POLL_X, IDLE_KIB, IDLE_PERCENT = 1.2, 4.0, 12.0, 1.0
TICK_S: Final = 0.05
"""Time from one tick to the next: polls have come back."""
IDLE_WAIT_S: Final = 5.0
"""Wait of idle polls: their CPU is scaled to 25 s."""
SETTINGS: Final = {
    "DIEM_WEBSOCKET_LIMIT_LOOPBACK": "false",
    "DIEM_WEBSOCKET_CAPACITY": "12000",
    "DIEM_WEBSOCKET_RETAINED_DATA_BYTES": "0",
}
_HANDSHAKE: Final = (
    b"GET /ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: diem.v1.json\r\n\r\n"
)
_PING, _PONG = b"\x89\x00", b"\x8a\x80" + bytes(4)
_VERSION: Final = re.compile(rb'"type":"update","endpoint":"([^"]+)","version":(\d+)')
_LENGTH: Final = re.compile(rb"Content-Length: (\d+)\r\n")


class Client(asyncio.Protocol):
    """A client of one carrier that counts nothing but the endpoints that have reached a version."""

    def __init__(self, carrier: str, names: Sequence[str], wait_s: float = 25) -> None:
        self._carrier = carrier
        self._known = dict.fromkeys(names, 0)
        self._wait_s = wait_s
        self._data = b""
        self._transport: asyncio.Transport
        self.ready = asyncio.Event()
        """Subscribed, or waiting."""
        self.closed = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        if self._carrier == WEBSOCKET:
            subscribe = orjson.dumps({"type": "subscribe", "id": 1, "endpoints": self._known})
            length = (
                bytes((0x80 | len(subscribe),)) if len(subscribe) < 126 else b"\xfe" + len(subscribe).to_bytes(2, "big")
            )
            self._transport.write(_HANDSHAKE)
            self._subscribe = b"\x81" + length + bytes(4) + subscribe
        else:
            self._request()

    def _request(self) -> None:
        body = orjson.dumps({"endpoints": self._known, "wait": self._wait_s})
        accept = b"Accept: text/event-stream\r\n" if self._carrier == STREAM else b""
        self._transport.write(
            b"POST /v1/updates HTTP/1.1\r\nHost: localhost\r\n%bContent-Length: %d\r\n\r\n%b"
            % (accept, len(body), body)
        )
        if self._carrier == POLL:
            self.ready.set()

    def data_received(self, data: bytes) -> None:
        if self._carrier == POLL:
            self._data += data
            ends = self._data.find(b"\r\n\r\n") + 4
            if ends < 4:
                return
            found = _LENGTH.search(self._data)
            if found is None or b" 200 " not in self._data[:16]:
                raise RuntimeError(self._data[:300])
            if len(self._data) < ends + int(found[1]):
                return
            data, self._data = self._data[ends:], b""
            self._update(data)
            self._request()
            return
        if data.startswith(b"HTTP/1.1 101"):
            self._transport.write(self._subscribe)
        if self._carrier == WEBSOCKET and _PING in data:
            self._transport.write(_PONG)
        if b'"type":"subscribed"' in data:
            self.ready.set()
        self._update(data)

    def _update(self, data: bytes) -> None:
        for name, version in _VERSION.findall(data):
            self._known[name.decode()] = int(version)

    def holds(self, version: int) -> bool:
        return max(self._known.values()) >= version

    def connection_lost(self, _: Exception | None) -> None:
        self.closed = True

    def close(self) -> None:
        self._transport.close()


@contextlib.asynccontextmanager
async def connected(
    server: Diem, carrier: str, count: int, names: Sequence[str], wait_s: float = 25
) -> AsyncIterator[list[Client]]:
    """Connect clients, and wait until all are subscribed."""
    clients = [Client(carrier, names, wait_s) for _ in range(count)]
    loop = asyncio.get_running_loop()
    for start in range(0, count, 100):
        batch = clients[start : start + 100]
        await asyncio.gather(
            *(loop.create_connection(lambda each=each: each, "127.0.0.1", server.port) for each in batch)
        )
    async with asyncio.timeout(PATIENCE_S):
        for client in clients:
            await client.ready.wait()
    await asyncio.sleep(0.1)
    try:
        yield clients
    finally:
        for client in clients:
            client.close()
        await asyncio.sleep(0.1)


async def tick(server: Diem, clients: Sequence[Client], names: Sequence[str]) -> None:
    """Change the endpoints, and wait until every client has the change."""
    version = server.publish(*names)
    async with asyncio.timeout(PATIENCE_S):
        while not all(client.holds(version) for client in clients):
            await asyncio.sleep(0.005)
    await asyncio.sleep(TICK_S)


async def microseconds(server: Diem, clients: Sequence[Client], names: Sequence[str], ticks: int) -> float:
    """Return the CPU of one delivery."""
    for _ in range(min(WARM_UP, ticks)):
        await tick(server, clients, names)
    await asyncio.sleep(SETTLE)
    before = cost(server.pid).cpu
    for _ in range(ticks):
        await tick(server, clients, names)
    await asyncio.sleep(SETTLE)
    return (cost(server.pid).cpu - before) * 1e6 / (ticks * len(clients) * len(names))


class Size(NamedTuple):
    """How much is measured."""

    rounds: int
    clients: int
    ticks: int
    pollers: int


async def deliveries(folder: Path, width: int, size: Size, report: Report) -> dict[str, list[float]]:
    """Return the microseconds of a delivery by each carrier, in each round."""
    rounds, count, ticks, _ = size
    names = [f"/bench/e{number}" for number in range(width)]
    spent: dict[str, list[float]] = {}
    async with contextlib.AsyncExitStack() as stack:
        there = {}
        for carrier in (WEBSOCKET, STREAM, POLL):
            place = folder / f"{width}-{carrier.replace(' ', '-')}"
            place.mkdir()
            server = await stack.enter_async_context(diem(place, core=None, more=SETTINGS))
            there[carrier] = server, await stack.enter_async_context(connected(server, carrier, count, names))
        for number in range(1, rounds + 1):
            report.step(f"{width} endpoints, round {number}")
            for carrier, (server, clients) in [*there.items(), *reversed(there.items())]:
                spent.setdefault(carrier, []).append(await microseconds(server, clients, names, ticks))
    return spent


async def idle(folder: Path, count: int, seconds: float, report: Report) -> dict[str, float]:
    """Return the memory of an idle poll in KiB, and the CPU of a thousand in percent of a core."""
    report.step("idle")
    place = folder / "idle"
    place.mkdir()
    names = [f"/bench/e{number}" for number in range(10)]
    async with diem(place, core=None, more=SETTINGS) as server:
        async with connected(server, POLL, 50, names):
            pass
        await asyncio.sleep(1)
        before = rss_kib(server.pid)
        async with connected(server, POLL, count, names, IDLE_WAIT_S):
            await asyncio.sleep(1)
            memory = (rss_kib(server.pid) - before) / count
            spent = cost(server.pid).cpu
            await asyncio.sleep(seconds)
            spent = cost(server.pid).cpu - spent
    # Of the server itself too, which pings and reads its feed: it is in any case little.
    return {"kib": memory, "percent_of_a_thousand": 100 * spent / seconds * 1000 / count * IDLE_WAIT_S / 25}


async def measure(size: Size, report: Report) -> dict[str, Any]:
    """Return all figures."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        found: dict[str, Any] = {"us": {}, "x_websocket": {}}
        for width in (1, 10):
            spent = await deliveries(folder, width, size, report)
            found["us"][str(width)] = {carrier: figure(values) for carrier, values in spent.items()}
            found["x_websocket"][str(width)] = {
                carrier: _ratio(spent[carrier], spent[WEBSOCKET]) for carrier in (STREAM, POLL)
            }
        found["idle"] = await idle(folder, size.pollers, 2 * IDLE_WAIT_S, report)
    return found


def _ratio(ours: Sequence[float], theirs: Sequence[float]) -> Figure:
    return figure([a / b for a, b in zip(ours, theirs, strict=True)])


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark; return the exit code."""
    parser(__spec__, __doc__, report="build/bench/updates.json", quick="").parse_args(argv)
    size = sized(Size(6, 500, 60, 5000), Size(2, 200, 30, 1000), Size(1, 20, 5, 50))
    with Report(2 * size.rounds + 1) as report:
        found = uvloop.run(measure(size, report))
    for width, figures in found["us"].items():
        report.figures(f"us of CPU for one delivery, {width} endpoints together", figures)
        report.figures(f"x WebSocket, {width} endpoints together", found["x_websocket"][width])
    print("an idle poll:", found["idle"])
    ratios, there, bounds = found["x_websocket"], found["idle"], ((STREAM, STREAM_X), (POLL, POLL_X))
    goals = [
        *(
            goal(f"a delivery by {each}, {n} together", "x WebSocket", bound, ratios[n][each])
            for n in ratios
            for each, bound in bounds
        ),
        goal("an idle poll", "KiB", IDLE_KIB, figure([there["kib"]])),
        goal("a thousand idle polls", "% of a core", IDLE_PERCENT, figure([there["percent_of_a_thousand"]])),
    ]
    report.goals(goals)
    print(f"written: {write('updates', found, goals)}")
    return exit_code(goals)


if __name__ == "__main__":
    sys.exit(main())
