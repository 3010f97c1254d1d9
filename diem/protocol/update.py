"""The update record: bytes written once by the Data Service and received unchanged by every browser.

This module owns their layout, ``HEAD, endpoint, VERSION_FIELD, 13 digits, time, rest``: nothing on an update's path
parses JSON. Loops that run for every update slice it themselves, with these constants. The rest of an update with data
is ``DATA_FIELD, dataset, }``: replacing it with a brace yields the same update without data.
"""

from datetime import UTC, datetime
from functools import lru_cache
from typing import Final, NamedTuple


def next_version(previous: int, now_ms: int) -> int:
    """Return the version of a change accepted at ``now_ms`` (Unix milliseconds) after version ``previous`` (0 = none).

    It is greater than ``previous`` even if the clock stepped back, and, as it contains the time, greater than every
    version of a wiped store.
    """
    return max(previous + 1, now_ms)


def iso(ms: int) -> str:
    """Format Unix milliseconds as UTC in RFC 3339 with milliseconds: ``2026-01-01T00:00:00.456Z``."""
    return f"{_second(ms // 1000)}.{ms % 1000:03d}Z"


@lru_cache(maxsize=1024)
def _second(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")


UPDATE: Final = 0
"""Kind of a change: the endpoint has new data."""
GONE: Final = 1
"""Kind of a change: the endpoint was deleted."""
FORGOTTEN: Final = 2
"""Kind of a change: the endpoint was deleted long ago, and holders drop it. Earlier readers take it as GONE."""
GONE_HEADER: Final = "gone"
"""Header of a tombstone in Kafka with the update of a deletion, whose endpoint is then forgotten."""
TRACE_HEADER: Final = "traceparent"
"""Header of a record in Kafka, and of a request, with the context of a trace (W3C Trace Context)."""

HEAD: Final = b'{"type":"update","endpoint":"'
"""Prefix of every update, and of no other message."""
VERSION_FIELD: Final = b'","version":'
"""Follows the endpoint, which cannot contain a quote."""
VERSION_DIGITS: Final = 13
"""Digits of every version between the years 2001 and 2286, so that byte order is numeric order."""
GREATEST_VERSION: Final = 10**VERSION_DIGITS - 1
"""Greatest version that readers can parse."""
GONE_TAIL: Final = b',"gone":true}'
"""End of an update whose endpoint was deleted."""
TIME_BYTES: Final = len(',"time":"2026-01-01T00:00:00.456Z"')
"""Follow the version."""
AFTER_NAME: Final = len(VERSION_FIELD) + VERSION_DIGITS + TIME_BYTES
DATA_FIELD: Final = b',"data":'
"""Precedes the dataset in an update that carries it."""
TRACE_FIELD: Final = b',"traceparent":"'
"""Precedes the context of a traced update, the last member of its frame: fan-out adds it, no server retains it."""
TRACE_BYTES: Final = len(TRACE_FIELD) + 55 + len('"}')
"""The member with the end of the update: a ``traceparent`` has 55 characters."""
MAX_BYTES: Final = 512
"""Longest update without data: the endpoint has at most 256 bytes, the rest about 100."""
MAX_DATA_BYTES: Final = 32 * 1024
"""Longest dataset in an update. A request to Kafka and a batch of a feed hold several of these."""
MAX_RECORD_BYTES: Final = MAX_BYTES + MAX_DATA_BYTES
"""Longest update."""
WATERMARK_KEY: Final = b"diem"
"""Key of a watermark, no valid endpoint: the publisher had nothing left to write to this partition."""
WATERMARK: Final = b'{"type":"mark"}'


class Change(NamedTuple):
    """The latest change of one endpoint, as carried by a change feed."""

    sequence: int
    """Position in the store's order of changes; strictly increasing."""
    endpoint: bytes
    version: int
    kind: int
    """:data:`UPDATE`, :data:`GONE` or, of a log, :data:`FORGOTTEN`."""
    value: bytes
    """The payload of the client's ``update`` frame, with data or without."""


def encode(endpoint: str, version: int, time_ms: int, *, gone: bool = False, data: bytes | None = None) -> bytes:
    """Encode the payload of the client's ``update`` frame (docs/protocol.md section 1).

    Args:
        endpoint: a checked name, which never needs JSON escapes.
        version: a number of :data:`VERSION_DIGITS`.
        time_ms: Unix milliseconds at which the change was accepted.
        gone: the endpoint was deleted.
        data: the dataset of this version, as JSON of at most :data:`MAX_DATA_BYTES`; None: the update carries none.
    """
    tail = ',"gone":true}' if gone else "}"
    # One literal: joining the constants takes half as long again; a test compares them.
    update = f'{{"type":"update","endpoint":"{endpoint}","version":{version},"time":"{iso(time_ms)}"{tail}'.encode()
    return update if data is None else b"%b%b%b}" % (update[:-1], DATA_FIELD, data)


def time_ms_of(endpoint: bytes, value: bytes) -> int:
    """Return the time in a valid update ``value`` of ``endpoint``, in Unix milliseconds."""
    end = len(HEAD) + len(endpoint) + AFTER_NAME - 1
    start = end - TIME_BYTES + len(',"time":"') + 1
    return round(datetime.fromisoformat(value[start:end].decode()).timestamp() * 1000)


def has_data(endpoint: bytes, value: bytes) -> bool:
    """Return whether an update ``value`` of ``endpoint`` carries data."""
    return value.startswith(DATA_FIELD, len(HEAD) + len(endpoint) + AFTER_NAME)


def without_data(endpoint: bytes, value: bytes) -> bytes:
    """Return the update ``value`` of ``endpoint`` without its data; ``value`` itself if it carries none."""
    end = len(HEAD) + len(endpoint) + AFTER_NAME
    return value[:end] + b"}" if value.startswith(DATA_FIELD, end) else value


def with_trace(value: bytes, traceparent: str) -> bytes:
    """Return an update with the context of its trace, for frames alone; a deletion as it is."""
    return value if value.endswith(GONE_TAIL) else b'%b%b%b"}' % (value[:-1], TRACE_FIELD, traceparent.encode())


def prefix_of(endpoint: bytes) -> bytes:
    """Return the bytes of an update of ``endpoint`` before its version."""
    return HEAD + endpoint + VERSION_FIELD


def version_of(endpoint: bytes, value: bytes) -> int | None:
    """Return the version in an update ``value``; None if it is no valid update of ``endpoint``.

    The part after the version is trusted (docs/internals.md section 3).
    """
    prefix = prefix_of(endpoint)
    if not value.startswith(prefix) or len(value) > (MAX_RECORD_BYTES if has_data(endpoint, value) else MAX_BYTES):
        return None
    digits = value[len(prefix) : len(prefix) + VERSION_DIGITS]
    if len(digits) != VERSION_DIGITS or not digits.isdigit():
        return None
    return int(digits)
