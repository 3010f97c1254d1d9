"""The servers that are compared: each a process of its own, told what to publish, with clients connected to it."""

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

from diem.process.auth import SharedKey
from diem.protocol.update import encode, next_version
from tests.bench.drain import Drain, Lost, Probe, pin
from tests.bench.procfs import Cost, cost
from tests.support.ports import free_port
from tests.support.small import START, MemoryFeed

SETTLE = 0.01
"""Seconds after which a server that has nothing to do is asleep."""
WARM_UP = 20
"""Ticks before a block: after a pause Linux acknowledges the first 16 segments of a connection one by one, at the
server's expense when both ends are on one machine; without them who follows itself in turn would look better."""


class Server(Protocol):
    """A server under measurement."""

    pid: int
    port: int

    def publish(self, *endpoints: str) -> int:
        """Change endpoints in one tick; returns the last version."""
        ...


class Peer:
    """A server that reads payloads from its standard input."""

    def __init__(self, process: asyncio.subprocess.Process, port: int) -> None:
        self.pid = process.pid
        self.port = port
        self._process = process
        self._sequence = 0
        self._version = 0

    def publish(self, *endpoints: str) -> int:
        assert self._process.stdin is not None
        for endpoint in endpoints:
            self._version = next_version(self._version, START)
            self._process.stdin.write(encode(endpoint, self._version, self._version) + b"\n")
        self._process.stdin.write(b"\n")
        return self._version


class Diem:
    """The real WebSocket server, fed by a feed in this process."""

    def __init__(self, process: asyncio.subprocess.Process, port: int, internal: int, feed: MemoryFeed) -> None:
        self.pid = process.pid
        self.port = port
        self.feed = feed
        self.internal = internal

    async def conflated(self) -> int:
        """Frames that were replaced by later ones before their client could take them."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.internal)
        request = f"GET /metrics HTTP/1.1\r\nHost: x\r\nAuthorization: {self.feed.key.header}\r\n\r\n"
        writer.write(request.encode())
        text = (await reader.read()).decode()
        writer.close()
        return int(float(text.partition("\ndiem_deliveries_conflated_total ")[2].split()[0]))

    def publish(self, *endpoints: str) -> int:
        return self.feed.put(*endpoints)


class Carrying:
    """The same server, whose updates carry data of a size, and a media type if it is no series."""

    def __init__(self, server: Diem, size: int, media_type: str = "") -> None:
        self.pid = server.pid
        self.port = server.port
        self._feed = server.feed
        self._size = size
        self._media_type = media_type

    def publish(self, *endpoints: str) -> int:
        return self._feed.put(*endpoints, size=self._size, media_type=self._media_type)


@contextlib.asynccontextmanager
async def peer(*command: str | Path, core: int | None) -> AsyncIterator[Peer]:
    """A running peer; the port is its last argument."""
    port = free_port()
    async with _process([*command, str(port)], {}, core) as process:
        await _listening(process, port)
        yield Peer(process, port)


def python(module: str) -> tuple[str, ...]:
    """The command of a peer that is written in Python."""
    return (sys.executable, "-m", f"tests.bench.{module}")


@contextlib.asynccontextmanager
async def diem(
    directory: Path, *, core: int | None, sockets: Path | None = None, more: Mapping[str, str] | None = None
) -> AsyncIterator[Diem]:
    """A running WebSocket server at its default settings, but for the rate of new connections of an address.

    ``sockets``: where it listens for proxies on a Unix socket, besides; ``more``: further variables.
    """
    key_file = directory / "internal.key"
    feed = MemoryFeed(SharedKey.create(key_file))
    await feed.start()
    port, internal = free_port(), free_port()
    settings = {
        "DIEM_INTERNAL_KEY_FILE": key_file,
        "DIEM_LOG_LEVEL": "warning",
        "DIEM_WEBSOCKET_PORT": port,
        "DIEM_WEBSOCKET_INTERNAL_PORT": internal,
        "DIEM_WEBSOCKET_FEED_URL": feed.url,
        "DIEM_WEBSOCKET_CONNECTION_RATE_PER_ADDRESS": 10_000,
        "DIEM_INTERNAL_SOCKETS": sockets or "",
    }
    command = (sys.executable, "-m", "deploy", "run", "websocket")
    async with _process(
        command, {name: str(value) for name, value in settings.items()} | dict(more or {}), core
    ) as process:
        await _listening(process, port)
        await _ready(process, internal)
        yield Diem(process, port, internal, feed)
    await feed.stop()


@dataclass
class Target:
    """A server with its clients."""

    server: Server
    drain: Drain
    probe: Probe | None = None

    async def block(self, endpoints: list[str], ticks: int) -> "Block":
        """Publish ``ticks`` times, each when all clients have what was published before; returns what it cost."""
        for _ in range(WARM_UP):
            self.server.publish(endpoints[0])
            await self.drain.reach(updates=self.drain.count)
        await asyncio.sleep(SETTLE)
        known = self.probe.updates if self.probe else 0
        version = 0
        before = cost(self.server.pid)
        for _ in range(ticks):
            version = self.server.publish(*endpoints)
            await self.drain.reach(updates=len(endpoints) * self.drain.count)
        await asyncio.sleep(SETTLE)
        spent = cost(self.server.pid) - before
        deliveries = ticks * len(endpoints) * self.drain.count
        if self.probe:
            await self.probe.reach(endpoints[-1], version)
            if self.probe.updates - known != ticks * len(endpoints):
                raise Lost(f"a probe got {self.probe.updates - known} updates, not {ticks * len(endpoints)}")
            deliveries += ticks * len(endpoints)
        return Block(spent.cpu / deliveries * 1e6, spent.writes / deliveries)


class Block(NamedTuple):
    """What one delivery has cost."""

    cpu_us: float
    writes: float


async def measured(server: Server) -> Cost:
    """What a server has cost until now."""
    await asyncio.sleep(SETTLE)
    return cost(server.pid)


@contextlib.asynccontextmanager
async def _process(
    command: "list[str | Path] | tuple[str, ...]", settings: Mapping[str, str], core: int | None
) -> AsyncIterator[asyncio.subprocess.Process]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("DIEM_")}
    process = await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.PIPE, env={**inherited, **settings}
    )
    pin(process.pid, core)
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def _listening(process: asyncio.subprocess.Process, port: int) -> None:
    async with asyncio.timeout(20):
        while not _bound(port):
            if process.returncode is not None:
                raise Lost(f"a server ended with {process.returncode} at its start")
            await asyncio.sleep(0.05)


def _bound(port: int) -> bool:
    """Whether somebody listens: looked up, because a connection would be taken for a client."""
    listening = f":{port:04X} 00000000:0000 0A"
    return listening in Path("/proc/net/tcp").read_text()


async def _ready(process: asyncio.subprocess.Process, port: int) -> None:
    async with asyncio.timeout(20):
        while process.returncode is None:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n")
            status = (await reader.readline()).split()
            writer.close()
            if status[1] == b"200":
                return
            await asyncio.sleep(0.05)
