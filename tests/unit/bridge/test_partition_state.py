import pytest

from bridge.partition_state import (
    ANSWERED_WITHIN_S,
    STALLED_AFTER_S,
    WATERMARK_WITHIN_S,
    LogChanged,
    PartitionTable,
    ReaderOutdated,
)
from diem.protocol.watermark import LogProof, position_of

A, B = "t/0", "t/1"


@pytest.mark.parametrize(
    ("position", "begin", "end", "expected"),
    [
        (position_of(0, None), 0, 10, (0, None)),
        (position_of(0, None), 4, 10, (4, None)),
        (position_of(5, 2), 0, 10, (5, 2)),
        (position_of(5, None), 1, 10, (1, None)),
        (position_of(10, 2), 0, 10, (10, 2)),
        (position_of(11, 2), 0, 10, (0, None)),
        (position_of(11, 2), 3, 10, (3, None)),
        (position_of(2, 2), 3, 10, (3, None)),
    ],
)
def test_reading_starts_where_the_reader_stands_if_it_lacks_nothing_and_the_log_has_the_rest(
    position: int, begin: int, end: int, expected: tuple[int, int | None]
) -> None:
    partitions = PartitionTable([A], {A: position})
    partitions.begin({A: (begin, end)}, 0.0)
    assert (partitions[A].position, partitions[A].incarnation) == expected


def opened(position: int, *, begin: int = 0, end: int = 10, previous: PartitionTable | None = None) -> PartitionTable:
    partitions = PartitionTable([A], {A: position}, previous)
    partitions.begin({A: (begin, end)}, 0.0)
    return partitions


def test_a_log_that_was_cut_before_the_reader_is_complete_once_everything_was_sent_again() -> None:
    partitions = opened(position_of(5, 2), begin=7)
    partitions[A].apply_watermark(9, LogProof(2, 4, 9), 1.0)
    assert not partitions[A].confirmed, "it has everything from 4 on, the reader from 7 on"
    partitions[A].apply_watermark(12, LogProof(2, 7, 12), 2.0)
    assert (partitions[A].confirmed, partitions[A].incarnation) == (True, 2)


def test_a_watermark_before_its_least_offset_does_not_count() -> None:
    partitions = opened(position_of(10, 2))
    partitions[A].apply_watermark(10, LogProof(2, 0, 11), 1.0)
    assert not partitions[A].confirmed


def test_another_incarnation_is_read_from_the_beginning_by_whoever_reads_next() -> None:
    partitions = opened(position_of(10, 2))
    with pytest.raises(LogChanged):
        partitions[A].apply_watermark(10, LogProof(3, 4, 10), 1.0)
    again = opened(position_of(10, 2), previous=partitions)
    assert again[A].position == 0
    again[A].apply_watermark(4, LogProof(2, 0, 4), 2.0)
    assert not again[A].confirmed, "of the log as it was"
    again[A].apply_watermark(10, LogProof(3, 4, 10), 3.0)
    assert (again[A].confirmed, again[A].incarnation) == (True, 3)


def test_a_reader_that_knows_no_incarnation_trusts_the_first_one_only() -> None:
    partitions = opened(0)
    partitions[A].apply_watermark(3, LogProof(1, 0, 3), 1.0)
    assert partitions[A].incarnation == 1
    partitions = opened(0)
    with pytest.raises(LogChanged):
        partitions[A].apply_watermark(3, LogProof(2, 0, 3), 1.0)


def test_a_watermark_that_was_there_before_does_not_say_that_the_publisher_is_alive() -> None:
    partitions = opened(0, end=10)
    partitions[A].apply_watermark(9, LogProof(1, 0, 9), 1.0)
    assert (partitions[A].incarnation, partitions[A].confirmed, partitions[A].watermark_at) == (1, False, 0.0)
    partitions[A].apply_watermark(10, LogProof(1, 0, 10), 2.0)
    assert (partitions[A].confirmed, partitions[A].watermark_at) == (True, 2.0)


