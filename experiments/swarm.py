"""Many clients by ``tests/bench/swarm.c``, in several processes, and the writer of what their oracle judges."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import httpx
import orjson

from tests.bench.drain import Lost, pin
from tests.bench.native import program
from tests.load.system import System
from tests.support.patience import PATIENCE_S

MOST: Final = 17_000
"""Clients of a process; 20,000 open files are allowed."""
FIRST_NET: Final = 8
_LINE_BYTES: Final = 1 << 22
_WORST: Final = frozenset({"last_live", "latency_p50", "latency_p99", "latency_max"})
"""Of several processes, the greatest counts; everything else is added."""
LOOK_S: Final = 0.1
_AUTOGROUP: Final = Path("/proc/self/autogroup")
"""Linux shares cores by session, whatever the nice values of its processes."""
_PRECEDENCE: Final = -5


class Subscriptions(NamedTuple):
    """Subscriptions of the clients: ``each`` of ``endpoints`` that begin with ``stem``, in turn."""

    stem: str
    endpoints: int = 1
    each: int = 1
    data: bool = False

    @property
    def judged(self) -> str:
        """The endpoint that the oracle judges."""
        return f"{self.stem}0"


class Delivery(NamedTuple):
    """A version, as the clients that were live before it received it."""

    clients: int
    last_s: float
    """From the beginning of its write to its last client."""


class Course(NamedTuple):
    """How clients became live."""

    counts: dict[str, Any]
    live: Sequence[tuple[float, int]]
    """Live clients by time."""

    def reached(self, count: float, since: float) -> float | None:
        """Return the time from which on so many were live; None if fewer are."""
        fewer = [at for at, (_, live) in enumerate(self.live) if live < count]
        first = fewer[-1] + 1 if fewer else 0
        return round(self.live[first][0] - since, 2) if first < len(self.live) else None


class Swarm:
    """Clients in several processes."""

    def __init__(self, processes: Sequence[asyncio.subprocess.Process], of: Subscriptions) -> None:
        self.subscriptions = of
        self._processes = processes
        self._send_all(f"subscribe {of.stem} {of.endpoints} {of.each} {int(of.data)}")

    @property
    def pids(self) -> list[int]:
        return [process.pid for process in self._processes]

    def open(self, count: int, rate: float) -> None:
        """Have so many clients, with so many dials a second."""
        number = len(self._processes)
        for at, process in enumerate(self._processes):
            self._send(process, f"open {count // number + (at < count % number)} {rate / number}")

    def churn(self, rate: float) -> None:
        """From now on, let so many clients a second leave, and others come."""
        self._send_all(f"churn {rate / len(self._processes)}")

    def cut(self) -> None:
        """Reset all connections."""
        self._send_all("cut")

    def slow(self, bytes_per_s: int) -> None:
        """Read only so many bytes a second of each connection; 0: all."""
        self._send_all(f"slow {bytes_per_s}")

    def newest(self, version: int, at: float) -> None:
        """State that the judged endpoint has a version since a time."""
        self._send_all(f"newest {version} {at:.6f}")

    async def state(self) -> dict[str, Any]:
        """Return the counts; those of events begin anew."""
        total: dict[str, Any] = {"closes": {}}
        for found in await self._answers("state?"):
            for code, number in found.pop("closes").items():
                total["closes"][code] = total["closes"].get(code, 0) + number
            for name, value in found.items():
                total[name] = max(total.get(name, 0), value) if name in _WORST else total.get(name, 0) + value
        return total

    async def reach(self, count: int, within_s: float, *, lost: int = 0) -> Course:
        """Wait until so many clients are live, and as many have been lost."""
        total: dict[str, Any] = {"lost": 0}
        live: list[tuple[float, int]] = []
        limit = time.monotonic() + within_s
        while not live or live[-1][1] < count or total["lost"] < lost:
            if live:
                await asyncio.sleep(LOOK_S)
            total = _added(total, await self.state())
            live.append((time.monotonic(), total["live"]))
            if live[-1][0] > limit:
                break
        return Course(total, live)

    async def versions(self, written: Mapping[int, float]) -> list[Delivery]:
        """Return the deliveries of the judged endpoint's versions since the last call."""
        clients: dict[int, int] = {}
        last: dict[int, float] = {}
        for found in await self._answers("versions?"):
            for version, have, _, until in found:
                clients[version] = clients.get(version, 0) + have
                last[version] = max(last.get(version, 0.0), until)
        return [Delivery(clients.get(v, 0), round(last.get(v, began) - began, 4)) for v, began in written.items()]

    async def _answers(self, line: str) -> list[Any]:
        self._send_all(line)
        answers = []
        for process in self._processes:
            assert process.stdout is not None
            async with asyncio.timeout(PATIENCE_S):
                text = await process.stdout.readline()
            if not text:
                raise Lost("the clients ended")
            answers.append(orjson.loads(text))
        return answers

    def _send_all(self, line: str) -> None:
        for process in self._processes:
            self._send(process, line)

    @staticmethod
    def _send(process: asyncio.subprocess.Process, line: str) -> None:
        assert process.stdin is not None
        process.stdin.write(f"{line}\n".encode())


