import pytest

from bridge.positions import ANSWERED_WITHIN, MARKED_WITHIN, STALLED_AFTER, Positions, start

A, B = "t/0", "t/1"


@pytest.mark.parametrize(
    ("position", "begin", "end", "expected"),
    [
        (None, 0, 10, 0),
        (None, 4, 10, 4),
        (5, 0, 10, 5),
        (10, 0, 10, 10),
        (0, 0, 0, 0),
        (11, 0, 10, 0),
        (11, 3, 10, 3),
        (2, 3, 10, 3),
    ],
)
def test_reading_starts_where_the_reader_stands_unless_the_log_is_not_the_one_it_read(
    position: int | None, begin: int, end: int, expected: int
) -> None:
    assert start(position, begin, end) == expected


def at(positions: dict[str, int], *, ends: dict[str, int], now: float = 0.0) -> Positions:
    result = Positions()
    result.begin({name: (0, end) for name, end in ends.items()}, positions, (), now)
    return result


def test_each_name_catches_up_once_at_the_end_that_its_log_had_in_the_beginning() -> None:
    positions = at({}, ends={A: 10, B: 0})
    assert positions.newly_caught_up() == [B], "an empty partition at once"
    positions.moved(A, 9, 1.0)
    assert positions.newly_caught_up() == []
    positions.heard(A, 1, 500, 1.0)
    positions.moved(A, 10, 1.0)
    assert positions.newly_caught_up() == [A]
    assert positions.newly_caught_up() == []
    assert positions.caught_up


def test_what_was_told_is_not_told_again_by_the_next_consumer() -> None:
    positions = Positions()
    positions.begin({A: (0, 10), B: (0, 10)}, {A: 4, B: 10}, [A], 0.0)
    assert positions.newly_caught_up() == [B]


def alive() -> Positions:
    positions = at({A: 10, B: 5}, ends={A: 10, B: 5})
    positions.newly_caught_up()
    assert positions.alive(0.0)
    return positions


def test_no_beat_before_everything_has_caught_up() -> None:
    positions = at({A: 10}, ends={A: 10, B: 5})
    positions.newly_caught_up()
    assert not positions.alive(0.0)


def test_no_beat_when_the_broker_of_one_partition_has_not_answered_for_three_seconds() -> None:
    positions = alive()
    positions.heard(A, 1, 10, 2.0)
    positions.heard(B, 1, 5, 2.0)
    positions.heard(A, 2, 10, 4.0)
    positions.heard(B, 1, 5, 4.0)
    assert positions.alive(2.0 + ANSWERED_WITHIN)
    assert not positions.alive(2.1 + ANSWERED_WITHIN)
    positions.heard(B, 2, 5, 6.0)
    assert positions.alive(6.0)


def test_an_answers_own_time_is_not_believed_only_that_it_is_another_answer() -> None:
    positions = alive()
    positions.heard(A, 9_999_999_999_999, 10, 1.0)
    positions.heard(B, 1, 5, 1.0)
    assert not positions.alive(1.1 + ANSWERED_WITHIN), "a wall clock that was ahead does not keep a dead broker alive"
    positions.heard(A, 7, 10, 5.0)
    positions.heard(B, 2, 5, 5.0)
    assert positions.alive(5.0), "nor does one that was set back bury a living one"


def test_no_beat_while_what_was_there_a_second_ago_is_not_written_yet() -> None:
    positions = alive()
    positions.heard(A, 1, 20, 1.0)
    assert positions.alive(1.0), "it has only just come"
    positions.look()
    assert not positions.alive(1.5)
    positions.moved(A, 20, 2.0)
    assert positions.alive(2.0)


def test_a_log_that_ends_before_what_was_read_has_gone_back() -> None:
    positions = alive()
    assert positions.went_back == []
    positions.heard(A, 1, 9, 1.0)
    assert positions.went_back == [A]


def test_records_may_arrive_before_the_new_end_is_heard() -> None:
    positions = alive()
    positions.moved(A, 12, 1.0)
    assert (positions.went_back, positions.lag, positions.next) == ([], 0, {A: 12, B: 5})


def idle(positions: Positions, until: float, *, ends: dict[str, int], since: float = 0.0) -> None:
    now = since
    while now <= until:
        for name, end in ends.items():
            positions.heard(name, int(now * 1000) + 1, end, now)
        now += 1.0


def test_an_idle_topic_is_not_stalled_nor_is_its_first_record_after_an_hour() -> None:
    positions = alive()
    idle(positions, 3600.0, ends={A: 10, B: 5})
    assert positions.stalled(3600.0) == []
    positions.heard(A, 1, 11, 3600.5)
    assert positions.stalled(3601.0) == []


def test_a_partition_with_something_to_read_and_no_progress_is_stalled_after_30_seconds() -> None:
    positions = alive()
    idle(positions, STALLED_AFTER - 1, ends={A: 11, B: 5})
    assert positions.stalled(STALLED_AFTER - 1) == []
    idle(positions, STALLED_AFTER, ends={A: 11, B: 5}, since=STALLED_AFTER)
    assert positions.stalled(STALLED_AFTER) == [A]


