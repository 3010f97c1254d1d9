"""A schema registry with the interface of Confluent's, as far as readers use it, and records in its wire format."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import httpx
import orjson


class SchemaRegistry:
    """Serves registered schemas over HTTP; ``status`` is answered instead, if it is not 0."""

    def __init__(self) -> None:
        self.url = ""
        self.status = 0
        self.requests: list[str] = []
        self.authorization = ""
        self._by_id: dict[int, dict[str, Any]] = {}
        self._by_version: dict[str, dict[str, Any]] = {}

    def register(self, text: str, kind: str = "AVRO", subject: str = "s", references: Any = ()) -> int:
        """Add a schema as version 1 of a subject; return its id."""
        number = len(self._by_id) + 1
        schema = {"schema": text, "references": [*references]} | ({} if kind == "AVRO" else {"schemaType": kind})
        self._by_id[number] = schema
        self._by_version[subject] = schema | {"id": number, "version": 1, "subject": subject}
        return number

    def _find(self, path: str) -> dict[str, Any] | None:
        match path.partition("?")[0].strip("/").split("/"):
            case ["schemas", "ids", number]:
                return self._by_id.get(int(number))
            case ["subjects", subject, "versions", "1"]:
                return self._by_version.get(subject)
        return None

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator["SchemaRegistry"]:
        server = await asyncio.start_server(self._answer, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        try:
            yield self
        finally:
            server.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            path = head.split()[1]
            self.requests.append(path)
            fields = dict(line.split(": ", 1) for line in head.split("\r\n")[1:] if line)
            self.authorization = httpx.Headers(fields).get("authorization", "")
            found = self._find(path)
            status = self.status or (200 if found is not None else 404)
            body = orjson.dumps(found if status == 200 else {"error_code": status})
            writer.write(
                b"HTTP/1.1 %d X\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%b" % (status, len(body), body)
            )
            await writer.drain()
        writer.close()


def framed(number: int, content: bytes) -> bytes:
    """Return a value with the id of its schema."""
    return b"\0" + number.to_bytes(4) + content
