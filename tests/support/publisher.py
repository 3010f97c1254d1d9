"""A publisher's HTTP server on loopback: a test decides what it answers, and sees what it was sent."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from types import MappingProxyType
from typing import NamedTuple
from urllib.parse import parse_qsl, urlsplit


class Sent(NamedTuple):
    """A request; header fields in lower case."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes

    @property
    def path(self) -> str:
        """The path of the target."""
        return urlsplit(self.target).path

    @property
    def query(self) -> dict[str, str]:
        """The parameters."""
        return dict(parse_qsl(urlsplit(self.target).query, keep_blank_values=True))


class Reply(NamedTuple):
    """An answer."""

    body: bytes | str = b""
    status: int = 200
    headers: Mapping[str, str] = MappingProxyType({})


class Publisher:
    """Answers every request by :attr:`answer`."""

    def __init__(self) -> None:
        self.port = 0
        self.requests: list[Sent] = []
        self.answer: Callable[[Sent], Reply] = lambda _request: Reply(status=404)

    @property
    def url(self) -> str:
        """The address without a path."""
        return f"http://127.0.0.1:{self.port}"

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
                method, target, _ = head[0].split(" ")
                fields = [line.split(": ", 1) for line in head[1:] if line]
                headers = {name.lower(): value for name, value in fields}
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                self.requests.append(Sent(method, target, headers, body))
                reply = self.answer(self.requests[-1])
                content = reply.body.encode() if isinstance(reply.body, str) else reply.body
                given = {"Content-Length": str(len(content)), **reply.headers}
                lines = [f"HTTP/1.1 {reply.status} X", *(f"{name}: {value}" for name, value in given.items())]
                writer.write("\r\n".join([*lines, "", ""]).encode("latin-1") + content)
                await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            writer.close()


@asynccontextmanager
async def published() -> AsyncIterator[Publisher]:
    """Run a publisher's server while the block runs."""
    publisher = Publisher()
    async with await asyncio.start_server(publisher.handle, "127.0.0.1", 0) as server:
        publisher.port = server.sockets[0].getsockname()[1]
        yield publisher
        server.close()
