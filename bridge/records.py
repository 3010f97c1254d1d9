"""Validates, conflates and encodes the records of one partition as frames of a feed (docs/internals.md section 3).

The loop runs for every update of the system, so its checks are inlined copies of
:func:`diem.protocol.update.version_of` and :func:`diem.protocol.endpoints.check`; tests compare them.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol

import structlog

from diem.process.tracing import MAX_AGE_S, MAX_UPDATES
from diem.protocol import endpoints, feed, update, watermark
from diem.protocol.update import (
    DATA_FIELD,
    GONE_HEADER,
    GONE_TAIL,
    MAX_BYTES,
    MAX_RECORD_BYTES,
    TIME_BYTES,
    TRACE_HEADER,
    VERSION_DIGITS,
    Change,
    without_data,
)
from diem.protocol.watermark import LOG_HEADER, LogProof

_DATA_OFFSET: Final = VERSION_DIGITS + TIME_BYTES
"""Bytes between the prefix of an update and its data."""
LOG_BURST: Final = 20
LOG_INTERVAL_S: Final = 60.0
"""After a burst of 20, one bad record is logged per minute (at most 6 MB a day)."""
LOGGED_BYTES: Final = 1024
"""Limit of key and of value, each logged in hex: they may contain anything."""

MAX_NAMES: Final = 100_000
"""Limit of the cache of valid names, about 30 MB; it is cleared when full."""


class ConsumerRecord(Protocol):
    """The attributes of a Kafka record in use here."""

    @property
    def offset(self) -> int: ...  # noqa: D102
    @property
    def key(self) -> bytes | None: ...  # noqa: D102
    @property
    def value(self) -> bytes | None: ...  # noqa: D102
    @property
    def headers(self) -> Sequence[tuple[str, bytes | None]]: ...  # noqa: D102


class Watermark(NamedTuple):
    """A publisher's watermark: everything accepted before it is in the log."""

    offset: int
    proof: LogProof | None
    """None from publishers of earlier releases."""


class BadRecord(NamedTuple):
    """A record that is not an update."""

    name: str
    """``topic/partition``."""
    offset: int
    key: bytes | None
    value: bytes


@dataclass(slots=True)
class RecordCounts:
    """Counts of records (invariant I14): consumed = forwarded + conflated + bad + tombstones + watermarks."""

    consumed: int = 0
    forwarded: int = 0
    conflated: int = 0
    bad: int = 0
    tombstones: int = 0
    watermarks: int = 0
    """Written by the publisher: everything accepted so far is in the log."""
    misplaced: int = 0
    """Of a served topic: forwarded, but not of the partition in which clients look for their keys."""


class Frames(NamedTuple):
    """Frames for the reader: ``batches``, the last of which advances its position, and ``resyncs`` as text before it.

    So no update older than the record that made an endpoint suspect follows its ``resync``, and no link is lost between
    that record's position and the ``resync``.
    """

    batches: list[bytes]
    resyncs: list[bytes]
    watermarks: list[Watermark]
    """In the order of their offsets."""


class RecordEncoder(Protocol):
    """Encodes the records of a log: those of our updates, or those of a served topic."""

    counts: RecordCounts

    def encode(
        self,
        name: str,
        position: int,
        next_: int,
        records: Iterable[Any],
        *,
        resumable: int | None = None,
        with_data: bool = False,
    ) -> Frames:
        """Return the frames for ``records`` of the stream ``name``, read from offset ``position`` up to ``next_``."""
        ...


