"""Encodes the records of a served topic as frames of a feed (docs/adr/0037); the counterpart of ``records``."""

import base64
from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol

import orjson
import structlog

from bridge.records import MAX_NAMES, BadRecord, Frames, RecordCounts, batches_of, resyncs_of
from diem.kafka.config import ServedTopic
from diem.protocol import feed, update
from diem.protocol.keys import Name
from diem.protocol.media_types import kind_of
from diem.protocol.served_topic import Epoch, Rank, version_of
from diem.protocol.update import DATA_FIELD, FORGOTTEN, GONE_TAIL, MAX_DATA_BYTES, UPDATE, Change, iso


class TopicRecord(Protocol):
    """The attributes of a Kafka record in use here."""

    @property
    def offset(self) -> int: ...  # noqa: D102
    @property
    def key(self) -> bytes | None: ...  # noqa: D102
    @property
    def value(self) -> bytes | None: ...  # noqa: D102
    @property
    def timestamp(self) -> int: ...  # noqa: D102


class _Key(NamedTuple):
    """What follows from a key in a partition."""

    name: Name
    prefix: bytes
    ranks: tuple[Rank, ...]
    is_home: bool


class TopicRecords:
    """Encodes records by the epoch in force. ``on_bad`` is called for every bad record and must limit its own output.

    Args:
        topic: the topic.
        on_bad: takes a bad record and what is wrong with it.
        partitioned: servers divide the partitions, so clients find an endpoint by its key.
    """

    def __init__(self, topic: ServedTopic, on_bad: Callable[[BadRecord, str], None], *, partitioned: bool) -> None:
        self.counts = RecordCounts()
        self._topic = topic
        self._on_bad = on_bad
        self._partitioned = partitioned
        self._epoch: Epoch | None = None
        self._keys: dict[tuple[bytes, str], _Key | None] = {}
        self._data = _data_of(topic.media_type)
        self._tail = b',"media_type":"%b"}' % topic.media_type.encode()

    def use(self, epoch: Epoch | None) -> None:
        """Use this epoch from now on."""
        if epoch is not None and epoch != self._epoch:
            self._epoch = epoch
            self._keys.clear()

    def encode(
        self,
        name: str,
        position: int,
        next_: int,
        records: Iterable[TopicRecord],
        *,
        resumable: int | None = None,  # noqa: ARG002  # the log has no watermarks
        with_data: bool = False,
    ) -> Frames:
        """Return the frames for ``records`` of the stream ``name``, read from offset ``position`` up to ``next_``.

        Of each key only the last record is sent. Records before ``position`` are skipped.
        """
        latest: dict[bytes | None, tuple[int, bytes | None, int]] = {}
        seen = 0
        for record in records:
            if record.offset >= position:
                seen += 1
                latest[record.key] = (record.offset, record.value, record.timestamp)
        changes: list[Change] = []
        bad: list[bytes] = []
        deleted = 0
        for raw, (offset, value, time_ms) in latest.items():
            key = self._key(raw, name)
            fault = "its key gives no name of an endpoint" if key is None else None
            data: bytes | None = None
            if key is not None and value is not None:
                data, fault = self._content(key, value)
            if key is None or fault is not None:
                self.counts.bad += 1
                self._on_bad(BadRecord(name, offset, raw, value or b""), fault or "")
                bad += [] if key is None else [key.name.endpoint]
                continue
            self.counts.misplaced += not key.is_home
            deleted += value is None
            changes.append(self._change(key, offset, time_ms, data if with_data else None, gone=value is None))
        counts = self.counts
        counts.consumed += seen
        counts.tombstones += deleted
        counts.forwarded += len(changes) - deleted
        counts.conflated += seen - len(latest)
        frames = batches_of(name, position, position if bad else next_, changes)
        if bad:
            frames.append(feed.encode_batch(name, next_, []))
        return Frames(frames, resyncs_of(bad), [])

    def _content(self, key: _Key, value: bytes) -> tuple[bytes | None, str | None]:
        """Return the data of an update, and what is wrong with the value."""
        if len(value) > MAX_DATA_BYTES:
            return None, f"its value is longer than {MAX_DATA_BYTES} bytes"
        try:
            data, parsed = self._data(value)
        except ValueError as error:
            return None, f"its value is no {self._topic.media_type}: {error}"
        if len(data) > MAX_DATA_BYTES:
            return None, f"its value is longer than {MAX_DATA_BYTES} bytes as JSON"
        if key.name.required and key.name.contradicts(parsed):
            return None, f"its value is of another endpoint than its key, by {self._topic.key.text}"
        return data, None

    def _change(self, key: _Key, offset: int, time_ms: int, data: bytes | None, *, gone: bool) -> Change:
        version = version_of(key.ranks, offset)
        head = b'%b%d,"time":"%b"' % (key.prefix, version, iso(max(time_ms, 0)).encode())
        if gone:
            return Change(offset, key.name.endpoint, version, FORGOTTEN, head + GONE_TAIL)
        value = head + b"}" if data is None else b"%b%b%b%b" % (head, DATA_FIELD, data, self._tail)
        return Change(offset, key.name.endpoint, version, UPDATE, value)

    def _key(self, raw: bytes | None, stream: str) -> _Key | None:
        if raw is None or self._epoch is None:
            return None
        known = self._keys.get((raw, stream))
        if known is None and (name := self._topic.key.name(raw)) is not None:
            if len(self._keys) >= MAX_NAMES:
                self._keys.clear()
            number, partitioner = int(stream.rpartition("/")[2]), self._topic.partitioner
            # Clients know the endpoint only.
            located = self._topic.key.key(name.endpoint) if self._partitioned else raw
            is_home = self._epoch.is_home(located, number, partitioner)
            if not is_home and self._partitioned and not self.counts.misplaced:
                structlog.get_logger("bridge").error(
                    "a key is not in the partition where clients look for it: the producer may have another "
                    "--topic-partitioner, or written it before partitions were added; mode x finds all",
                    partition=number,
                    endpoint=name.endpoint.decode(),
                )
            ranks = self._epoch.ranks(raw, number, partitioner)
            known = self._keys[raw, stream] = _Key(name, update.prefix_of(name.endpoint), ranks, is_home)
        return known


_Data = Callable[[bytes], tuple[bytes, object]]


def _data_of(media_type: str) -> _Data:
    """Return the function from a value to the JSON in an update, and to the parsed value. It raises ``ValueError``."""
    if media_type.startswith("text/"):
        return lambda value: (orjson.dumps(value.decode()), None)
    if kind_of(media_type) != "bytes":
        return lambda value: (value, orjson.loads(value))
    return lambda value: (b'"%b","encoding":"base64"' % base64.b64encode(value), None)
