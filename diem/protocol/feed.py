"""The feed protocol ``diem.feed.v1`` (docs/internals.md section 2) as bytes: control messages in JSON, batches binary.

A batch is ``name length (u16), name, next (u64)`` and then, until its end, records of ``sequence (u64),
endpoint length (u16), version (u64), kind (u8), value length (u32), endpoint, value``; all numbers are big-endian.
"""

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Any, Final, NamedTuple

import orjson

from diem.errors import DiemError
from diem.protocol.partition_map import HOT
from diem.protocol.update import Change

HOT_UPDATES: Final = "updates.hot"
MAP: Final = "partition-map"
"""Suffixes of topic names; the prefix before them may end in any character."""


def is_map(name: str) -> bool:
    """Return whether a stream has the records of the partition map."""
    return name.endswith(f"{MAP}/0")


def partition_of_stream(name: str) -> int | None:
    """Return the partition of a stream of updates, :data:`HOT` for the hot updates, None for any other stream."""
    topic, _, number = name.rpartition("/")
    if topic.endswith(HOT_UPDATES):
        return HOT
    return int(number) if topic and not is_map(name) and number.isdecimal() else None


SUBPROTOCOL: Final = "diem.feed.v1"
STORE: Final = "store"
"""The only stream of a store's feed, and of a Broadcast node's."""
MAX_BATCH_BYTES: Final = 1 << 20
"""Longest frame accepted by a reader; feeds stay far below it (256 KiB)."""

MAX_RECORDS: Final = 1000
"""Records in one batch: about 200 KiB without data."""
MAX_VALUE_BYTES: Final = 256 * 1024
"""Values of one batch in bytes, unless the first alone is longer."""

MAX_RESYNC: Final = 100
"""Limit of endpoints in one ``resync``."""

_BATCH = Struct(">HQ")
_NAME_LENGTH = Struct(">H")
_NEXT = Struct(">Q")
_RECORD = Struct(">QHQBI")


class FeedError(DiemError):
    """A frame violates the feed protocol: the link is closed with 4500."""


@dataclass(frozen=True, slots=True)
class Resume:
    """Reader to feed, first message: its next position in each stream, and their source (None = none)."""

    source: str | None
    positions: Mapping[str, int]
    data: bool = False
    """True to request updates with data, if any; readers of earlier releases cannot handle it."""
    traces: bool = False
    """True to request the contexts of traced updates."""


@dataclass(frozen=True, slots=True)
class Hello:
    """Feed to reader: the source and all streams of this feed (``names``); again whenever these change."""

    source: str
    names: Sequence[str]


@dataclass(frozen=True, slots=True)
class CaughtUp:
    """Feed to reader: the stream's content at the time of ``resume`` has been sent."""

    name: str


@dataclass(frozen=True, slots=True)
class Resync:
    """Feed to reader: these endpoints had malformed records, so subscribers must fetch them."""

    endpoints: Sequence[str]
    """At most :data:`MAX_RESYNC`."""


@dataclass(frozen=True, slots=True)
class Owners:
    """Feed to reader: stream -> public URL of its owner; always for all streams of the group."""

    owners: Mapping[str, str]
    left: bool = False
    """The answer to a :class:`Leave`: the bridge has left its group, and others own all its former partitions; without
    owners, there are no others."""


@dataclass(frozen=True, slots=True)
class Leave:
    """Reader to feed of a group: the reader is about to stop. The bridge leaves its group, but serves the link."""


@dataclass(frozen=True, slots=True)
class Traced:
    """Feed to reader that requested it: a version about to be sent belongs to a sampled trace."""

    endpoint: str
    version: int
    traceparent: str
    """Context of the feed's span (W3C Trace Context)."""


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """Feed to reader, every second while the source is alive."""


@dataclass(frozen=True, slots=True)
class UnknownMessage:
    """An ignored message of a later release; never sent to peers of version 1 of the internal protocol."""


class Batch(NamedTuple):
    """Updates of one stream (``name``)."""

    name: str
    next: int
    """Position at which a reader resumes after this batch."""
    records: Iterator[Change]


Control = Resume | Hello | CaughtUp | Resync | Owners | Leave | Traced | Heartbeat
HEARTBEAT: Final = b'{"type":"beat"}'


def encode(message: Control) -> bytes:  # noqa: PLR0911 - one for each message
    """Encode a control message as JSON."""
    match message:
        case Resume(source, positions, data, traces):
            resume = {"type": "resume", "source": source, "positions": dict(positions)}
            return orjson.dumps(resume | ({"data": True} if data else {}) | ({"traces": True} if traces else {}))
        case Hello(source, names):
            return orjson.dumps({"type": "hello", "source": source, "names": list(names)})
        case CaughtUp(name):
            return orjson.dumps({"type": "caught_up", "name": name})
        case Resync(endpoints):
            return orjson.dumps({"type": "resync", "endpoints": list(endpoints)})
        case Owners(owners, left):
            known = {"type": "owners", "owners": dict(owners)}
            return orjson.dumps({**known, "left": True} if left else known)
        case Leave():
            return b'{"type":"leave"}'
        case Traced(endpoint, version, traceparent):
            return orjson.dumps(
                {"type": "traced", "endpoint": endpoint, "version": version, "traceparent": traceparent}
            )
        case Heartbeat():
            return HEARTBEAT