class Records:
    """Encodes records as frames. ``on_bad`` is called for every bad record and must limit its own output."""

    def __init__(self, on_bad: Callable[[BadRecord], None]) -> None:
        self.counts = RecordCounts()
        self._on_bad = on_bad
        self._prefixes: dict[bytes, bytes] = {}

    def encode(
        self,
        name: str,
        position: int,
        next_: int,
        records: Iterable[ConsumerRecord],
        *,
        resumable: int | None = None,
        with_data: bool = False,
    ) -> Frames:
        """Return the frames for ``records`` of the stream ``name``, read from offset ``position`` up to ``next_``.

        The position in the frames is ``resumable``; without it, that of the records.

        Records before ``position``, from a batch of Kafka that began earlier, are skipped. Of each endpoint only the
        GREATEST version is kept: a log may hold versions 8, 9, 8. Updates carry their data if ``with_data``.
        """
        prefixes = self._prefixes
        greatest: dict[bytes, tuple[bytes, int, bytes]] = {}
        forgotten: dict[bytes, bytes] = {}
        """Endpoint -> version of its tombstone."""
        bad: dict[bytes, int] = {}
        """Endpoint -> offset of its last record that is no update."""
        watermarks: list[Watermark] = []
        seen = skipped = 0
        for record in records:
            offset = record.offset
            if offset < position:
                continue
            seen += 1
            value, key = record.value, record.key
            if value is None and (value := self._deletion(record)) is None:
                skipped += 1
                self.counts.tombstones += 1
                continue
            prefix = prefixes.get(key) or self._prefix(key)  # type: ignore[arg-type]  # None is never a key
            start = len(prefix)
            digits = value[start : start + VERSION_DIGITS]
            if not (
                start
                and value.startswith(prefix)
                and digits.isdigit()
                and len(digits) == VERSION_DIGITS
                and (
                    len(value) <= MAX_BYTES
                    or (len(value) <= MAX_RECORD_BYTES and value.startswith(DATA_FIELD, start + _DATA_OFFSET))
                )
            ):
                skipped += 1
                if key == update.WATERMARK_KEY and value == update.WATERMARK:
                    self.counts.watermarks += 1
                    watermarks.append(Watermark(offset, _proof_of(record)))
                else:
                    self._bad(BadRecord(name, offset, key, value), bad)
                continue
            known = greatest.get(key)  # type: ignore[arg-type]  # its prefix was found, so it is bytes
            # Compared as bytes, see VERSION_DIGITS.
            if known is None or digits > known[0]:
                greatest[key] = (digits, offset, value)  # type: ignore[index]
            if record.value is None:
                forgotten[key] = digits  # type: ignore[index]
        counts = self.counts
        counts.consumed += seen
        counts.forwarded += len(greatest)
        counts.conflated += seen - skipped - len(greatest)
        if not with_data:
            greatest = {k: (digits, offset, without_data(k, value)) for k, (digits, offset, value) in greatest.items()}
        here, after = (position, next_) if resumable is None else (resumable, resumable)
        forgotten = {key: digits for key, digits in forgotten.items() if greatest[key][0] <= digits}
        batches = batches_of(name, here, here if bad else after, _changes(greatest, forgotten))
        if bad:
            batches.append(feed.encode_batch(name, after, []))
        # A later update supersedes a bad record: the publisher always writes the current state.
        resyncs = [key for key in bad if key not in greatest or greatest[key][1] < bad[key]]
        return Frames(batches, resyncs_of(resyncs), watermarks)

    def _deletion(self, record: ConsumerRecord) -> bytes | None:
        """Return the update of a deletion in its tombstone; None if it has none, so that it is a position only."""
        value = _header(record, GONE_HEADER)
        key = record.key
        valid = (
            value is not None and key is not None and self._prefix(key) and update.version_of(key, value) is not None
        )
        return value if valid else None

    def _prefix(self, key: bytes | None) -> bytes:
        """Return the bytes of an update of ``key`` before its version, b"" if ``key`` is not an endpoint name."""
        if key is None or not _is_endpoint(key):
            return b""
        if len(self._prefixes) >= MAX_NAMES:
            self._prefixes.clear()
        prefix = self._prefixes[key] = update.prefix_of(key)
        return prefix

    def _bad(self, bad: BadRecord, offsets: dict[bytes, int]) -> None:
        self.counts.bad += 1
        if bad.key is not None and self._prefix(bad.key):
            offsets[bad.key] = bad.offset
        self._on_bad(bad)


class TracedRecord(NamedTuple):
    """An update whose record carries the context of a trace."""

    offset: int
    version: int
    traceparent: str
    merged: tuple[str, ...] = ()
    """Contexts of earlier updates of the endpoint in the same fetch, which are not forwarded."""


