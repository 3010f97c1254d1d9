"""Records of a served topic as frames of a feed."""

from typing import NamedTuple

import orjson
import pytest

from bridge.records import BadRecord
from bridge.topic_records import TopicRecords
from diem.kafka.config import ServedTopic
from diem.protocol import feed
from diem.protocol.keys import KeyTemplate
from diem.protocol.partitioners import Partitioner
from diem.protocol.served_topic import Epoch, Observed, next_epoch
from diem.protocol.update import FORGOTTEN, MAX_DATA_BYTES, UPDATE, Change, version_of

TIME_MS = 1_767_225_600_456


class Record(NamedTuple):
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int = TIME_MS


def epoch(partitions: int = 1) -> Epoch:
    zeros = (0,) * partitions
    found = next_epoch(None, Observed("id", zeros, zeros), 1_700_000_000_000)
    assert found is not None
    return found


class Encoder:
    def __init__(self, text: str = "/orders/{key}", media_type: str = "application/json", partitions: int = 1) -> None:
        self.bad: list[tuple[int, str]] = []
        topic = ServedTopic("orders", KeyTemplate(text), Partitioner.MURMUR2, media_type)
        self.records = TopicRecords(topic, self._on_bad, partitioned=True)
        self.records.use(epoch(partitions))

    def _on_bad(self, bad: BadRecord, fault: str) -> None:
        self.bad.append((bad.offset, fault))

    def changes(self, *records: Record, position: int = 0) -> list[Change]:
        frames = self.records.encode("orders/0", position, 99, records, with_data=True)
        batches = [feed.decode_batch(frame) for frame in frames.batches]
        assert batches[-1].next == 99
        return [change for batch in batches for change in batch.records]


def test_last_record_of_each_key_is_an_update_with_its_document() -> None:
    encoder = Encoder()
    first, second = encoder.changes(
        Record(4, b"0", b"0"), Record(5, b"1", b"[1]"), Record(6, b"2", b"2"), Record(7, b"1", b'{"a": 1}'), position=5
    )
    assert (first.endpoint, first.sequence, first.kind) == (b"/orders/1", 7, UPDATE)
    assert orjson.loads(first.value) == {
        "type": "update",
        "endpoint": "/orders/1",
        "version": first.version,
        "time": "2026-01-01T00:00:00.456Z",
        "data": {"a": 1},
        "media_type": "application/json",
    }
    assert version_of(first.endpoint, first.value) == first.version == second.version + 1
    counts = encoder.records.counts
    assert (counts.consumed, counts.forwarded, counts.conflated) == (3, 2, 1)


def test_tombstone_is_a_deletion() -> None:
    (change,) = Encoder().changes(Record(1, b"1", None))
    assert change.kind == FORGOTTEN
    assert orjson.loads(change.value)["gone"] is True


@pytest.mark.parametrize(
    ("media_type", "value", "fields"),
    [
        ("text/plain", b'a "text"', {"data": 'a "text"'}),
        ("image/png", b"\x89PNG", {"data": "iVBORw==", "encoding": "base64"}),
        ("application/geo+json", b"[1]", {"data": [1]}),
    ],
)
def test_value_of_another_media_type(media_type: str, value: bytes, fields: dict[str, object]) -> None:
    (change,) = Encoder(media_type=media_type).changes(Record(1, b"1", value))
    update = orjson.loads(change.value)
    assert update.items() >= {**fields, "media_type": media_type}.items()
    assert ("encoding" in update) is ("encoding" in fields)


@pytest.mark.parametrize(
    ("record", "fault", "resync"),
    [
        (Record(1, None, b"1"), "gives no name", []),
        (Record(1, b"a b", b"1"), "gives no name", []),
        (Record(1, b"1", b"{"), "is no application/json", ["/orders/1"]),
        (Record(1, b"1", b'"%b"' % (b"x" * MAX_DATA_BYTES)), "longer than", ["/orders/1"]),
        (Record(1, b"1", b'{"id":2}'), "another endpoint than its key", ["/orders/1"]),
    ],
)
def test_record_that_is_no_document_is_counted_and_its_endpoint_fetched(
    record: Record, fault: str, resync: list[str]
) -> None:
    encoder = Encoder("/orders/{id}")
    frames = encoder.records.encode("orders/0", 0, 2, [record], with_data=True)
    assert fault in encoder.bad[0][1]
    assert encoder.records.counts.bad == encoder.records.counts.consumed == 1
    assert [feed.decode(text) for text in frames.resyncs] == ([feed.Resync(tuple(resync))] if resync else [])


def test_keys_in_other_partitions_than_clients_look_for_them_are_counted() -> None:
    encoder = Encoder(partitions=4)
    keys = [b"%d" % number for number in range(40)]
    changes = encoder.changes(*(Record(at, key, b"1") for at, key in enumerate(keys)))
    elsewhere = [key for key in keys if Partitioner.MURMUR2.place(key, 4)]
    assert (len(changes), encoder.records.counts.misplaced) == (40, len(elsewhere))
