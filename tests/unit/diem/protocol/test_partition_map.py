"""The partition map: its records, its phases, and what follows from them for publisher, servers and clients."""

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from diem.kafka.topic_config import MAX_MESSAGE_BYTES
from diem.protocol import feed
from diem.protocol.compatibility import OURS
from diem.protocol.partition_map import (
    HEAD_KEY,
    HOT,
    MAX_UNKNOWN_BYTES,
    START_KEY,
    Entry,
    Head,
    MapBuilder,
    PartitionMap,
    Phase,
    Role,
    encode_ack,
    encode_entry,
    encode_head,
    parse_ack,
    parse_unknown,
)
from diem.protocol.partitioners import murmur2, partition_of

PLACES = st.integers(HOT, 5)
ENTRIES = st.builds(Entry, PLACES, st.none() | PLACES)


def built(*records: tuple[bytes, bytes | None]) -> MapBuilder:
    builder = MapBuilder()
    for key, value in records:
        builder.apply(key, value)
    return builder


def head(epoch: int = 0, phase: Phase = Phase.STABLE, partitions: int = 6) -> tuple[bytes, bytes]:
    return HEAD_KEY, encode_head(Head(partitions, epoch, phase))


def test_without_an_entry_an_endpoint_is_where_kafka_puts_it() -> None:
    plain = PartitionMap(Head(6, 0))
    assert plain.home(b"/dam/prices/GR") == partition_of(b"/dam/prices/GR", 6)
    assert plain.written_to(b"/dam/prices/GR") == (partition_of(b"/dam/prices/GR", 6),)


def test_an_entry_wins_over_the_hash() -> None:
    assert PartitionMap(Head(6, 0), {b"/a": Entry(HOT)}).home(b"/a") == HOT


@pytest.mark.parametrize(
    ("phase", "written", "home", "of_old", "of_new"),
    [
        (Phase.STABLE, (1,), 1, Role.SERVING, Role.NOT_OWNED),
        (Phase.PREPARE, (1, 2), 1, Role.SERVING, Role.SERVING),
        (Phase.MOVE, (1, 2), 2, Role.DRAINING, Role.SERVING),
        (Phase.RETIRE, (2,), 2, Role.NOT_OWNED, Role.SERVING),
    ],
)
def test_the_phases_of_a_move_are_the_documented_ones(
    phase: Phase, written: tuple[int, ...], home: int, of_old: Role, of_new: Role
) -> None:
    moving = PartitionMap(Head(6, 1, phase), {b"/a": Entry(1, 2)})
    assert moving.written_to(b"/a") == written
    assert moving.home(b"/a") == home
    assert moving.role(moving.written_to(b"/a"), {1}) is of_old
    assert moving.role(moving.written_to(b"/a"), {2}) is of_new
    assert moving.role(moving.written_to(b"/a"), {1, 2}) is Role.SERVING
    assert moving.role(moving.written_to(b"/a"), {3}) is Role.NOT_OWNED


@given(ENTRIES, st.sampled_from(Phase), st.lists(st.integers(0, 2), min_size=6, max_size=6))
def test_the_owner_of_an_endpoint_serves_it_and_is_written_to(entry: Entry, phase: Phase, owners: list[int]) -> None:
    state = PartitionMap(Head(6, 1, phase), {b"/a": entry})
    for server in range(3):
        owned = {HOT} | {number for number, owner in enumerate(owners) if owner == server}
        standing = state.role(state.written_to(b"/a"), owned)
        if state.home(b"/a") in owned:
            assert standing is Role.SERVING
        if standing is not Role.NOT_OWNED:
            assert set(state.written_to(b"/a")) & owned
        assert standing is not Role.DRAINING or phase is Phase.MOVE


def test_entries_count_from_the_head_that_is_written_after_them() -> None:
    builder = built(head(0))
    assert not builder.apply(b"/a", encode_entry(Entry(3)))
    assert builder.map == PartitionMap(Head(6, 0))
    assert builder.apply(*head(1))
    assert builder.map == PartitionMap(Head(6, 1), {b"/a": Entry(3)})