def _added(total: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """Add counts of events; of clients that are live or open, the latter count."""
    added = dict(more)
    for name, value in total.items():
        if name == "closes":
            added[name] = {code: value.get(code, 0) + more[name].get(code, 0) for code in {**value, **more[name]}}
        elif name in _WORST:
            added[name] = max(value, more[name])
        elif name not in {"live", "open", "left"}:
            added[name] = value + more[name]
    return added


@contextlib.asynccontextmanager
async def swarming(
    system: System,
    most: int,
    subscriptions: Subscriptions,
    *,
    first_net: int = FIRST_NET,
    core: int | None = None,
    receive_buffer: int = 0,
) -> AsyncIterator[Swarm]:
    """Run clients that are not open yet; their addresses begin with 127.0.``first_net``."""
    _, port, path = system.servers[0]
    with contextlib.suppress(OSError):
        # Clients on machines of their own do not wait for a core that servers have.
        _AUTOGROUP.write_text(f"{_PRECEDENCE}", encoding="ascii")
    number = -(-most // MOST)
    each = -(-most // number)
    pipe, processes = asyncio.subprocess.PIPE, list[asyncio.subprocess.Process]()
    try:
        for at in range(number):
            words = map(str, (port, each, first_net + 2 * at, path, receive_buffer))
            processes.append(
                await asyncio.create_subprocess_exec(
                    program("swarm"), *words, stdin=pipe, stdout=pipe, limit=_LINE_BYTES
                )
            )
            pin(processes[-1].pid, core)
        yield Swarm(processes, subscriptions)
    finally:
        for process in processes:
            assert process.stdin is not None
            process.stdin.close()
        for process in processes:
            await process.wait()


class Writer:
    """Writes endpoints of clients, in turn, ``batch`` at once."""

    def __init__(self, system: System, swarm: Swarm, every_s: float, *, batch: int = 1, size: int = 0) -> None:
        self.written: dict[int, float] = {}
        """Versions of the judged endpoint by the beginning of their write."""
        self._every_s = every_s
        self._batch = batch
        self._padding = "x" * size
        self._system = system
        self._swarm = swarm
        self._updates = 0

    @contextlib.asynccontextmanager
    async def writing(self) -> AsyncIterator[None]:
        """Write meanwhile."""
        task = asyncio.create_task(self._write())
        try:
            yield
        finally:
            if task.done():
                task.result()
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    def updates(self) -> int:
        """Return the number of endpoints written since the last call."""
        number, self._updates = self._updates, 0
        return number

    async def deliveries(self) -> list[Delivery]:
        """Return what became of the judged endpoint's versions since the last call, in their order."""
        found = await self._swarm.versions(self.written)
        self.written.clear()
        return found

    async def _write(self) -> None:
        headers = {"Authorization": f"Bearer {self._system.write_key}", "Content-Type": "application/json"}
        of = self._swarm.subscriptions
        async with httpx.AsyncClient(timeout=PATIENCE_S, trust_env=False, headers=headers) as http:
            at, due = 0, time.monotonic()
            while True:
                names = [f"{of.stem}{(at + number) % of.endpoints}" for number in range(self._batch)]
                at += self._batch
                value = f"{time.monotonic_ns()}{self._padding}"
                documents = [{"endpoint": name, "value": value} for name in names]
                began = time.monotonic()
                answer = await http.put(f"{self._system.rest}/v1/data", content=orjson.dumps({"documents": documents}))
                answer.raise_for_status()
                accepted = time.monotonic()
                self._updates += len(names)
                for each in answer.json()["accepted"]:
                    if each["endpoint"] == of.judged:
                        self.written[each["version"]] = began
                        self._swarm.newest(each["version"], accepted)
                due = max(due + self._every_s, accepted)
                await asyncio.sleep(due - accepted)