@pytest.mark.parametrize(("begin", "counts"), [(0, True), (3, False)])
def test_watermarks_of_earlier_releases_count_where_the_log_was_read_from_its_first_record(
    begin: int, *, counts: bool
) -> None:
    partitions = opened(0, begin=begin)
    partitions[A].apply_watermark(10, None, 1.0)
    assert (partitions[A].confirmed, partitions[A].incarnation) == (counts, None)


def table(
    positions: dict[str, int],
    *,
    ends: dict[str, int],
    missing: tuple[str, ...] = (),
    previous: PartitionTable | None = None,
    now: float = 0.0,
) -> PartitionTable:
    """Partitions whose logs begin at 0, of which ``missing`` ones have no leader; all have had a watermark."""
    made = PartitionTable([*ends, *missing], {name: position_of(n, 2) for name, n in positions.items()}, previous)
    made.begin({name: (0, end) for name, end in ends.items()}, now)
    for name in (*ends, *missing):
        confirm(made, name)
    return made


def confirm(partitions: PartitionTable, *names: str) -> None:
    """Have a watermark count, at whatever time."""
    for name in names:
        partitions[name].incarnation, partitions[name].confirmed = 2, True


def test_each_name_catches_up_once_at_the_end_that_its_log_had_in_the_beginning() -> None:
    partitions = table({}, ends={A: 10, B: 0})
    assert partitions.pop_caught_up() == [B], "an empty partition at once"
    partitions[A].advance(9, 1.0)
    assert partitions.pop_caught_up() == []
    partitions[A].observe(1, 500, 1.0)
    partitions[A].advance(10, 1.0)
    assert partitions.pop_caught_up() == [A]
    assert partitions.pop_caught_up() == []
    assert partitions.caught_up


def test_caught_up_is_sent_once_however_many_consumers_there_are() -> None:
    partitions = table({A: 4, B: 10}, ends={A: 4, B: 20})
    assert partitions.pop_caught_up() == [A]
    partitions.begin({A: (0, 10), B: (0, 10)}, 1.0)
    assert partitions.pop_caught_up() == [B]
    assert not partitions.is_live(1.0), "the end of the log is expected to be read although caught_up was sent"


def live() -> PartitionTable:
    partitions = table({A: 10, B: 5}, ends={A: 10, B: 5})
    partitions.pop_caught_up()
    assert partitions.is_live(0.0)
    return partitions


def test_no_heartbeat_before_everything_has_caught_up() -> None:
    partitions = table({A: 10}, ends={A: 10, B: 5})
    partitions.pop_caught_up()
    assert not partitions.is_live(0.0)


def test_no_heartbeat_when_the_broker_of_one_partition_has_not_answered_for_three_seconds() -> None:
    partitions = live()
    partitions[A].observe(1, 10, 2.0)
    partitions[B].observe(1, 5, 2.0)
    partitions[A].observe(2, 10, 4.0)
    partitions[B].observe(1, 5, 4.0)
    assert partitions.is_live(2.0 + ANSWERED_WITHIN_S)
    assert not partitions.is_live(2.1 + ANSWERED_WITHIN_S)
    partitions[B].observe(2, 5, 6.0)
    assert partitions.is_live(6.0)


def test_an_answers_own_time_is_not_believed_only_that_it_is_another_answer() -> None:
    partitions = live()
    partitions[A].observe(9_999_999_999_999, 10, 1.0)
    partitions[B].observe(1, 5, 1.0)
    assert not partitions.is_live(1.1 + ANSWERED_WITHIN_S), "a clock that was ahead does not keep a dead broker alive"
    partitions[A].observe(7, 10, 5.0)
    partitions[B].observe(2, 5, 5.0)
    assert partitions.is_live(5.0), "nor does one that was set back bury a living one"


