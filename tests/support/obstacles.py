"""Proxies that are no friends of WebSocket, as those of companies, hotels and virus scanners."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from enum import StrEnum
from typing import NamedTuple
from urllib.parse import urlsplit

CHUNK = 64 * 1024


class Obstacle(StrEnum):
    """What a proxy does to a handshake, or to all answers."""

    STRIPS = "strips Upgrade"
    FORBIDS = "answers handshakes with 403"
    SWALLOWS = "passes on handshakes, and no frame"
    BUFFERS = "holds answers back until there are 64 KiB, or the end"


class _Request(NamedTuple):
    start: str
    path: str
    fields: dict[str, str]
    body: bytes


class Proxy:
    """A proxy with one origin before a page and an edge.

    Args:
        obstacle: what it does; None, set later: nothing.
        page: URL of the page and of REST.
        edge: address of the edge, ``host:port``.
    """

    def __init__(self, obstacle: Obstacle, page: str, edge: str) -> None:
        self.obstacle: Obstacle | None = obstacle
        self._page = page.rstrip("/")
        self._edge = edge
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0
        self.handshakes = 0

    def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve a connection, which has one request."""
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """End all connections."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            start, *lines = head.split("\r\n")[:-2]
            fields = {line.partition(":")[0].lower(): line.partition(":")[2].strip() for line in lines}
            body = await reader.readexactly(int(fields.get("content-length", 0)))
            path = start.split()[1].partition("?")[0]
            if path == "/config.json":
                config = b'{"mode":"single","servers":[{"port":%d,"path":"/ws"}],"rest":"/v1"}' % self.port
                writer.write(
                    b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(config) + config
                )
            else:
                upgrade = "upgrade" in fields
                self.handshakes += upgrade
                if upgrade and self.obstacle is Obstacle.FORBIDS:
                    writer.write(b"HTTP/1.1 403 Forbidden\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
                else:
                    upgrade = upgrade and self.obstacle is not Obstacle.STRIPS
                    await self._forward(
                        _Request(start, path, fields, body), upgrade=upgrade, reader=reader, writer=writer
                    )
            await writer.drain()
        writer.close()

    async def _forward(
        self, request: "_Request", *, upgrade: bool, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        start, path, fields, body = request
        origin = urlsplit(self._page)
        target = self._edge if path in {"/ws", "/v1/updates"} else origin.netloc
        # The page of another port is not allowed: it is the proxy's.
        own = {"host": origin.netloc, **({"origin": self._page} if "origin" in fields else {})}
        if not upgrade:
            fields = {name: value for name, value in fields.items() if name not in {"upgrade", "connection"}}
            own["connection"] = "close"
        host, _, port = target.rpartition(":")
        above, below = await asyncio.open_connection(host, int(port))
        try:
            text = "\r\n".join([start, *(f"{name}: {value}" for name, value in (fields | own).items()), "", ""])
            below.write(text.encode("latin-1") + body)
            if upgrade and self.obstacle is Obstacle.SWALLOWS:
                writer.write(await above.readuntil(b"\r\n\r\n"))
                await reader.read()
                return
            upwards = asyncio.create_task(self._upwards(reader, below))
            held = b""
            while data := await above.read(CHUNK):
                held += data
                if self.obstacle is not Obstacle.BUFFERS or len(held) >= CHUNK:
                    writer.write(held)
                    held = b""
                    await writer.drain()
            writer.write(held)
            upwards.cancel()
        finally:
            below.close()

    async def _upwards(self, reader: asyncio.StreamReader, below: asyncio.StreamWriter) -> None:
        """Pass on what the client sends, and its end."""
        while data := await reader.read(CHUNK):
            below.write(data)
        below.close()


@contextlib.asynccontextmanager
async def proxy(obstacle: Obstacle, page: str, edge: str) -> AsyncIterator[Proxy]:
    """Run a proxy on a port of its own."""
    made = Proxy(obstacle, page, edge)
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    made.port = server.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        server.close()
        await made.close()
