"""The load clients: a process of C that only counts (drain.c), and probes in Python that check every version."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import orjson
from websockets.asyncio.client import ClientConnection, connect
from websockets.typing import Subprotocol


class Lost(Exception):
    """Clients did not receive what they should."""


class Counted(NamedTuple):
    """Frames that a drain has received since its start."""

    updates: int
    replies: int
    open: int


class After(NamedTuple):
    """What became of connections since ``Drain.forget``."""

    open: int
    marked: int
    """Number of connections that have received the mark."""
    last_open_s: float
    last_marked_s: float
    refused: int
    """Attempts to connect that failed."""


class Drain:
    """``count`` connections that read and count."""

    def __init__(self, process: asyncio.subprocess.Process, count: int) -> None:
        self._process = process
        self.count = count
        self.counted = Counted(0, 0, count)

    def send_all(self, text: str) -> None:
        """Send a message on every connection; ``#`` is replaced by its number."""
        self._command(f"say {text}")

    def send(self, number: int, text: str) -> None:
        """Send a message on one connection."""
        self._command(f"tell {number} {text}")

    def join(self, text: str) -> None:
        """Send a message on every connection, and first on those that are opened later; with a dialect, up to four."""
        self._command(f"join {text}")

    def forget(self, mark: str) -> None:
        """From now on note which connections receive a text of at most 32 bytes; with a dialect."""
        self._command(f"forget {mark}")

    async def after(self) -> After:
        """Return what became of the connections since ``forget``."""
        opened, marked, last_open, last_marked, refused = (await self._answer("state")).split()
        return After(int(opened), int(marked), float(last_open), float(last_marked), int(refused))

    def stall(self) -> None:
        """Stop reading."""
        self._command("stall")

    def sweep_every(self, ms: int) -> None:
        """Read every so many milliseconds from now on, whatever is waited for; at first it is every 50."""
        self._command(f"sweep {ms}")

    async def reach(self, *, updates: int = 0, replies: int = 0) -> None:
        """Wait until this many more frames have arrived.

        Raises:
            Lost: not within half a minute, or connections were closed, or more arrived.
        """
        goal = Counted(self.counted.updates + updates, self.counted.replies + replies, self.count)
        line = await self._answer(f"wait {goal.updates} {goal.replies}")
        self.counted = Counted(*map(int, line.split())) if line else Counted(0, 0, 0)
        if self.counted != goal:
            raise Lost(f"expected {goal}, got {self.counted}")

    async def count_now(self) -> Counted:
        """Return the frames that have arrived so far."""
        self.counted = Counted(*map(int, (await self._answer("wait 0 0")).split()))
        return self.counted

    async def _answer(self, line: str) -> bytes:
        self._command(line)
        assert self._process.stdout is not None
        return await self._process.stdout.readline()

    def _command(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n".encode())


@contextlib.asynccontextmanager
async def draining(
    program: Path,
    port: int,
    count: int,
    *,
    net: int,
    core: int | None,
    path: str = "/ws",
    dialect: str | None = None,
    within: float = 60.0,
) -> AsyncIterator[Drain]:
    """Open ``count`` connections to a server, 50 from each address of 127.0.``net``.0.

    ``dialect``: of drain.c, for servers of others; ``path`` may then be a file of paths, ``@FILE``.
    """
    process = await asyncio.create_subprocess_exec(
        program,
        *map(str, (port, count, net, path)),
        *([dialect] if dialect else []),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    pin(process.pid, core)
    try:
        async with asyncio.timeout(within):
            if await process.stdout.readline() != b"ready\n":
                raise Lost("the clients could not connect")
        yield Drain(process, count)
    finally:
        process.stdin.close()
        await process.wait()


class Probe:
    """A client in Python that decodes everything and checks that no version is missing, repeated or out of order."""

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection
        self._arrived = asyncio.Event()
        self.versions: dict[str, int] = {}
        self.updates = 0
        self.with_data = 0
        """Number of updates that carried data."""
        self.faults: list[str] = []

    async def subscribe(self, *endpoints: str, data: bool = False) -> None:
        message: dict[str, object] = {"type": "subscribe", "id": 1, "endpoints": dict.fromkeys(endpoints)}
        if data:
            message["data"] = True
        await self._connection.send(orjson.dumps(message), text=True)

    async def authenticate(self, token: str) -> None:
        await self._connection.send(orjson.dumps({"type": "auth", "id": 0, "token": token}), text=True)

    async def read(self) -> None:
        async for frame in self._connection:
            message = orjson.loads(frame)
            if message["type"] == "update":
                endpoint, version = message["endpoint"], message["version"]
                if version <= self.versions.get(endpoint, 0):
                    self.faults.append(f"{endpoint}: {version} after {self.versions[endpoint]}")
                self.versions[endpoint] = version
                self.updates += 1
                self.with_data += "data" in message
                self._arrived.set()

    async def reach(self, endpoint: str, version: int) -> None:
        """Wait for a version.

        Raises:
            Lost: it does not come, or what came was not in order.
        """
        async with asyncio.timeout(60):
            while self.versions.get(endpoint, 0) < version:
                self._arrived.clear()
                await self._arrived.wait()
        if self.faults:
            raise Lost("; ".join(self.faults[:3]))


@contextlib.asynccontextmanager
async def probing(port: int) -> AsyncIterator[Probe]:
    """Connect a probe."""
    protocols = [Subprotocol("diem.v1.json")]
    url = f"ws://127.0.0.1:{port}/ws"
    async with connect(url, subprotocols=protocols, proxy=None, compression=None, ping_interval=None) as connection:
        probe = Probe(connection)
        reading = asyncio.create_task(probe.read())
        try:
            yield probe
        finally:
            reading.cancel()


def pin(pid: int, core: int | None) -> None:
    """Pin a process to one core; None leaves it to the scheduler."""
    if core is not None:
        os.sched_setaffinity(pid, {core})


def own_core() -> tuple[int | None, int | None]:
    """Pin this process to the second core; return the first, for what is measured, and the second.

    Without a second core both are None, and the scheduler decides.
    """
    available = sorted(os.sched_getaffinity(0))
    first, second = (available[0], available[1]) if len(available) > 1 else (None, None)
    pin(os.getpid(), second)
    return first, second
