from typing import NamedTuple

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from bridge import records as module
from bridge.records import (
    LOG_BURST,
    LOG_INTERVAL_S,
    BadRecord,
    BadRecordLog,
    Frames,
    Records,
    TracedRecord,
    Watermark,
    noting_traces,
)
from diem.process.clock import ManualClock
from diem.protocol import endpoints, feed, update
from diem.protocol.watermark import LOG_HEADER, LogProof, encode_proof, position_of
from tests.support.spans import SAMPLED

V = 1_700_000_000_000
NAME = "diem.updates/3"


class Kafka(NamedTuple):
    """A record of Kafka."""

    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


def valid(offset: int, name: str, version: int, *, gone: bool = False) -> Kafka:
    return Kafka(offset, name.encode(), update.encode(name, version, V, gone=gone))


def taking(*records: Kafka, position: int = 0) -> tuple[Frames, Records, list[BadRecord]]:
    bad: list[BadRecord] = []
    heart = Records(bad.append)
    next_ = max((record.offset for record in records), default=position - 1) + 1
    return heart.encode(NAME, position, next_, iter(records)), heart, bad


def decoded(frames: Frames) -> list[update.Change]:
    return [change for batch in frames.batches for change in feed.decode_batch(batch).records]


def test_a_batch_has_the_name_the_next_offset_and_the_record_as_it_is() -> None:
    record = valid(7, "/a", V)
    frames, _, _ = taking(record, position=5)
    assert frames.resyncs == []
    (batch,) = frames.batches
    assert feed.decode_batch(batch)[:2] == (NAME, 8)
    assert decoded(frames) == [update.Change(7, b"/a", V, update.UPDATE, record.value or b"")]


def test_a_deletion_is_recognised_by_its_tail() -> None:
    frames, _, _ = taking(valid(0, "/a", V, gone=True), valid(1, "/b", V))
    assert [change.kind for change in decoded(frames)] == [update.GONE, update.UPDATE]


def test_of_an_endpoint_the_greatest_version_is_kept_not_the_last() -> None:
    frames, heart, _ = taking(valid(0, "/a", V + 8), valid(1, "/a", V + 9), valid(2, "/a", V + 8))
    assert [(change.sequence, change.version) for change in decoded(frames)] == [(1, V + 9)]
    assert heart.counts.conflated == 2


def test_records_before_the_position_are_passed_over_and_not_counted() -> None:
    frames, heart, bad = taking(valid(3, "/a", V), Kafka(4, b"x", b"y"), valid(5, "/b", V), position=5)
    assert [change.endpoint for change in decoded(frames)] == [b"/b"]
    assert (heart.counts.consumed, bad) == (1, [])


def test_nothing_but_a_new_position_is_an_empty_batch() -> None:
    frames = Records(lambda _: None).encode(NAME, 5, 9, iter(()))
    assert [feed.decode_batch(batch)[:2] for batch in frames.batches] == [(NAME, 9)]
    assert decoded(frames) == []


def test_of_several_batches_only_the_last_moves_the_position() -> None:
    many = [valid(n, f"/{n}", V) for n in range(2 * feed.MAX_RECORDS + 1)]
    frames, _, _ = taking(*many)
    assert [feed.decode_batch(batch).next for batch in frames.batches] == [0, 0, len(many)]
    assert len(decoded(frames)) == len(many)


def test_a_batch_of_the_longest_records_is_less_than_a_reader_takes() -> None:
    # A value holds its key, so these are the longest that pass.
    many = [valid(n, f"/{n}".ljust(endpoints.MAX_NAME_BYTES, "x"), V, gone=True) for n in range(feed.MAX_RECORDS)]
    frames, heart, _ = taking(*many)
    assert heart.counts.forwarded == feed.MAX_RECORDS
    assert max(map(len, frames.batches)) < feed.MAX_BATCH_BYTES


def test_a_tombstone_moves_the_position_and_is_counted_apart() -> None:
    frames, heart, bad = taking(valid(0, "/a", V), Kafka(1, b"/a", None), Kafka(2, None, None))
    assert [change.sequence for change in decoded(frames)] == [0]
    assert feed.decode_batch(frames.batches[-1]).next == 3
    assert (heart.counts.tombstones, heart.counts.bad, bad) == (2, 0, [])


