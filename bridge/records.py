"""From the records of one partition to the frames of a feed: checked, conflated, encoded (docs/protocol.md section 3).

The loop runs for every update of the system, so its checks are written out; they are those of
:func:`diem.protocol.update.version_of` and :func:`diem.protocol.endpoints.check`, and tests hold them to that.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

import structlog

from diem.protocol import endpoints, feed, update
from diem.protocol.update import Change

BURST: Final = 20
EVERY: Final = 60.0
"""Seconds: after the first 20 bad records, one of them is logged in each minute (at most 6 MB a day)."""
SHOWN: Final = 1024
"""Bytes of key and of value that are shown, in hex: they may be anything."""

MAX_RECORDS: Final = 1000
"""Records in one batch: about 200 KiB, and less than a reader's limit even if all are as long as allowed."""
MAX_NAMES: Final = 100_000
"""Names known to be good: about 30 MB when full. They are checked again after more than these."""

_GONE_TAIL: Final = b',"gone":true}'
_DIGITS: Final = 13


class Record(Protocol):
    """What is used of a record of Kafka."""

    @property
    def offset(self) -> int: ...  # noqa: D102
    @property
    def key(self) -> bytes | None: ...  # noqa: D102
    @property
    def value(self) -> bytes | None: ...  # noqa: D102


class BadRecord(NamedTuple):
    """A record that is no update."""

    name: str
    """``topic/partition``."""
    offset: int
    key: bytes | None
    value: bytes


@dataclass(slots=True)
class RecordCounts:
    """What became of records (invariant I14): consumed = forwarded + conflated + bad + tombstones + marks."""

    consumed: int = 0
    forwarded: int = 0
    conflated: int = 0
    bad: int = 0
    tombstones: int = 0
    marks: int = 0
    """Of the publisher: what is accepted is in the log."""


class Frames(NamedTuple):
    """What a reader is told: ``resyncs`` as text first, then ``batches``, of which the last moves its position."""

    resyncs: list[bytes]
    batches: list[bytes]


class Records:
    """Makes frames of records. ``on_bad`` hears of every record that is no update; it must bound what it writes."""

    def __init__(self, on_bad: Callable[[BadRecord], None]) -> None:
        self.counts = RecordCounts()
        self._on_bad = on_bad
        self._heads: dict[bytes, bytes] = {}

    def take(self, name: str, position: int, next_: int, records: Iterable[Record]) -> Frames:
        """The frames for ``records`` of the partition ``name``, read from ``position`` up to ``next_``.

        Records before ``position`` belong to a batch of Kafka that began earlier, and are passed over. Of each
        endpoint only the GREATEST version is kept: a log may hold versions 8, 9, 8.
        """
        heads = self._heads
        greatest: dict[bytes, tuple[bytes, int, bytes]] = {}
        resync: dict[bytes, None] = {}
        seen = passed = 0
        for record in records:
            offset = record.offset
            if offset < position:
                continue
            seen += 1
            value = record.value
            if value is None:
                passed += 1
                self.counts.tombstones += 1
                continue
            key = record.key
            head = heads.get(key) or self._head(key)  # type: ignore[arg-type]  # None is a key that nobody has
            start = len(head)
            digits = value[start : start + _DIGITS]
            if not (
                start
                and value.startswith(head)
                and digits.isdigit()
                and len(digits) == _DIGITS
                and len(value) <= update.MAX_BYTES
            ):
                passed += 1
                if key == update.MARK_KEY and value == update.MARK:
                    self.counts.marks += 1
                else:
                    self._bad(BadRecord(name, offset, key, value), resync)
                continue
            held = greatest.get(key)  # type: ignore[arg-type]  # its head was found, so it is bytes
            # Thirteen digits each: their order as bytes is their order as numbers.
            if held is None or digits > held[0]:
                greatest[key] = (digits, offset, value)  # type: ignore[index]
        counts = self.counts
        counts.consumed += seen
        counts.forwarded += len(greatest)
        counts.conflated += seen - passed - len(greatest)
        return Frames(_resyncs(list(resync)), _batches(name, position, next_, greatest))

    def _head(self, key: bytes | None) -> bytes:
        """How an update of ``key`` begins, b"" when it is no endpoint name."""
        text = _name(key)
        if key is None or text is None:
            return b""
        if len(self._heads) >= MAX_NAMES:
            self._heads.clear()
        head = self._heads[key] = f'{{"type":"update","endpoint":"{text}","version":'.encode()
        return head

    def _bad(self, bad: BadRecord, resync: dict[bytes, None]) -> None:
        self.counts.bad += 1
        if bad.key is not None and self._head(bad.key):
            resync[bad.key] = None
        self._on_bad(bad)


def _name(key: bytes | None) -> str | None:
    if key is None or len(key) > endpoints.MAX_BYTES or not key.isascii():
        return None
    text = key.decode("ascii")
    return text if endpoints.is_valid(text) else None


def _resyncs(keys: list[bytes]) -> list[bytes]:
    size = feed.MAX_RESYNC
    return [
        feed.encode(feed.Resync([key.decode() for key in keys[start : start + size]]))
        for start in range(0, len(keys), size)
    ]


def _batches(name: str, position: int, next_: int, greatest: dict[bytes, tuple[bytes, int, bytes]]) -> list[bytes]:
    # What a named tuple's own constructor does, without its call.
    make, gone, alive = tuple.__new__, update.GONE, update.UPDATE
    changes = [
        make(Change, (offset, key, int(digits), gone if value.endswith(_GONE_TAIL) else alive, value))
        for key, (digits, offset, value) in greatest.items()
    ]
    # Only the last batch moves the position: the others do not hold everything up to their last record.
    cuts = range(0, max(1, len(changes)), MAX_RECORDS)
    return [
        feed.encode_batch(name, next_ if cut == cuts[-1] else position, changes[cut : cut + MAX_RECORDS])
        for cut in cuts
    ]


class BadLog:
    """Logs bad records as far as a bucket of tokens allows. ``clock`` gives monotonic seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._tokens = float(BURST)
        self._filled = clock()
        self._unsaid = 0
        self._log = structlog.get_logger("bridge")

    def __call__(self, bad: BadRecord) -> None:
        """Log ``bad`` or count it for the next line."""
        now = self._clock()
        self._tokens = min(float(BURST), self._tokens + (now - self._filled) / EVERY)
        self._filled = now
        if self._tokens < 1:
            self._unsaid += 1
            return
        self._tokens -= 1
        unsaid, self._unsaid = self._unsaid, 0
        topic, _, partition = bad.name.rpartition("/")
        self._log.error(
            "record is no update, passed",
            topic=topic,
            partition=int(partition),
            offset=bad.offset,
            record_key_hex=None if bad.key is None else bad.key[:SHOWN].hex(),
            record_value_hex=bad.value[:SHOWN].hex(),
            not_logged_before=unsaid,
        )