def noting_traces(
    records: Iterable[ConsumerRecord], position: int, now_ms: int, found: dict[bytes, TracedRecord]
) -> Iterator[ConsumerRecord]:
    """Iterate over ``records``, and enter the traced updates from offset ``position`` on into ``found``, at most 64.

    Those older than 30 s at ``now_ms`` (Unix milliseconds) are repeats, or parts of a catch-up: a log keeps headers.
    """
    oldest = now_ms - round(1000 * MAX_AGE_S)
    for record in records:
        # Few records have headers at all.
        if record.headers and record.offset >= position and (traced := _traced(record)) is not None:
            key, version, context = traced
            before = found.get(key)
            if version >= oldest and (before is not None or len(found) < MAX_UPDATES):
                merged = () if before is None else (*before.merged, before.traceparent)
                found[key] = TracedRecord(record.offset, version, context, merged[-MAX_UPDATES:])
        yield record


def _traced(record: ConsumerRecord) -> tuple[bytes, int, str] | None:
    """Return endpoint, version and context of a traced update; None of any other record."""
    key, value, context = record.key, record.value, _header(record, TRACE_HEADER)
    if context is None or key is None or value is None or not _is_endpoint(key):
        return None
    version = update.version_of(key, value)
    return None if version is None else (key, version, context.decode(errors="replace"))


def _header(record: ConsumerRecord, wanted: str) -> bytes | None:
    return next((value for name, value in record.headers if name == wanted), None)


def _proof_of(record: ConsumerRecord) -> LogProof | None:
    value = _header(record, LOG_HEADER)
    return None if value is None else watermark.decode_proof(value)


def _is_endpoint(key: bytes) -> bool:
    return len(key) <= endpoints.MAX_NAME_BYTES and key.isascii() and endpoints.is_valid(key.decode("ascii"))


def _changes(greatest: Mapping[bytes, tuple[bytes, int, bytes]], forgotten: Mapping[bytes, bytes]) -> list[Change]:
    # A named tuple's constructor, without the call.
    make, gone, alive = tuple.__new__, update.GONE, update.UPDATE
    changes: list[Change] = [
        make(Change, (offset, key, int(digits), gone if value.endswith(GONE_TAIL) else alive, value))
        for key, (digits, offset, value) in greatest.items()
    ]
    if forgotten:
        changes = [each._replace(kind=update.FORGOTTEN) if each.endpoint in forgotten else each for each in changes]
    return changes


def resyncs_of(keys: Sequence[bytes]) -> list[bytes]:
    """Return the messages by which subscribers of endpoints fetch them."""
    size = feed.MAX_RESYNC
    return [
        feed.encode(feed.Resync([key.decode() for key in keys[start : start + size]]))
        for start in range(0, len(keys), size)
    ]


def batches_of(name: str, position: int, next_: int, changes: Sequence[Change]) -> list[bytes]:
    """Return the changes as batches of the stream ``name``; the last one moves its reader to ``next_``."""
    batches = [*feed.batches_of(changes)] or [[]]
    # Only the last batch advances the position: the others lack some records below their last one.
    return [feed.encode_batch(name, next_ if batch is batches[-1] else position, batch) for batch in batches]


class BadRecordLog:
    """Logs bad records, limited by a token bucket. ``clock`` returns monotonic seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._tokens = float(LOG_BURST)
        self._filled = clock()
        self._suppressed = 0
        self._log = structlog.get_logger("bridge")

    def __call__(self, bad: BadRecord, fault: str = "it is not an update") -> None:
        """Log ``bad`` and its fault, or count it for the next line."""
        now = self._clock()
        self._tokens = min(float(LOG_BURST), self._tokens + (now - self._filled) / LOG_INTERVAL_S)
        self._filled = now
        if self._tokens < 1:
            self._suppressed += 1
            return
        self._tokens -= 1
        suppressed, self._suppressed = self._suppressed, 0
        topic, _, partition = bad.name.rpartition("/")
        self._log.error(
            f"record skipped: {fault}",
            topic=topic,
            partition=int(partition),
            offset=bad.offset,
            record_key_hex=None if bad.key is None else bad.key[:LOGGED_BYTES].hex(),
            record_value_hex=bad.value[:LOGGED_BYTES].hex(),
            not_logged_before=suppressed,
        )
