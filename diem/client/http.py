"""HTTP requests of the client, each with a connection of its own; for parsing alone h11 is needed."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, cast
from urllib.parse import urlsplit

import h11

from diem.errors import DiemError
from diem.process.http_exchange import answer_parts

TIMEOUT_S: Final = 10.0
"""Time for a whole answer."""
MAX_BODY_BYTES: Final = 64 << 20


@dataclass(eq=False)
class Unreachable(DiemError):
    """A request got no answer."""

    template = "{url} does not answer: {reason}"
    retriable = True

    url: str
    reason: str


class HttpAnswer(NamedTuple):
    """The answer to a request."""

    status: int
    headers: Mapping[str, str]
    """Names in title case, as ``Content-Type``."""
    body: bytes


class OpenAnswer(NamedTuple):
    """An answer that is being received."""

    status: int
    headers: Mapping[str, str]
    parts: AsyncGenerator[bytes]
    """Of its body, as they arrive."""


async def request(
    method: str,
    url: str,
    *,
    headers: Mapping[str, str] | None = None,
    body: bytes = b"",
    tls: ssl.SSLContext | None = None,
    timeout_s: float = TIMEOUT_S,
) -> HttpAnswer:
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
        async with asyncio.timeout(timeout_s), open_answer(method, url, headers=headers, body=body, tls=tls) as answer:
            content = bytearray()
            async for part in answer.parts:
                content += part
                if len(content) > MAX_BODY_BYTES:
                    raise Unreachable(url, f"the body has more than {MAX_BODY_BYTES} bytes")
            return HttpAnswer(answer.status, answer.headers, bytes(content))
    except TimeoutError:
        raise Unreachable(url, f"no answer within {timeout_s:g} s") from None


@contextlib.asynccontextmanager
async def open_answer(
    method: str,
    url: str,
    *,
    headers: Mapping[str, str] | None = None,
    body: bytes = b"",
    tls: ssl.SSLContext | None = None,
) -> AsyncGenerator[OpenAnswer]:
    """Send a request, and yield its answer as soon as the head is there; leaving the block ends the connection.

    Arguments and errors are those of :func:`request`, without a limit of time; errors are raised by ``parts``, too.
    """
    try:
        parts = urlsplit(url)
        secure = (tls or True) if parts.scheme == "https" else None
        reader, writer = await asyncio.open_connection(
            parts.hostname, parts.port or (443 if secure else 80), ssl=secure
        )
        try:
            target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
            fields = {"Host": parts.netloc.rpartition("@")[2], "Connection": "close", **(headers or {})}
            if body or method != "GET":
                fields["Content-Length"] = str(len(body))
            head = h11.Request(method=method, target=target, headers=list(fields.items()))
            async with contextlib.aclosing(answer_parts(reader, writer, head, body)) as answer:
                found = cast("h11.Response", await anext(answer))
                names = ((name.decode("ascii").title(), value.decode("latin-1")) for name, value in found.headers)
                yield OpenAnswer(found.status_code, dict(names), cast("AsyncGenerator[bytes]", answer))
        finally:
            writer.transport.abort()
    except TimeoutError:
        raise
    except (OSError, ValueError, h11.ProtocolError) as error:
        raise Unreachable(url, str(error) or type(error).__name__) from error