def test_an_older_epoch_is_ignored_and_the_same_one_changes_nothing() -> None:
    builder = built(head(4))
    assert not builder.apply(*head(3, partitions=2))
    assert not builder.apply(*head(4))
    assert builder.map == PartitionMap(Head(6, 4))


def test_a_phase_of_the_same_epoch_is_a_change() -> None:
    assert built(head(4, Phase.PREPARE)).apply(*head(4, Phase.MOVE))


@pytest.mark.parametrize("removed", [None, b""])
def test_a_removed_entry_falls_back_to_the_hash(removed: bytes | None) -> None:
    builder = built((b"/a", encode_entry(Entry(3))), head(0), (b"/a", removed), head(1))
    assert builder.map == PartitionMap(Head(6, 1))


def test_a_head_whose_entries_are_not_all_there_changes_nothing() -> None:
    builder = built((b"/a", encode_entry(Entry(3))), (HEAD_KEY, encode_head(Head(6, 1), 1)))
    assert builder.is_complete
    builder.restart()
    assert not builder.is_complete
    assert not builder.apply(HEAD_KEY, encode_head(Head(6, 2), 1))
    assert not builder.is_complete
    assert builder.map == PartitionMap(Head(6, 1), {b"/a": Entry(3)})
    assert builder.count_after({b"/a": b"", b"/b": encode_entry(Entry(1))}) == 1
    assert not builder.apply(b"/b", encode_entry(Entry(1)))
    assert builder.apply(HEAD_KEY, encode_head(Head(6, 2), 1))
    assert builder.is_complete


def test_a_log_that_ends_with_an_older_epoch_than_is_known_has_not_the_whole_map() -> None:
    builder = built((HEAD_KEY, encode_head(Head(6, 5), 0)))
    builder.restart()
    assert not builder.apply(HEAD_KEY, encode_head(Head(6, 4), 0))
    assert not builder.is_complete


def test_a_replay_forgets_what_it_does_not_repeat_even_under_an_older_epoch() -> None:
    builder = built((b"/a", encode_entry(Entry(3))), head(7))
    assert not builder.apply(START_KEY, b"")
    assert builder.map == PartitionMap(Head(6, 7), {b"/a": Entry(3)}), "until the head of the replay"
    assert builder.apply(*head(2))
    assert builder.map == PartitionMap(Head(6, 2))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"/a", b"no json"),
        (b"/a", b'{"home":-2}'),
        (b"/a", b'{"home":1,"target":"2"}'),
        (b"/a", b'{"target":2}'),
        (b"no name", b'{"home":1}'),
        (b"\xff", b'{"home":1}'),
        (HEAD_KEY, b""),
        (HEAD_KEY, b'{"partitions":0,"epoch":9,"phase":"stable"}'),
        (HEAD_KEY, b'{"partitions":6,"epoch":-1,"phase":"stable"}'),
        (HEAD_KEY, b'{"partitions":6,"epoch":9,"phase":"resting"}'),
        (HEAD_KEY, b"[]"),
    ],
)
def test_a_record_that_is_none_is_counted_and_changes_nothing(key: bytes, value: bytes) -> None:
    builder = built(head(0), (key, value))
    builder.apply(*head(1))
    assert builder.invalid == 1
    assert builder.map == PartitionMap(Head(6, 1))


def test_acknowledgements_are_no_entries() -> None:
    builder = built((b"ack/publisher", b'{"epoch":1}'), head(1))
    assert builder.invalid == 0
    assert builder.map == PartitionMap(Head(6, 1))


@given(st.dictionaries(st.sampled_from([b"/a", b"/b", b"/c"]), ENTRIES), st.sampled_from(Phase))
def test_what_is_encoded_is_what_is_read(entries: dict[bytes, Entry], phase: Phase) -> None:
    records = [(endpoint, encode_entry(entry)) for endpoint, entry in entries.items()]
    assert built(*records, head(5, phase)).map == PartitionMap(Head(6, 5, phase), entries)