def test_a_mark_of_the_publisher_is_no_update_and_not_bad() -> None:
    frames, heart, bad = taking(valid(0, "/a", V), Kafka(1, update.WATERMARK_KEY, update.WATERMARK))
    assert [change.sequence for change in decoded(frames)] == [0]
    assert feed.decode_batch(frames.batches[-1]).next == 2
    assert (heart.counts.watermarks, heart.counts.bad, bad, frames.resyncs) == (1, 0, [], [])
    assert frames.watermarks == [Watermark(1, None)], "of an earlier release"


@pytest.mark.parametrize("header", [b"", b"{}", b"[1]", b'{"incarnation":1,"from":0,"at":-1}', b"\xff"])
def test_a_watermark_whose_header_is_no_proof_counts_as_one_without(header: bytes) -> None:
    marked = Kafka(1, update.WATERMARK_KEY, update.WATERMARK, ((LOG_HEADER, header),))
    assert taking(marked)[0].watermarks == [Watermark(1, None)]


def test_a_watermark_has_its_proof_and_positions_the_incarnation_that_the_reader_has() -> None:
    proof = LogProof(3, 4, 1)
    records = [
        valid(0, "/a", V),
        Kafka(1, update.WATERMARK_KEY, update.WATERMARK, ((LOG_HEADER, encode_proof(proof)),)),
    ]
    frames = Records(lambda _: None).encode(NAME, 0, 2, iter(records), resumable=position_of(2, 3))
    assert frames.watermarks == [Watermark(1, proof)]
    assert feed.decode_batch(frames.batches[-1]).next == position_of(2, 3)
    assert [change.sequence for change in decoded(frames)] == [0]


def buried(offset: int, key: str, version: int, header: bytes | None = None) -> Kafka:
    value = update.encode(key, version, version, gone=True) if header is None else header
    return Kafka(offset, key.encode(), None, ((update.GONE_HEADER, value),))


def test_a_tombstone_with_a_deletion_is_one_whose_endpoint_is_forgotten() -> None:
    frames, records, _ = taking(
        valid(0, "/a", V), buried(1, "/a", V + 1), buried(2, "/b", V), valid(3, "/b", V + 1), buried(4, "/c", V)
    )
    found = {change.endpoint: (change.version, change.kind) for change in decoded(frames)}
    assert found == {
        b"/a": (V + 1, update.FORGOTTEN),
        b"/b": (V + 1, update.UPDATE),
        b"/c": (V, update.FORGOTTEN),
    }
    assert (records.counts.tombstones, records.counts.forwarded, records.counts.conflated) == (0, 3, 2)


@pytest.mark.parametrize("header", [b"", b"{}", update.encode("/b", V, V, gone=True)])
def test_a_tombstone_with_anything_else_is_a_position(header: bytes) -> None:
    frames, records, _ = taking(buried(0, "/a", V, header))
    assert (decoded(frames), records.counts.tombstones, records.counts.bad) == ([], 1, 0)


GOOD = update.encode("/a", V, V)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"/a", b""),
        (b"/a", b"\xff\x00"),
        (b"/a", GOOD[:40]),
        (b"/a", GOOD.replace(b"/a", b"/b")),
        (b"/a", GOOD.replace(str(V).encode(), b"-" + str(V).encode()[1:])),
        (b"/a", GOOD + b" " * update.MAX_BYTES),
        (b"/a", b"{}"),
    ],
)
def test_a_bad_value_is_answered_with_a_resync_of_its_endpoint(key: bytes, value: bytes) -> None:
    frames, heart, bad = taking(valid(0, "/b", V), Kafka(1, key, value), valid(2, "/c", V))
    assert [feed.decode(text) for text in frames.resyncs] == [feed.Resync(("/a",))]
    assert [change.endpoint for change in decoded(frames)] == [b"/b", b"/c"]
    assert feed.decode_batch(frames.batches[-1]).next == 3
    assert bad == [BadRecord(NAME, 1, key, value)]
    assert heart.counts.bad == 1


def test_a_resync_is_between_the_updates_and_the_batch_that_moves_the_position() -> None:
    """The updates are older than the bad record, so they end no suspicion; and a link is not lost between the two."""
    frames, _, _ = taking(valid(0, "/a", V), Kafka(1, b"/a", b"bad"), valid(2, "/b", V))
    assert [feed.decode(text) for text in frames.resyncs] == [feed.Resync(("/a",))]
    *before, last = [feed.decode_batch(batch) for batch in frames.batches]
    assert [batch.next for batch in before] == [0]
    assert (last.next, list(last.records)) == (3, [])


