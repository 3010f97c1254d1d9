"""Answers to plain reads in one step of the event loop, without the HTTP library and the application; pure.

For an answer in memory, nearly all cost is in the parser, the task and the application. So a listener first offers each
request to a :class:`FastPath`, if its head arrived whole and is plain: anything that :func:`parse` does not understand
is left to the library, which decides on validity.
"""

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from http import HTTPStatus
from typing import Final, NamedTuple, Protocol

MAX_HEAD_BYTES: Final = 16 * 1024
REMEMBERED: Final = 512
"""Number of cached parsed request heads: those of a herd, or of one client over time, are the same."""
MAX_REMEMBERED_BYTES: Final = 1024
"""Longest cached head: with their parsed forms they take at most 2 MiB."""
_FIELD: Final = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+:[ \t!-~]*\r\n"
_HEAD: Final = re.compile(rb"(GET|HEAD) (/[!-~]*) HTTP/1\.1\r\n((?:" + _FIELD + rb")+)\r\n")
_UNUSUAL: Final = frozenset({b"content-length", b"transfer-encoding", b"expect", b"upgrade"})
"""Fields announcing a body or another protocol."""
_KEEP_ALIVE: Final = b"keep-alive"


class RequestHead(NamedTuple):
    """A request without a body on a persistent connection."""

    method: str
    """GET or HEAD."""
    target: bytes
    """Path and query as sent."""
    fields: Mapping[bytes, bytes]
    """Header fields by name in lower case; each occurs once."""


class FastAnswer(NamedTuple):
    """A whole answer."""

    status: int
    fields: bytes
    """Header fields, each with its line end; without those added to all answers by the server."""
    body: bytes
    """Empty for HEAD and 304."""


class FastPath(Protocol):
    """Answers requests without waiting."""

    def __call__(self, head: RequestHead, address: str) -> FastAnswer | None:
        """Answer a request from an address; None, without side effects, leaves it to the application."""
        ...


def parse(data: bytes) -> RequestHead | None:
    """Parse ``data`` as a request; None unless it is exactly one, and plain.

    Stricter than RFC 9112: ASCII only, no field twice, HTTP/1.1.
    """
    return _remembered(data) if len(data) <= MAX_REMEMBERED_BYTES else _parse(data)


def _parse(data: bytes) -> RequestHead | None:
    found = _HEAD.fullmatch(data) if len(data) <= MAX_HEAD_BYTES else None
    if found is None:
        return None
    method, target, block = found.groups()
    lines = block.split(b"\r\n")
    lines.pop()
    fields = {}
    for line in lines:
        name, _, value = line.partition(b":")
        fields[name.lower()] = value.strip(b" \t")
    if len(fields) != len(lines) or b"host" not in fields or not _UNUSUAL.isdisjoint(fields):
        return None
    if fields.get(b"connection", _KEEP_ALIVE).lower() != _KEEP_ALIVE:
        return None
    return RequestHead("GET" if method == b"GET" else "HEAD", target, fields)


_remembered: Final = lru_cache(REMEMBERED)(_parse)


def lines(fields: Sequence[tuple[bytes, bytes]]) -> bytes:
    """Return header fields as lines."""
    return b"".join([b"%s: %s\r\n" % field for field in fields])


class ServerFields:
    """The lines of the fields added to all answers by uvicorn, in a new list every second."""

    def __init__(self) -> None:
        self._fields: Sequence[tuple[bytes, bytes]] = ()
        self._lines = b""

    def lines(self, fields: Sequence[tuple[bytes, bytes]]) -> bytes:
        """Return ``fields`` as lines, cached."""
        if fields is not self._fields:
            self._fields, self._lines = fields, lines(fields)
        return self._lines


_STATUS_LINES: Final = {each.value: f"HTTP/1.1 {each.value} {each.phrase}\r\n".encode() for each in HTTPStatus}


def render(answer: FastAnswer, server_lines: bytes) -> bytes:
    """Return the bytes of an answer."""
    return b"".join((_STATUS_LINES[answer.status], server_lines, answer.fields, b"\r\n", answer.body))