def test_progress_is_not_a_stall_however_far_the_end_is() -> None:
    positions = alive()
    for second in range(100):
        positions.heard(A, second, 10_000, float(second))
        positions.heard(B, second, 5, float(second))
        positions.moved(A, 11 + second, float(second))
        assert positions.stalled(float(second)) == []


def test_a_partition_that_nobody_answers_for_is_stalled_after_30_seconds() -> None:
    positions = alive()
    idle(positions, 40.0, ends={A: 10})
    assert positions.stalled(STALLED_AFTER - 1) == []
    assert positions.stalled(STALLED_AFTER) == [B]


def test_a_paused_link_is_no_stall() -> None:
    positions = alive()
    positions.watched_since = 100.0
    assert positions.stalled(100.0 + STALLED_AFTER - 1) == []
    assert positions.stalled(100.0 + STALLED_AFTER) == [A, B]


def test_new_partitions_are_read_from_their_beginning_and_catch_up_by_themselves() -> None:
    positions = alive()
    positions.add({"t/2": (0, 3), "t/3": (0, 0)}, {}, 1.0)
    assert positions.next == {A: 10, B: 5, "t/2": 0, "t/3": 0}
    assert positions.newly_caught_up() == ["t/3"]
    assert not positions.alive(1.0)
    positions.moved("t/2", 3, 1.0)
    assert positions.newly_caught_up() == ["t/2"]


def test_a_publisher_that_stops_marking_any_partition_ends_the_beats() -> None:
    positions = alive()
    for name in (A, B):
        positions.marked(name, 0.0)
    for second in range(1, 20):
        now = float(second)
        for name, end in ((A, 10), (B, 5)):
            positions.heard(name, second, end, now)
        if second <= 10:
            positions.marked(A, now)
        assert positions.alive(now) == (now <= MARKED_WITHIN), "B was marked at 0 for the last time"


def test_a_log_that_nobody_marks_is_alive_for_six_seconds() -> None:
    positions = alive()
    for now in (MARKED_WITHIN, MARKED_WITHIN + 1):
        for name, end in ((A, 10), (B, 5)):
            positions.heard(name, int(now), end, now)
        assert positions.alive(now) == (now <= MARKED_WITHIN)


def test_marks_of_partitions_that_are_gone_hold_nothing_up() -> None:
    marks: dict[str, float] = {}
    Positions(marks=marks).begin({A: (0, 0), B: (0, 0)}, {}, (), 0.0)
    smaller = Positions(marks=marks)
    smaller.begin({A: (0, 0)}, {}, (), 50.0)
    smaller.newly_caught_up()
    smaller.marked(A, 50.0)
    assert smaller.alive(50.0)


def test_a_partition_that_nobody_leads_holds_up_the_beats_and_not_the_others() -> None:
    positions = Positions()
    positions.begin({A: (0, 0)}, {}, (), 0.0, missing=[B])
    assert positions.newly_caught_up() == [A]
    assert not positions.alive(0.0)
    positions.add({B: (0, 5)}, {B: 5}, 1.0)
    assert positions.newly_caught_up() == [B], "it goes on at the reader's position"
    assert positions.alive(1.0)


def test_a_consumer_is_not_replaced_for_a_partition_that_nobody_leads() -> None:
    positions = alive()
    now = STALLED_AFTER + 1
    positions.heard(A, 9, 10, now)
    assert positions.stalled(now) == [B]
    assert positions.stalled(now, {B}) == []


def test_marks_outlive_the_consumer_that_read_them() -> None:
    marks: dict[str, float] = {}
    positions = Positions(marks=marks)
    positions.begin({A: (0, 0)}, {}, (), 0.0)
    positions.newly_caught_up()
    positions.marked(A, 0.0)
    later = Positions(marks=marks)
    later.begin({A: (0, 0)}, {}, (), 7.0)
    later.newly_caught_up()
    assert not later.alive(7.0)
    later.marked(A, 7.0)
    assert later.alive(7.0)


def test_a_name_that_is_forgotten_holds_nothing_up_and_begins_at_the_beginning_if_it_is_back() -> None:
    marks: dict[str, float] = {}
    positions = Positions(marks=marks)
    positions.begin({A: (0, 10), B: (0, 10)}, {A: 10, B: 4}, (), 0.0, missing=["t/2"])
    positions.newly_caught_up()
    assert not positions.alive(0.0)
    positions.forget([B, "t/2", "t/3"])
    assert (positions.next, positions.lag, marks) == ({A: 10}, 0, {A: 0.0})
    assert positions.alive(0.0)
    positions.add({B: (0, 10)}, {}, 1.0)
    assert positions.next == {A: 10, B: 0}
    assert not positions.alive(1.0)