def test_no_heartbeat_while_records_of_a_second_ago_are_not_written_yet() -> None:
    partitions = live()
    partitions[A].observe(1, 20, 1.0)
    assert partitions.is_live(1.0), "it has only just come"
    partitions.tick()
    assert not partitions.is_live(1.5)
    partitions[A].advance(20, 2.0)
    assert partitions.is_live(2.0)


def test_a_log_that_ends_before_what_was_read_has_gone_back() -> None:
    partitions = live()
    assert not partitions.has_truncated_log
    partitions[A].observe(1, 9, 1.0)
    assert partitions.has_truncated_log


def test_records_may_arrive_before_the_new_end_is_reported() -> None:
    partitions = live()
    partitions[A].advance(12, 1.0)
    assert (partitions.has_truncated_log, partitions.lag, partitions.positions) == (False, 0, {A: 12, B: 5})


def idle(partitions: PartitionTable, until: float, *, ends: dict[str, int], since: float = 0.0) -> None:
    now = since
    while now <= until:
        for name, end in ends.items():
            partitions[name].observe(int(now * 1000) + 1, end, now)
        now += 1.0


def test_an_idle_topic_is_not_stalled_nor_is_its_first_record_after_an_hour() -> None:
    partitions = live()
    idle(partitions, 3600.0, ends={A: 10, B: 5})
    assert partitions.stalled(3600.0) == []
    partitions[A].observe(1, 11, 3600.5)
    assert partitions.stalled(3601.0) == []


def test_a_partition_with_something_to_read_and_no_progress_is_stalled_after_30_seconds() -> None:
    partitions = live()
    idle(partitions, STALLED_AFTER_S - 1, ends={A: 11, B: 5})
    assert partitions.stalled(STALLED_AFTER_S - 1) == []
    idle(partitions, STALLED_AFTER_S, ends={A: 11, B: 5}, since=STALLED_AFTER_S)
    assert partitions.stalled(STALLED_AFTER_S) == [A]


def test_progress_is_not_a_stall_however_far_the_end_is() -> None:
    partitions = live()
    for second in range(100):
        partitions[A].observe(second, 10_000, float(second))
        partitions[B].observe(second, 5, float(second))
        partitions[A].advance(11 + second, float(second))
        assert partitions.stalled(float(second)) == []


def test_a_partition_whose_broker_is_silent_is_stalled_after_30_seconds() -> None:
    partitions = live()
    idle(partitions, 40.0, ends={A: 10})
    assert partitions.stalled(STALLED_AFTER_S - 1) == []
    assert partitions.stalled(STALLED_AFTER_S) == [B]


def test_a_paused_link_is_no_stall() -> None:
    partitions = live()
    partitions.watched_since = 100.0
    assert partitions.stalled(100.0 + STALLED_AFTER_S - 1) == []
    assert partitions.stalled(100.0 + STALLED_AFTER_S) == [A, B]


def test_new_partitions_are_read_from_their_beginning_and_catch_up_by_themselves() -> None:
    partitions = live()
    assert partitions.assign((A, B, "t/2", "t/3")) == ([], ["t/2", "t/3"])
    assert partitions.missing == {"t/2", "t/3"}
    partitions.add({"t/2": (0, 3), "t/3": (0, 0)}, 1.0)
    assert partitions.positions == {A: 10, B: 5, "t/2": 0, "t/3": 0}
    assert partitions.pop_caught_up() == ["t/3"]
    assert not partitions.is_live(1.0)
    partitions["t/2"].advance(3, 1.0)
    assert partitions.pop_caught_up() == ["t/2"]


def test_heartbeats_end_when_watermarks_of_any_partition_stop() -> None:
    partitions = live()
    for name in (A, B):
        partitions[name].watermark_at = 0.0
    for second in range(1, 20):
        now = float(second)
        for name, end in ((A, 10), (B, 5)):
            partitions[name].observe(second, end, now)
        if second <= 10:
            partitions[A].watermark_at = now
        assert partitions.is_live(now) == (now <= WATERMARK_WITHIN_S), "B was marked at 0 for the last time"


