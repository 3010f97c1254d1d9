"""HTTP requests of the client, each with a connection of its own; for parsing alone h11 is needed."""

import asyncio
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple
from urllib.parse import urlsplit

import h11

from diem.errors import DiemError

TIMEOUT_S: Final = 10.0
"""Time for a whole answer."""
MAX_BODY_BYTES: Final = 64 << 20
_CHUNK_BYTES: Final = 64 * 1024


@dataclass(eq=False)
class Unreachable(DiemError):
    """A request got no answer."""

    template = "{url} does not answer: {reason}"
    retriable = True

    url: str
    reason: str


class Answer(NamedTuple):
    """The answer to a request."""

    status: int
    headers: Mapping[str, str]
    """Names in title case, as ``Content-Type``."""
    body: bytes


async def request(
    method: str,
    url: str,
    *,
    headers: Mapping[str, str] | None = None,
    body: bytes = b"",
    tls: ssl.SSLContext | None = None,
    timeout_s: float = TIMEOUT_S,
) -> Answer:
    """Send a request, and return its answer whatever the status.

    Args:
        method: of HTTP.
        url: with the scheme ``http`` or ``https``.
        headers: besides ``Host`` and ``Content-Length``.
        body: sent with its length.
        tls: context for ``https``; None: the system's authorities decide.
        timeout_s: for the whole answer.

    Raises:
        Unreachable: no answer in time, or none of HTTP, or a body of more than 64 MiB.
    """
    try:
        async with asyncio.timeout(timeout_s):
            parts = urlsplit(url)
            secure = (tls or True) if parts.scheme == "https" else None
            port = parts.port or (443 if secure else 80)
            reader, writer = await asyncio.open_connection(parts.hostname, port, ssl=secure)
            try:
                target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
                fields = {"Host": parts.netloc.rpartition("@")[2], "Connection": "close", **(headers or {})}
                if body or method != "GET":
                    fields["Content-Length"] = str(len(body))
                return await _exchange(reader, writer, method, target, fields, body)
            finally:
                writer.transport.abort()
    except TimeoutError:
        raise Unreachable(url, f"no answer within {timeout_s:g} s") from None
    except (OSError, ValueError, h11.ProtocolError) as error:
        raise Unreachable(url, str(error) or type(error).__name__) from error


async def _exchange(  # noqa: PLR0917  # the parts of one request
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    method: str,
    target: str,
    headers: Mapping[str, str],
    body: bytes,
) -> Answer:
    connection = h11.Connection(h11.CLIENT)
    writer.write(connection.send(h11.Request(method=method, target=target, headers=list(headers.items()))) or b"")
    if body:
        writer.write(connection.send(h11.Data(data=body)) or b"")
    writer.write(connection.send(h11.EndOfMessage()) or b"")
    answer: h11.Response | None = None
    content = bytearray()
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            connection.receive_data(await reader.read(_CHUNK_BYTES))
        elif isinstance(event, h11.Response):
            answer = event
        elif isinstance(event, h11.Data):
            content += event.data
            if len(content) > MAX_BODY_BYTES:
                raise h11.RemoteProtocolError(f"the body has more than {MAX_BODY_BYTES} bytes")
        elif isinstance(event, h11.EndOfMessage) and answer is not None:
            fields = {name.decode("ascii").title(): value.decode("latin-1") for name, value in answer.headers}
            return Answer(answer.status_code, fields, bytes(content))
        elif not isinstance(event, h11.InformationalResponse):
            raise h11.RemoteProtocolError("the connection was closed before the answer")
