"""The feed protocol ``diem.feed.v1`` (docs/protocol.md section 2) as bytes: control messages in JSON, batches binary.

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

UPDATES: Final = "updates"
HOT_UPDATES: Final = "updates.hot"
MAP: Final = "partition-map"
"""Ends of the names of topics; before them is the prefix, which may end in anything."""


def is_map(name: str) -> bool:
    """Return whether the records under this name are those of the partition map."""
    return name.endswith(f"{MAP}/0")


def partition_of_name(name: str) -> int | None:
    """The partition of the updates under this name, :data:`HOT` for the topic of all; None if it has no updates."""
    topic, _, number = name.rpartition("/")
    if topic.endswith(HOT_UPDATES):
        return HOT
    return int(number) if topic.endswith(UPDATES) and number.isdecimal() else None


SUBPROTOCOL: Final = "diem.feed.v1"
STORE: Final = "store"
"""The name under which a store, and a Broadcast node for it, serves its changes."""
MAX_BATCH_BYTES: Final = 1 << 20
"""A reader refuses a longer frame; a feed stays far below it (256 KiB)."""

MAX_RESYNC: Final = 100
"""Endpoints in one ``resync``."""

_BATCH = Struct(">HQ")
_NAME_LENGTH = Struct(">H")
_NEXT = Struct(">Q")
_RECORD = Struct(">QHQBI")


class FeedError(DiemError):
    """A frame that is not of the feed protocol: the link is closed with 4500."""


@dataclass(frozen=True, slots=True)
class Resume:
    """Reader to feed, first: which source its positions belong to (None = none) and where it stands in each name."""

    source: str | None
    positions: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Hello:
    """Feed to reader: the source and all names that this feed serves; again whenever the names change."""

    source: str
    names: Sequence[str]


@dataclass(frozen=True, slots=True)
class CaughtUp:
    """Feed to reader: everything that was there when the reader resumed has been sent."""

    name: str


@dataclass(frozen=True, slots=True)
class Resync:
    """Feed to reader: records that were no updates had these keys; whoever looks at them must fetch them again."""

    endpoints: Sequence[str]
    """At most :data:`MAX_RESYNC` names."""


@dataclass(frozen=True, slots=True)
class Owners:
    """Feed to reader: the URL, for clients, of the server that owns each name of the group; all of them each time."""

    owners: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """Feed to reader, every second while the source behind the feed is alive."""


class Batch(NamedTuple):
    """Updates of one name and the position behind them."""

    name: str
    next: int
    """Position at which a reader resumes after this batch."""
    records: Iterator[Change]


Control = Resume | Hello | CaughtUp | Resync | Owners | Heartbeat
HEARTBEAT: Final = b'{"type":"beat"}'


def encode(message: Control) -> bytes:
    """A control message as JSON text."""
    match message:
        case Resume(source, positions):
            return orjson.dumps({"type": "resume", "source": source, "positions": dict(positions)})
        case Hello(source, names):
            return orjson.dumps({"type": "hello", "source": source, "names": list(names)})
        case CaughtUp(name):
            return orjson.dumps({"type": "caught_up", "name": name})
        case Resync(endpoints):
            return orjson.dumps({"type": "resync", "endpoints": list(endpoints)})
        case Owners(owners):
            return orjson.dumps({"type": "owners", "owners": dict(owners)})
        case Heartbeat():
            return HEARTBEAT


def decode(data: bytes) -> Control:
    """A control message from JSON text.

    Raises:
        FeedError: it is none.
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
                return Owners({_text(name): _text(url) for name, url in message["owners"].items()})
            case "hello":
                return Hello(_text(message["source"]), tuple(_text(name) for name in message["names"]))
            case "resume":
                source = message["source"]
                positions = {_text(name): _count(next_) for name, next_ in message["positions"].items()}
                return Resume(None if source is None else _text(source), positions)
            case other:
                raise FeedError(f"unknown feed message {str(other)[:40]!r}")
    except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError) as error:
        raise FeedError(f"not a feed message: {error}") from None


def encode_batch(name: str, next_: int, changes: Iterable[Change]) -> bytes:
    """A batch of ``changes``; ``next_`` is the position behind them."""
    raw = name.encode()
    parts = [_NAME_LENGTH.pack(len(raw)), raw, _NEXT.pack(next_)]
    pack = _RECORD.pack
    for sequence, endpoint, version, kind, value in changes:
        parts += (pack(sequence, len(endpoint), version, kind, len(value)), endpoint, value)
    return b"".join(parts)


def decode_batch(data: bytes) -> Batch:
    """The name, next position and records of a batch; the records are read as they are iterated.

    Raises:
        FeedError: the frame ends before its header does. Iterating raises it for a record that is cut short.
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
        # A named tuple made as a tuple: its own constructor takes twice as long, and this is done for every update.
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