def test_a_log_without_watermarks_is_live_for_six_seconds() -> None:
    partitions = live()
    for now in (WATERMARK_WITHIN_S, WATERMARK_WITHIN_S + 1):
        for name, end in ((A, 10), (B, 5)):
            partitions[name].observe(int(now), end, now)
        assert partitions.is_live(now) == (now <= WATERMARK_WITHIN_S)


def test_watermarks_of_partitions_that_were_lost_delay_nothing() -> None:
    before = table({}, ends={A: 0, B: 0})
    smaller = table({}, ends={A: 0}, previous=before, now=50.0)
    smaller.pop_caught_up()
    smaller[A].watermark_at = 50.0
    assert smaller.is_live(50.0)


def test_partition_without_leader_stops_heartbeats_and_no_other_partition() -> None:
    partitions = table({B: 5}, ends={A: 0}, missing=(B,))
    assert partitions.pop_caught_up() == [A]
    assert not partitions.is_live(0.0)
    assert partitions.positions == {A: 0}
    partitions.add({B: (0, 5)}, 1.0)
    assert partitions.pop_caught_up() == [B], "it continues at the reader's position"
    assert not partitions.is_live(1.0), "before a watermark"
    confirm(partitions, B)
    assert partitions.is_live(1.0)


def test_a_consumer_is_not_replaced_for_a_partition_without_a_leader() -> None:
    partitions = live()
    now = STALLED_AFTER_S + 1
    partitions[A].observe(9, 10, now)
    assert partitions.stalled(now) == [B]
    assert partitions.stalled(now, {B}) == []


def test_watermarks_outlive_the_reader() -> None:
    before = table({}, ends={A: 0})
    before[A].watermark_at = 0.0
    later = table({}, ends={A: 0}, previous=before, now=7.0)
    later.pop_caught_up()
    assert not later.is_live(7.0)
    later[A].watermark_at = 7.0
    assert later.is_live(7.0)


def test_partition_without_bounds_gets_another_six_seconds_for_its_watermark() -> None:
    partitions = table({}, ends={A: 0})
    partitions.begin({}, 10.0)
    partitions.begin({A: (0, 0)}, 20.0)
    confirm(partitions, A)
    partitions.pop_caught_up()
    assert partitions.is_live(20.0)


def test_lost_partition_delays_nothing_and_starts_over_when_it_is_assigned_again() -> None:
    partitions = table({A: 10, B: 4}, ends={A: 10, B: 10}, missing=("t/2",))
    partitions.pop_caught_up()
    assert not partitions.is_live(0.0)
    assert partitions.assign((A,)) == ([B, "t/2"], [])
    assert (partitions.names, partitions.positions, partitions.lag) == ((A,), {A: 10}, 0)
    assert partitions.is_live(0.0)
    assert partitions.assign((A,)) == ([], [])
    assert partitions.assign((A, B)) == ([], [B])
    partitions.add({B: (0, 10)}, 1.0)
    assert partitions.positions == {A: 10, B: 0}
    assert not partitions.is_live(1.0)


def test_assignment_keeps_its_order() -> None:
    partitions = table({B: 3}, ends={B: 5})
    partitions.assign((A, B))
    assert partitions.names == (A, B)
    assert partitions[B].position == 3


def test_position_beyond_the_end_is_not_used_by_the_next_consumer() -> None:
    partitions = table({A: 11}, ends={A: 10})
    partitions.begin({A: (0, 20)}, 1.0)
    assert partitions.positions == {A: 0}


def test_positions_are_committed_until_they_move() -> None:
    partitions = table({A: 10, "hot/0": 1}, ends={A: 10, "hot/0": 1}, missing=(B,))
    assert partitions.uncommitted() == {A: 10, "hot/0": 1}
    assert partitions.uncommitted("t") == {A: 10}
    partitions.set_committed({A: 10, "lost/0": 3})
    assert partitions.uncommitted("t") == {}
    partitions[A].advance(11, 1.0)
    assert partitions.uncommitted("t") == {A: 11}