@pytest.mark.parametrize(("later", "resynced"), [(V, []), (V + 1, []), (V - 1, ["/a"])])
def test_a_bad_value_that_an_update_follows_needs_no_resync(later: int, resynced: list[str]) -> None:
    frames, heart, _ = taking(valid(0, "/a", V - (later == V)), Kafka(1, b"/a", b"bad"), valid(2, "/a", later))
    found = [feed.decode(text) for text in frames.resyncs]
    assert [name for each in found if isinstance(each, feed.Resync) for name in each.endpoints] == resynced
    assert heart.counts.bad == 1


@pytest.mark.parametrize("key", [None, b"", b"a", b"/", b"/a//", b"/a b", b"/\xff", b"/..", b"/" + b"x" * 256])
def test_a_record_whose_key_is_no_endpoint_is_passed_without_a_resync(key: bytes | None) -> None:
    value = b'{"type":"update","endpoint":"' + (key or b"") + b'","version":' + str(V).encode() + b"}"
    frames, heart, bad = taking(Kafka(0, key, value))
    assert (frames.resyncs, decoded(frames)) == ([], [])
    assert (heart.counts.bad, len(bad)) == (1, 1)


def test_many_bad_endpoints_are_resynced_once_each_and_a_hundred_at_a_time() -> None:
    frames, heart, _ = taking(*(Kafka(n, f"/{n % 250}".encode(), b"bad") for n in range(500)))
    told = [feed.decode(text) for text in frames.resyncs]
    assert [len(each.endpoints) for each in told if isinstance(each, feed.Resync)] == [100, 100, 50]
    assert heart.counts.bad == 500


def test_the_cache_of_valid_names_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_NAMES", 10)
    frames, heart, _ = taking(*(valid(n, f"/{n}", V) for n in range(35)))
    assert len(decoded(frames)) == 35
    assert len(heart._prefixes) <= 10


keys = st.sampled_from([b"/a", b"/b/c", b"a", b"", b"/a/", None]) | st.binary(max_size=8)
values = st.one_of(
    st.none(),
    st.binary(max_size=12),
    st.builds(
        lambda name, version, cut: update.encode(name, version, V)[:cut],
        st.sampled_from(["/a", "/b/c", "a"]),
        st.integers(V, V + 3),
        st.integers(30, 120),
    ),
)


@given(st.lists(st.tuples(keys, values), max_size=30))
@example([(b"/a", GOOD), (b"/a", GOOD[:41] + "\u0661".encode() + GOOD[43:])])
def test_what_passes_is_what_the_protocols_own_check_passes_and_every_record_is_accounted_for(
    pairs: list[tuple[bytes | None, bytes | None]],
) -> None:
    frames, heart, bad = taking(*(Kafka(offset, key, value) for offset, (key, value) in enumerate(pairs)))
    best: dict[bytes, int] = {}
    wrong = 0
    for key, value in pairs:
        if value is None:
            continue
        name = None if key is None else key.decode("latin-1")
        version = update.version_of(key or b"", value) if name is not None and endpoints.is_valid(name) else None
        if version is None or key is None:
            wrong += 1
        else:
            best[key] = max(version, best.get(key, 0))
    assert {change.endpoint: change.version for change in decoded(frames)} == best
    counts = heart.counts
    assert (counts.bad, len(bad)) == (wrong, wrong)
    assert counts.consumed == len(pairs) == counts.forwarded + counts.conflated + wrong + counts.tombstones


def test_a_bad_record_is_named_with_the_beginning_of_its_bytes() -> None:
    with capture_logs() as lines:
        BadRecordLog(ManualClock().monotonic)(BadRecord("a/b.updates/7", 42, b"\x00" * 5000, b"\xff" * 5000))
    (line,) = lines
    assert (line["topic"], line["partition"], line["offset"]) == ("a/b.updates", 7, 42)
    assert (line["record_key_hex"], line["record_value_hex"]) == ("00" * 1024, "ff" * 1024)


def test_a_record_without_a_key_is_named_too() -> None:
    with capture_logs() as lines:
        BadRecordLog(ManualClock().monotonic)(BadRecord("t/0", 1, None, b""))
    assert (lines[0]["record_key_hex"], lines[0]["record_value_hex"]) == (None, "")


