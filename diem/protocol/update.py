"""The update record: the bytes that the Data Service writes once and that every browser receives unchanged."""

from datetime import UTC, datetime
from typing import Final, NamedTuple


def next_version(previous: int, now_ms: int) -> int:
    """Return the version of a change accepted at ``now_ms`` (Unix milliseconds) after version ``previous`` (0 = none).

    Greater than ``previous`` even when the clock stepped back, and greater than every version of a store that was
    wiped, because it contains the time.
    """
    return max(previous + 1, now_ms)


def iso(ms: int) -> str:
    """Format Unix milliseconds as UTC in RFC 3339 with milliseconds: ``2026-01-01T00:00:00.456Z``."""
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S.") + f"{ms % 1000:03d}Z"


UPDATE: Final = 0
"""Kind of a change: the endpoint has new data."""
GONE: Final = 1
"""Kind of a change: the endpoint was deleted."""

_HEAD: Final = b'{"type":"update","endpoint":"'
_MIDDLE: Final = b'","version":'
_VERSION_DIGITS: Final = 13
MAX_BYTES: Final = 512
"""A longer value is not an update: the name has at most 256 bytes, all the rest about 100."""
WATERMARK_KEY: Final = b"diem"
"""Key of a watermark, which no endpoint can have: the publisher had nothing left to write to this partition."""
WATERMARK: Final = b'{"type":"mark"}'


class Change(NamedTuple):
    """The latest change of one endpoint, as a change feed carries it."""

    sequence: int
    """Its place in the store's order of changes; the next change has a greater one."""
    endpoint: bytes
    version: int
    kind: int
    """:data:`UPDATE` or :data:`GONE`."""
    value: bytes
    """The payload of the client's ``update`` frame."""


def encode(endpoint: str, version: int, time_ms: int, *, gone: bool = False) -> bytes:
    """Encode the payload of the client's ``update`` frame (docs/protocol.md section 1).

    Args:
        endpoint: a checked name; it needs no JSON escapes by the rule for names.
        version: 13 digits, as every version between the years 2001 and 2286 has.
        time_ms: Unix milliseconds at which the change was accepted.
        gone: the endpoint was deleted.
    """
    tail = ',"gone":true}' if gone else "}"
    return f'{{"type":"update","endpoint":"{endpoint}","version":{version},"time":"{iso(time_ms)}"{tail}'.encode()


def version_of(endpoint: bytes, value: bytes) -> int | None:
    """Return the version in an update ``value``, sliced from its place; None if it is no valid update of ``endpoint``.

    The rest of the value is trusted: docs/protocol.md section 3 says what makes a record valid.
    """
    start = len(_HEAD) + len(endpoint) + len(_MIDDLE)
    digits = value[start : start + _VERSION_DIGITS]
    if len(value) > MAX_BYTES or not value.startswith(_HEAD + endpoint + _MIDDLE):
        return None
    if len(digits) != _VERSION_DIGITS or not digits.isdigit():
        return None
    return int(digits)