def test_commits_outlive_the_reader() -> None:
    before = table({A: 10}, ends={A: 10})
    before.set_committed({A: 10})
    assert table({A: 10}, ends={A: 10}, previous=before).uncommitted() == {}


def known_until(partitions: PartitionTable) -> int:
    return partitions[A].resumable


def test_the_position_follows_the_watermarks_that_were_read_after_the_end() -> None:
    partitions = opened(position_of(4, 1))
    partitions[A].advance(12, 1.0)
    assert known_until(partitions) == position_of(4, 1), "deletions may be missing in between"
    partitions[A].observe(1, 12, 1.0)
    partitions[A].apply_watermark(12, LogProof(1, 0, 12, forgotten=4), 2.0)
    assert known_until(partitions) == position_of(12, 1)
    partitions[A].advance(30, 3.0)
    partitions[A].observe(2, 40, 3.0)
    partitions[A].apply_watermark(30, LogProof(1, 0, 30, forgotten=12), 3.0)
    assert known_until(partitions) == position_of(12, 1), "it was not at the end since"
    partitions.begin({A: (0, 40)}, 4.0)
    assert partitions[A].position == 12, "so does another consumer"


def test_a_reader_that_was_away_while_the_log_forgot_is_outdated() -> None:
    partitions = opened(position_of(4, 1))
    with pytest.raises(ReaderOutdated):
        partitions[A].apply_watermark(10, LogProof(1, 0, 10, forgotten=5), 1.0)


def test_a_reader_that_has_nothing_yet_is_not_outdated() -> None:
    partitions = opened(0)
    partitions[A].advance(10, 1.0)
    assert known_until(partitions) == 0
    partitions[A].observe(1, 10, 1.0)
    partitions[A].apply_watermark(10, LogProof(1, 0, 10, forgotten=9), 1.0)
    assert (partitions[A].confirmed, known_until(partitions)) == (True, position_of(10, 1))


@pytest.mark.parametrize("position", [position_of(5, None), position_of(11, 1)], ids=["incomplete", "beyond the end"])
def test_a_reader_that_is_sent_a_log_again_is_outdated_if_that_has_forgotten_anything(position: int) -> None:
    partitions = opened(position)
    with pytest.raises(ReaderOutdated):
        partitions[A].apply_watermark(10, LogProof(1, 0, 10, forgotten=1), 1.0)
    partitions = opened(position)
    partitions[A].apply_watermark(10, LogProof(1, 0, 10), 1.0)
    assert partitions[A].confirmed


def test_a_reader_whose_place_was_cut_away_is_outdated_only_by_what_was_forgotten_since() -> None:
    partitions = opened(position_of(5, 1), begin=7)
    partitions[A].apply_watermark(10, LogProof(1, 7, 10, forgotten=5), 1.0)
    assert partitions[A].confirmed
    partitions = opened(position_of(5, 1), begin=7)
    with pytest.raises(ReaderOutdated):
        partitions[A].apply_watermark(10, LogProof(1, 7, 10, forgotten=6), 1.0)


def test_a_log_that_is_read_again_is_so_from_its_beginning_until_a_watermark_counts() -> None:
    """Else its old watermarks would look like those of another incarnation."""
    partitions = opened(position_of(10, 2))
    with pytest.raises(LogChanged):
        partitions[A].apply_watermark(10, LogProof(3, 4, 10), 1.0)
    for _ in range(2):
        partitions.begin({A: (0, 20)}, 2.0)
        assert (partitions[A].position, partitions[A].incarnation) == (0, None)
        partitions[A].apply_watermark(4, LogProof(2, 0, 4), 2.0)
        partitions[A].apply_watermark(10, LogProof(3, 4, 10), 3.0)
        partitions[A].advance(11, 3.0)
        assert (partitions[A].incarnation, known_until(partitions)) == (3, 0)
