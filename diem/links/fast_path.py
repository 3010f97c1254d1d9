"""Plain requests answered without the HTTP library and the application's layers: reads in one step, and writes; pure.

For an answer in memory, nearly all cost is in the parser, the task and the application. So a listener first offers each
request to a :class:`FastPath`, if its head arrived whole and is plain: anything that :func:`parse` does not understand
is left to the library, which decides on validity.
"""

import re
from collections.abc import Coroutine, Mapping, Sequence
from functools import lru_cache
from http import HTTPStatus
from typing import Any, Final, NamedTuple, Protocol

MAX_HEAD_BYTES: Final = 16 * 1024
REMEMBERED: Final = 512
"""Number of cached parsed request heads: those of a herd, or of one client over time, are the same."""
MAX_REMEMBERED_BYTES: Final = 1024
"""Longest cached head: with their parsed forms they take at most 2 MiB."""
_FIELD: Final = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+:[ \t!-~]*\r\n"
_HEAD: Final = re.compile(rb"([A-Z]+) (/[!-~]*) HTTP/1\.1\r\n((?:" + _FIELD + rb")+)\r\n")
_UNUSUAL: Final = frozenset({"transfer-encoding", "expect", "upgrade"})
"""Fields announcing a body of unknown length or another protocol."""
_LENGTH: Final = "content-length"
_KEEP_ALIVE: Final = "keep-alive"


class RequestHead(NamedTuple):
    """The head of a request on a persistent connection."""

    method: str
    target: bytes
    """Path and query as sent."""
    fields: Mapping[str, str]
    """Header fields by name in lower case, in ASCII; each occurs once."""


class FastAnswer(NamedTuple):
    """A whole answer."""

    status: int
    fields: bytes
    """Header fields, each with its line end; without those added to all answers by the server."""
    body: bytes
    """Empty for HEAD and 304."""


class PlainWrite(NamedTuple):
    """A request that changes something, with its whole body."""

    head: RequestHead
    body: bytes


class FastWritePath(Protocol):
    """Answers requests that change something."""

    def __call__(self, write: PlainWrite, address: str) -> Coroutine[Any, Any, FastAnswer] | None:
        """Return the answer to come of a privileged writer; None, without side effects: the application answers."""
        ...


class FastPath(Protocol):
    """Answers requests without waiting."""

    def __call__(self, head: RequestHead, address: str) -> FastAnswer | None:
        """Answer a request from an address; None, without side effects, leaves it to the application."""
        ...


def parse(data: bytes) -> RequestHead | None:
    """Parse ``data`` as a request without a body; None unless it is exactly one, and plain.

    Stricter than RFC 9112: ASCII only, no field twice, HTTP/1.1.
    """
    head = parse_head(data)
    return head if head is not None and head.method in _READS and _LENGTH not in head.fields else None


def parse_write(data: bytes) -> PlainWrite | None:
    """Parse ``data`` as a request with its whole body, if any; None unless it is exactly one, and plain."""
    head, begins, ends = _write_head(data)
    return PlainWrite(head, data[begins:]) if head is not None and ends == len(data) else None


def size_to_gather(data: bytes) -> int:
    """Return the size of a plain write with credentials, of which ``data`` has the whole head; 0 for anything else.

    A POST with a body may be a stream of writes, answered as they arrive.
    """
    head, _, ends = _write_head(data)
    return 0 if head is None or head.method == "POST" or "authorization" not in head.fields else ends


def _write_head(data: bytes) -> tuple[RequestHead | None, int, int]:
    """Return the head of a plain write, and where its body begins and ends."""
    begins = data.find(b"\r\n\r\n", 0, MAX_HEAD_BYTES) + 4
    head = parse_head(data[:begins]) if begins > 4 else None
    if head is None or head.method not in _WRITES:
        return None, 0, 0
    length = head.fields.get(_LENGTH, "0")
    if not length.isdigit() or len(length) > _LENGTH_DIGITS:
        return None, 0, 0
    return head, begins, begins + int(length)


_READS: Final = frozenset({"GET", "HEAD"})
_WRITES: Final = frozenset({"PUT", "PATCH", "POST", "DELETE"})
_LENGTH_DIGITS: Final = 9


def parse_head(data: bytes) -> RequestHead | None:
    """Parse the head of a request, with its empty line; None unless it is plain, as :func:`parse` says."""
    return _remembered(data) if len(data) <= MAX_REMEMBERED_BYTES else _parse(data)


def _parse(data: bytes) -> RequestHead | None:
    found = _HEAD.fullmatch(data) if len(data) <= MAX_HEAD_BYTES else None
    if found is None:
        return None
    method, target, block = found.groups()
    lines = block.decode("ascii").split("\r\n")
    lines.pop()
    fields = {}
    for line in lines:
        name, _, value = line.partition(":")
        fields[name.lower()] = value.strip(" \t")
    if len(fields) != len(lines) or "host" not in fields or not _UNUSUAL.isdisjoint(fields):
        return None
    if fields.get("connection", _KEEP_ALIVE).lower() != _KEEP_ALIVE:
        return None
    return RequestHead(method.decode(), target, fields)


_remembered: Final = lru_cache(REMEMBERED)(_parse)


def lines(fields: Sequence[tuple[bytes, bytes]]) -> bytes:
    """Return header fields as lines."""
    return b"".join([b"%s: %s\r\n" % field for field in fields])


_STATUS_LINES: Final = {each.value: f"HTTP/1.1 {each.value} {each.phrase}\r\n".encode() for each in HTTPStatus}


class Renderer:
    """Returns the bytes of answers, with the fields that uvicorn adds to all: in a new list every second."""

    def __init__(self) -> None:
        self._fields: Sequence[tuple[bytes, bytes]] = ()
        self._lines = b""

    def __call__(self, answer: FastAnswer, server_fields: Sequence[tuple[bytes, bytes]]) -> bytes:
        """Return the bytes of an answer."""
        if server_fields is not self._fields:
            self._fields, self._lines = server_fields, lines(server_fields)
        return b"".join((_STATUS_LINES[answer.status], self._lines, answer.fields, b"\r\n", answer.body))