def decode(data: bytes) -> Control | UnknownMessage:  # noqa: PLR0911 - one for each message
    """Decode a control message, ignoring unknown fields.

    Raises:
        FeedError: the data is not one.
    """
    try:
        message: dict[str, Any] = orjson.loads(data)
        match message["type"]:
            case "beat":
                return Heartbeat()
            case "caught_up":
                return CaughtUp(_text(message["name"]))
            case "resync":
                return Resync(tuple(_text(name) for name in message["endpoints"]))
            case "owners":
                urls = {_text(name): _text(url) for name, url in message["owners"].items()}
                return Owners(urls, message.get("left") is True)
            case "leave":
                return Leave()
            case "traced":
                return Traced(_text(message["endpoint"]), _count(message["version"]), _text(message["traceparent"]))
            case "hello":
                return Hello(_text(message["source"]), tuple(_text(name) for name in message["names"]))
            case "resume":
                source = message["source"]
                positions = {_text(name): _count(next_) for name, next_ in message["positions"].items()}
                wanted = (message.get("data") is True, message.get("traces") is True)
                return Resume(None if source is None else _text(source), positions, *wanted)
            case other:
                _text(other)
                return UnknownMessage()
    except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError) as error:
        raise FeedError(f"not a feed message: {error}") from None


def store_source(store: str, forgotten: int) -> str:
    """Return the source of a store that has removed the endpoints deleted at sequences up to ``forgotten``."""
    return f"{store}.{forgotten}" if forgotten else store


def split_source(source: str) -> tuple[str, int]:
    """Return the arguments of :func:`store_source`."""
    store, _, forgotten = source.rpartition(".")
    return (store, int(forgotten)) if store and forgotten.isdecimal() else (source, 0)


def encode_batch(name: str, next_: int, changes: Iterable[Change]) -> bytes:
    """Encode a batch; ``next_`` is the position after ``changes``."""
    raw = name.encode()
    parts = [_NAME_LENGTH.pack(len(raw)), raw, _NEXT.pack(next_)]
    pack = _RECORD.pack
    for sequence, endpoint, version, kind, value in changes:
        parts += (pack(sequence, len(endpoint), version, kind, len(value)), endpoint, value)
    return b"".join(parts)


def batches_of(
    changes: Sequence[Change], max_records: int = MAX_RECORDS, max_bytes: int = MAX_VALUE_BYTES
) -> Iterator[Sequence[Change]]:
    """Divide changes into runs of at most ``max_records``, and ``max_bytes`` of values unless one alone is longer."""
    start = size = 0
    for index, change in enumerate(changes):
        length = len(change.value)
        if index > start and (index - start == max_records or size + length > max_bytes):
            yield changes[start:index]
            start, size = index, 0
        size += length
    if start < len(changes):
        yield changes[start:]


def decode_batch(data: bytes) -> Batch:
    """Decode a batch; its records are decoded as they are iterated over.

    Raises:
        FeedError: the header is truncated. Iterating raises it for a truncated record.
    """
    try:
        (length,) = _NAME_LENGTH.unpack_from(data)
        name = data[2 : 2 + length].decode()
        (next_,) = _NEXT.unpack_from(data, 2 + length)
    except (struct.error, UnicodeDecodeError) as error:
        raise FeedError(f"not a batch: {error}") from None
    return Batch(name, next_, _records(data, _BATCH.size + length))


def _records(data: bytes, offset: int) -> Iterator[Change]:
    end = len(data)
    unpack, size = _RECORD.unpack_from, _RECORD.size
    new = tuple.__new__
    while offset < end:
        if offset + size > end:
            raise FeedError("a record is cut short")
        sequence, key_length, version, kind, value_length = unpack(data, offset)
        key_end = offset + size + key_length
        offset_next = key_end + value_length
        if offset_next > end:
            raise FeedError("a record is cut short")
        # A named tuple's constructor in half the time: this loop runs for every update of the system.
        yield new(Change, (sequence, data[offset + size : key_end], version, kind, data[key_end:offset_next]))
        offset = offset_next


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise FeedError(f"expected text, got {str(value)[:40]!r}")
    return value


def _count(value: object) -> int:
    if type(value) is not int or value < 0:
        raise FeedError(f"expected a position, got {str(value)[:40]!r}")
    return value