def test_a_million_bad_records_are_a_few_lines_with_the_number_of_suppressed_ones() -> None:
    clock = ManualClock()
    log = BadRecordLog(clock.monotonic)
    with capture_logs() as lines:
        for offset in range(1_000_000 // 100):
            log(BadRecord("t/0", offset, b"/a", b"x"))
        assert len(lines) == LOG_BURST
        clock.advance(LOG_INTERVAL_S)
        log(BadRecord("t/0", 1, b"/a", b"x"))
        log(BadRecord("t/0", 2, b"/a", b"x"))
    assert len(lines) == LOG_BURST + 1
    assert lines[-1]["not_logged_before"] == 10_000 - LOG_BURST


def full(offset: int, name: str, version: int, size: int) -> Kafka:
    data = b'{"version":%d,"x":"%b"}' % (version, b"x" * size)
    return Kafka(offset, name.encode(), update.encode(name, version, V, data=data))


@pytest.mark.parametrize("with_data", [True, False])
def test_updates_carry_their_data_to_a_reader_that_asks_for_it(with_data: bool) -> None:
    record = full(0, "/a", V, 4000)
    frames = Records(lambda _: None).encode(NAME, 0, 1, [record], with_data=with_data)
    (change,) = decoded(frames)
    assert change.value == (record.value if with_data else update.encode("/a", V, V))
    assert change.version == V


def test_batches_with_data_are_bounded_in_bytes_and_only_the_last_moves_the_position() -> None:
    records = [full(number, f"/{number}", V, 30_000) for number in range(20)]
    frames = Records(lambda _: None).encode(NAME, 0, 20, records, with_data=True)
    assert max(map(len, frames.batches)) < feed.MAX_BATCH_BYTES / 2
    assert [feed.decode_batch(batch).next for batch in frames.batches] == [0, 0, 20]
    assert [change.endpoint for change in decoded(frames)] == [record.key for record in records]


def test_data_that_is_longer_than_allowed_or_no_data_is_a_bad_record() -> None:
    longer = full(0, "/a", V, update.MAX_RECORD_BYTES)
    rest = Kafka(1, b"/b", update.encode("/b", V, V)[:-1] + b',"other":"' + b"x" * 600 + b'"}')
    _, heart, bad = taking(longer, rest)
    assert [each.offset for each in bad] == [0, 1]
    assert heart.counts.bad == 2


def test_contexts_of_traced_updates_are_noted_and_those_of_merged_ones_are_linked() -> None:
    later = SAMPLED.replace("4bf9", "0000")
    records = [
        valid(1, "/a", V)._replace(headers=(("traceparent", SAMPLED.encode()),)),
        valid(2, "/b", V),
        valid(3, "/a", V + 1)._replace(headers=(("other", b"x"), ("traceparent", later.encode()))),
        Kafka(4, b"/c", b"no update", (("traceparent", SAMPLED.encode()),)),
        Kafka(5, b"/d", None, (("traceparent", SAMPLED.encode()),)),
    ]
    found: dict[bytes, TracedRecord] = {}
    assert [*noting_traces(records, 0, V, found)] == records
    assert found == {b"/a": TracedRecord(3, V + 1, later, (SAMPLED,))}
    found.clear()
    assert [*noting_traces(records, 4, V, found)] == records
    assert not found, "records before the position were noted by an earlier fetch"
    assert [*noting_traces(records, 0, V + 40_000, found)] == records
    assert not found, "what a log has kept since is a part of a catch-up"


def test_contexts_of_one_fetch_are_bounded_whatever_others_write() -> None:
    headers = (("traceparent", SAMPLED.encode()),)
    many = [valid(n, f"/{n}", V)._replace(headers=headers) for n in range(100)]
    same = [valid(n, "/a", V + n)._replace(headers=headers) for n in range(100)]
    odd = [Kafka(1, key, update.prefix_of(key) + b"%d}" % V, headers) for key in (b"\xff", b"no endpoint", b"")]
    found: dict[bytes, TracedRecord] = {}
    assert [*noting_traces([*many, *odd], 0, V, found)] == [*many, *odd]
    assert len(found) == 64
    found.clear()
    assert [*noting_traces(same, 0, V, found)] == same
    assert len(found[b"/a"].merged) == 64
