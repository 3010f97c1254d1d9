"""Versions of a served topic. That readers end with the last value of every key: tests/walks/test_served_topic.py."""

from dataclasses import replace

import pytest

from diem.protocol.partitioners import Partitioner
from diem.protocol.served_topic import (
    FIRST_VERSION,
    MIN_LIMIT,
    Epoch,
    EpochsUsedUp,
    Observed,
    encode_epoch,
    latest,
    next_epoch,
    version_of,
)

NOW = 1_700_000_000_000
PLACE = Partitioner.MURMUR2.place
KEYS = [b"%d" % number for number in range(4)]


def first(ends: tuple[int, ...] = (0, 0), topic: str = "a") -> Epoch:
    epoch = next_epoch(None, Observed(topic, (0,) * len(ends), ends), NOW)
    assert epoch is not None
    return epoch


def following(current: Epoch, observed: Observed, *, cut: bool = False) -> Epoch:
    epoch = next_epoch(current, observed, NOW, cut=cut)
    assert epoch is not None
    assert epoch.number == current.number + 1
    return epoch


def test_epoch_holds_while_the_topic_only_grows() -> None:
    assert next_epoch(first(), Observed("a", (0, 0), (500, 7)), NOW) is None


def test_topic_made_again_begins_above_all_earlier_versions() -> None:
    before = first((10, 10))
    after = following(before, Observed("b", (0, 0), (0, 0)))
    assert after.base == before.end
    assert following(after, Observed("a", (0, 0), (0, 0))).base == after.end


def test_key_has_greater_versions_where_a_later_count_places_it() -> None:
    epoch = following(first((900, 900)), Observed("a", (0,) * 4, (900, 900, 0, 0)))
    moved = next(key for key in KEYS if PLACE(key, 4) >= 2)
    before, after = (epoch.ranks(moved, PLACE(moved, count), Partitioner.MURMUR2) for count in (2, 4))
    assert version_of(after, 0) > version_of(before, 900)


def test_key_that_comes_back_to_a_partition_has_greater_versions_than_where_it_was() -> None:
    key = next(key for key in map(str.encode, map(str, range(99))) if PLACE(key, 2) == PLACE(key, 4) != PLACE(key, 3))
    home, away = PLACE(key, 2), PLACE(key, 3)
    epoch = following(first((50, 50)), Observed("a", (0,) * 3, (50, 50, 0)))
    epoch = following(epoch, Observed("a", (0,) * 4, (60, 60, 60, 0)))
    back, between = (epoch.ranks(key, place, Partitioner.MURMUR2) for place in (home, away))
    assert version_of(back, 49) < version_of(between, 0) < version_of(back, 60)


def test_key_in_a_partition_of_no_count_has_the_least_versions() -> None:
    epoch = first((5, 5))
    wrong = 1 - PLACE(KEYS[0], 2)
    assert version_of(epoch.ranks(KEYS[0], wrong, Partitioner.MURMUR2), 3) == epoch.base + 3
    assert version_of(epoch.ranks(KEYS[0], 1 - wrong, Partitioner.MURMUR2), 0) >= epoch.base + epoch.limit


def test_log_that_lost_its_end_gives_no_version_twice() -> None:
    before = first((10, 10))
    after = following(before, Observed("a", (0, 0), (4, 10)), cut=True)
    assert after.base >= before.end


def test_log_that_lost_its_beginning_keeps_its_versions_in_a_new_epoch() -> None:
    before = first((10, 10))
    after = following(before, Observed("a", (4, 0), (10, 10)))
    assert (after.base, after.limit, after.begins) == (before.base, before.limit, (4, 0))


def test_reserved_offsets_grow_before_they_are_used_up() -> None:
    after = following(first(), Observed("a", (0, 0), (MIN_LIMIT - 1, 0)))
    assert after.limit > MIN_LIMIT * 5 // 4 - 9
    assert after.base >= first().end


def test_versions_are_below_the_present_time_or_none_are_given() -> None:
    assert first().base == FIRST_VERSION
    last = replace(first(), base=NOW - 3 * MIN_LIMIT)
    with pytest.raises(EpochsUsedUp, match="--topic-prefix"):
        next_epoch(last, Observed("b", (0, 0), (0, 0)), NOW)


def test_first_record_of_each_number_counts() -> None:
    one = first()
    two, other = following(one, Observed("b", (0, 0), (0, 0))), following(one, Observed("c", (0, 0), (0, 0)))
    values = [b"no epoch", None, encode_epoch(one), encode_epoch(two), encode_epoch(other), encode_epoch(one)]
    assert latest(iter(values)) == two
    assert latest(iter(values[:2])) is None
    assert latest(iter(values[3:4])) == two
