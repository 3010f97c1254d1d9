"""A hostile HTTP server: each path misbehaves in another way, until the client disconnects."""

import asyncio
import contextlib
import gzip
import zlib
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import cache
from typing import Final

HOUR: Final = "2026-01-01T00:00:00Z"
HEAD: Final = "HTTP/1.1 {status}\r\nContent-Type: text/csv\r\n{more}\r\n"

Way = Callable[[asyncio.StreamWriter], Awaitable[None]]


def csv(value: float) -> bytes:
    """A valid CSV body."""
    return f"time,value\n{HOUR},{value}\n".encode()


def full(body: bytes, more: str = "", status: str = "200 OK") -> bytes:
    """A complete response."""
    return HEAD.format(status=status, more=f"Content-Length: {len(body)}\r\n{more}").encode() + body


def _says(answer: bytes) -> Way:
    async def way(writer: asyncio.StreamWriter) -> None:
        writer.write(answer)
        await writer.drain()

    return way


def _forever(start: bytes, again: bytes, pause_s: float = 0.0) -> Way:
    async def way(writer: asyncio.StreamWriter) -> None:
        writer.write(start)
        while True:
            writer.write(again)
            await writer.drain()
            await asyncio.sleep(pause_s)

    return way


async def _silent(_writer: asyncio.StreamWriter) -> None:
    await asyncio.Event().wait()


async def _reset(writer: asyncio.StreamWriter) -> None:
    writer.write(HEAD.format(status="200 OK", more="Content-Length: 100\r\n").encode())
    await writer.drain()
    writer.transport.abort()


