"""One HTTP request and its answer on a connection of its own."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final, cast

import h11

_CHUNK_BYTES: Final = 64 * 1024


async def exchange(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    head: h11.Request,
    body: bytes,
    *,
    longest: int,
    read_timeout_s: float | None = None,
) -> tuple[h11.Response, bytes]:
    """Send a request, and return the head and the body of its answer.

    Args:
        reader: of the connection.
        writer: of the connection.
        head: of the request.
        body: of the request.
        longest: greatest length of the answer's body, in bytes.
        read_timeout_s: for each read; None: there is none.

    Raises:
        h11.ProtocolError: the answer is not one of HTTP, ends early, or has a longer body.
        TimeoutError: nothing was read in time.
    """
    async with aclosing(answer_parts(reader, writer, head, body, read_timeout_s=read_timeout_s)) as parts:
        answer = cast("h11.Response", await anext(parts))
        content = bytearray()
        async for part in parts:
            content += cast("bytes", part)
            if len(content) > longest:
                raise h11.RemoteProtocolError(f"the body has more than {longest} bytes")
        return answer, bytes(content)


async def answer_parts(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    head: h11.Request,
    body: bytes,
    *,
    read_timeout_s: float | None = None,
) -> AsyncGenerator[h11.Response | bytes]:
    """Send a request, and yield the head of its answer, then the parts of the body as they arrive.

    Arguments and errors are those of :func:`exchange`, whose answers have an end.
    """
    connection = h11.Connection(h11.CLIENT)
    writer.write(connection.send(head) or b"")
    writer.write((connection.send(h11.Data(data=body)) or b"") + (connection.send(h11.EndOfMessage()) or b""))
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            async with asyncio.timeout(read_timeout_s):
                connection.receive_data(await reader.read(_CHUNK_BYTES))
        elif isinstance(event, h11.Response):
            yield event
        elif isinstance(event, h11.Data):
            yield bytes(event.data)
        elif isinstance(event, h11.EndOfMessage):
            return
        elif not isinstance(event, h11.InformationalResponse):
            raise h11.RemoteProtocolError("the connection was closed before the answer")