def test_the_records_are_the_documented_bytes() -> None:
    assert orjson.loads(head(3, Phase.MOVE)[1]) == {"partitions": 6, "epoch": 3, "phase": "move"}
    assert encode_entry(Entry(3)) == b'{"home":3}'
    assert encode_entry(Entry(3, HOT)) == b'{"home":3,"target":-1}'


def test_partitions_follow_from_the_names_of_streams() -> None:
    found = {
        name: feed.partition_of_stream(name)
        for name in ("diem.updates/0", "t-1.updates/11", "diem.updates.hot/0", "diem.partition-map/0", "store")
    }
    assert found == {
        "diem.updates/0": 0,
        "t-1.updates/11": 11,
        "diem.updates.hot/0": HOT,
        "diem.partition-map/0": None,
        "store": None,
    }
    assert feed.is_map("diem.partition-map/0")
    assert not feed.is_map("diem.updates/0")


def test_an_acknowledgement_names_what_nobody_has_published() -> None:
    assert encode_ack(7) == b'{"epoch":7}'
    ack = encode_ack(7, [b"/a", b"/b"])
    assert parse_ack(ack) == 7
    assert parse_unknown(ack) == {b"/a", b"/b"}
    assert parse_unknown(encode_ack(7)) == frozenset()


def test_an_acknowledgement_fits_into_the_topic_however_much_is_unknown() -> None:
    names = [b"/%d/%b" % (number, b"x" * 200) for number in range(2000)]
    ack = encode_ack(7, names)
    assert MAX_UNKNOWN_BYTES - 300 < len(ack) < MAX_MESSAGE_BYTES
    assert parse_unknown(ack) == set(names[: len(parse_unknown(ack))])


@pytest.mark.parametrize(
    "value",
    [None, b"", b"{", b"[]", b'{"unknown":["/a"]}', b'{"epoch":"7","unknown":["/a"]}', b'{"epoch":7,"unknown":"/a"}'],
)
def test_what_is_no_acknowledgement_names_nothing(value: bytes | None) -> None:
    assert parse_unknown(value) == frozenset()
    assert parse_unknown(b'{"epoch":7,"unknown":["no name",7,"/a"]}') == {b"/a"}


VECTORS = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@pytest.mark.parametrize(("key", "signed"), VECTORS.items())
def test_the_hash_is_kafkas(key: bytes, signed: int) -> None:
    assert murmur2(key) == signed & 0xFFFFFFFF


@given(st.binary(max_size=300))
def test_the_hash_is_that_of_the_kafka_client_in_use(key: bytes) -> None:
    from aiokafka.partitioner import murmur2 as theirs  # noqa: PLC0415

    assert murmur2(key) == theirs(key)


@given(st.binary(max_size=300), st.integers(1, 1000))
def test_every_key_has_one_of_the_partitions(key: bytes, count: int) -> None:
    assert 0 <= partition_of(key, count) < count


def test_one_partition_takes_everything() -> None:
    assert {partition_of(f"/e/{n}".encode(), 1) for n in range(100)} == {0}


def test_fields_that_a_later_release_adds_are_ignored() -> None:
    entry, later = b'{"home":1,"target":2,"later":[1]}', b'{"partitions":6,"epoch":1,"phase":"move","later":{}}'
    builder = built((b"/a", entry), (HEAD_KEY, later))
    assert builder.map == PartitionMap(Head(6, 1, Phase.MOVE), {b"/a": Entry(1, 2)})
    assert (builder.invalid, builder.needs) == (0, None)


def test_a_head_for_later_releases_leaves_the_map_as_it_was_until_one_for_this_release() -> None:
    builder = built(head(1))
    needed = OURS.newest + 1
    builder.apply(HEAD_KEY, b'{"partitions":6,"epoch":2,"phase":"resting","protocol":%d}' % needed)
    assert (builder.map, builder.needs, builder.invalid) == (PartitionMap(Head(6, 1)), needed, 0)
    builder.apply(HEAD_KEY, b'{"partitions":6,"epoch":3,"phase":"stable","protocol":%d}' % OURS.newest)
    assert (builder.map, builder.needs) == (PartitionMap(Head(6, 3)), None)