def _chunk(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


_CHUNKED: Final = HEAD.format(status="200 OK", more="Transfer-Encoding: chunked\r\n").encode()
_GZIP_CHUNKED: Final = HEAD.format(
    status="200 OK", more="Transfer-Encoding: chunked\r\nContent-Encoding: gzip\r\n"
).encode()


# Compressed when they are needed: every worker imports this module, and one serves them.
@cache
def _nothing() -> bytes:
    """32 MiB of nothing in 32 KB, a complete gzip member, so that any number of them is a body as well."""
    return gzip.compress(bytes(32 * 1024 * 1024))


@cache
def _table() -> bytes:
    """Less than 200 times smaller than its rows, so that only its decoded size gives it away."""
    rows = (f"{index},{HOUR},{index * 7919 % 10007}\n".encode() for index in range(60_000))
    return gzip.compress(b"".join(rows))


# A fifth of a megabyte in a fifth of a kilobyte: within the bytes that a body may have, but not by honest means.
_CRUMB: Final = gzip.compress(bytes(200_000))
_NAMES: Final = b"endpoint,time,value\n" + b"".join(f"/flood/{n},{HOUR},1\n".encode() for n in range(5000))


class Hostile:
    """The server. ``hits`` counts requests by path, ``strangers`` those to a second port that must not be contacted."""

    def __init__(self) -> None:
        self.good = csv(1)
        self.hits: Counter[str] = Counter()
        self.strangers = 0
        self.port = self.other_port = 0
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def ways(self) -> dict[str, Way]:
        """Every path that misbehaves."""
        here, other = f"http://127.0.0.1:{self.port}", f"http://127.0.0.1:{self.other_port}"
        return {
            "silent": _silent,
            "reset": _reset,
            "slow": _forever(HEAD.format(status="200 OK", more="Content-Length: 100000\r\n").encode(), b"t", 0.05),
            "slow-headers": _forever(b"HTTP/1.1 200 OK\r\nX-Slow: ", b"x", 0.05),
            "endless": _forever(_CHUNKED, _chunk(b"x" * 65536)),
            "endless-headers": _forever(b"HTTP/1.1 200 OK\r\n", b"X-More: " + b"x" * 1000 + b"\r\n"),
            "endless-line": _forever(b"HTTP/1.1 200 OK\r\nX-Long: ", b"x" * 65536),
            "endless-interim": _forever(b"", b"HTTP/1.1 103 Early Hints\r\n\r\n"),
            "endless-crumbs": _forever(_CHUNKED, _chunk(b"t") * 10_000),
            "endless-chunk-size": _forever(_CHUNKED, b"0" * 65536),
            "too-short": _says(HEAD.format(status="200 OK", more="Content-Length: 999\r\n").encode() + csv(1)),
            "too-long": _says(HEAD.format(status="200 OK", more="Content-Length: 25\r\n").encode() + csv(1)),
            "huge-length": _says(HEAD.format(status="200 OK", more=f"Content-Length: {10**18}\r\n").encode()),
            "two-lengths": _says(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd"),
            "negative-length": _says(b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\nabcd"),
            "broken-header": _says(b"HTTP/1.1 200 OK\r\nno colon here\r\n\r\n"),
            "no-http": _says(b"SSH-2.0-OpenSSH_9.2\r\n\r\n"),
            "status-500": _says(full(b"oops", status="500 Internal Server Error")),
            "status-503": _says(full(b"", "Retry-After: 0\r\n", status="503 Service Unavailable")),
            "unasked-304": _says(full(b"", status="304 Not Modified")),
            "upgrade": _says(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n"),
            "redirect-port": _says(full(b"", f"Location: {other}/good\r\n", "302 Found")),
            "redirect-host": _says(full(b"", f"Location: http://localhost:{self.port}/good\r\n", "301 Moved")),
            "redirect-scheme": _says(full(b"", f"Location: https://127.0.0.1:{self.port}/good\r\n", "307 Temp")),
            "redirect-loop": _says(full(b"", f"Location: {here}/redirect-loop\r\n", "302 Found")),
            "redirect-nowhere": _says(full(b"", "Location: http://[::1/\r\n", "302 Found")),
            "bomb": _forever(_GZIP_CHUNKED, _chunk(_nothing())),
            "bomb-of-crumbs": _says(full(_CRUMB, "Content-Encoding: gzip\r\n")),
            "bomb-of-rows": _says(full(_table(), "Content-Encoding: gzip\r\n")),
            "cut-gzip": _says(full(gzip.compress(csv(1))[:-9], "Content-Encoding: gzip\r\n")),
            "no-gzip": _says(full(csv(1), "Content-Encoding: gzip\r\n")),
            "other-coding": _says(full(zlib.compress(csv(1)), "Content-Encoding: br\r\n")),
            "no-text": _says(full(b"time,value\n\xff\xfe")),
            "no-table": _says(full(b"<html>" * 1000)),
            "deep-json": _says(full(b"[" * 100_000).replace(b"text/csv", b"application/json")),
            "one-line": _says(full(b"time,value\n" + b"9" * 200_000)),
            "flood": _says(full(_NAMES)),
        }

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator["Hostile"]:
        """Serve until the end of the block, then close every connection."""
        stranger = await asyncio.start_server(self._strange, "127.0.0.1", 0)
        self.other_port = stranger.sockets[0].getsockname()[1]
        server = await asyncio.start_server(self._answer, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            for one in (server, stranger):
                one.close()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _strange(self, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.strangers += 1
        writer.write(full(csv(666)))
        writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        # Cancelled at the end: Python 3.11 reports that of a connection as an error.
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            path = head.split()[1].lstrip("/")
            self.hits[path] += 1
            hops = {"moved": "moved-again", "moved-again": "good"}
            if path == "good":
                cookie = f'Set-Cookie: many{self.hits[path]}={"x" * 1000}\r\nETag: "{"e" * 5000}"\r\n'
                writer.write(full(self.good, cookie))
            elif path in hops:
                writer.write(full(b"", f"Location: /{hops[path]}\r\n", "302 Found"))
            else:
                await self.ways[path](writer)
            if "cookie:" in head.lower() or "e" * 100 in head:
                self.strangers += 1
        if not writer.is_closing():
            writer.close()
