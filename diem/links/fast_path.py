"""Answers to plain reads in one step of the event loop, without the HTTP library and the application; pure.

Where the answer is ready in memory, nearly all of its cost is that of the parser, the task and the application. So a
listener first offers each request to a :class:`FastPath`, provided that its head arrived whole and has nothing unusual:
what :func:`parse` does not understand is left to the library, which decides what is valid.
"""

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from http import HTTPStatus
from typing import Final, NamedTuple, Protocol

MAX_HEAD_BYTES: Final = 16 * 1024
REMEMBERED: Final = 512
"""Request heads whose parsed form is remembered: those of a herd, and of one client again and again, are the same."""
MAX_REMEMBERED_BYTES: Final = 1024
"""Longest of them: with their parsed forms they take at most 2 MiB."""
_FIELD: Final = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+:[ \t!-~]*\r\n"
_HEAD: Final = re.compile(rb"(GET|HEAD) (/[!-~]*) HTTP/1\.1\r\n((?:" + _FIELD + rb")+)\r\n")
_UNUSUAL: Final = frozenset({b"content-length", b"transfer-encoding", b"expect", b"upgrade"})
"""Fields that announce more than a head, or another protocol."""
_KEEP_ALIVE: Final = b"keep-alive"


class RequestHead(NamedTuple):
    """A request without a body, after which the connection stays open."""

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
    """Header fields, each with its line end; without those that the server adds to all answers."""
    body: bytes
    """Empty for HEAD and 304."""


class FastPath(Protocol):
    """Answers requests that need no waiting."""

    def __call__(self, head: RequestHead, address: str) -> FastAnswer | None:
        """Answer a request of a client's address; None, without any effect, leaves it to the application."""
        ...


def parse(data: bytes) -> RequestHead | None:
    """Return the request that ``data`` consists of; None if it is not exactly one, or has anything unusual.

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
    """The lines of the fields that uvicorn adds to all answers; it makes a new list of them every second."""

    def __init__(self) -> None:
        self._fields: Sequence[tuple[bytes, bytes]] = ()
        self._lines = b""

    def lines(self, fields: Sequence[tuple[bytes, bytes]]) -> bytes:
        """Return ``fields`` as lines, which are made once."""
        if fields is not self._fields:
            self._fields, self._lines = fields, lines(fields)
        return self._lines


_STATUS_LINES: Final = {each.value: f"HTTP/1.1 {each.value} {each.phrase}\r\n".encode() for each in HTTPStatus}


def render(answer: FastAnswer, server_lines: bytes) -> bytes:
    """Return the bytes of an answer."""
    return b"".join((_STATUS_LINES[answer.status], server_lines, answer.fields, b"\r\n", answer.body))
