"""Whether a map may take the place of an earlier one, by its epoch."""

from diem.links.epochs import BELIEVE_AFTER_S, EpochGuard


def test_an_older_map_is_believed_when_nobody_has_known_a_newer_one_for_a_minute() -> None:
    epochs = EpochGuard()
    assert epochs.admits(5, 0.0)
    assert [epochs.admits(4, now) for now in (10.0, 40.0, 69.9)] == [False] * 3
    assert epochs.admits(4, 10.0 + BELIEVE_AFTER_S)
    assert epochs.admits(4, 71.0)
    assert not epochs.admits(3, 72.0)


def test_answers_that_are_far_apart_say_nothing_of_the_time_between_them() -> None:
    epochs = EpochGuard()
    assert epochs.admits(5, 0.0)
    assert [epochs.admits(4, now) for now in (10.0, 3600.0, 7200.0)] == [False] * 3
    assert epochs.behind
    assert epochs.admits(5, 7201.0)
    assert not epochs.behind


def test_a_newer_answer_begins_the_minute_anew() -> None:
    epochs = EpochGuard()
    assert epochs.admits(5, 0.0)
    assert not epochs.admits(4, 10.0)
    assert epochs.admits(5, 40.0)
    assert not epochs.admits(4, 71.0)


def test_with_other_partitions_it_is_another_map_and_not_an_older_one() -> None:
    epochs = EpochGuard()
    assert epochs.admits(5, 0.0, partitions=12)
    assert not epochs.admits(4, 1.0, partitions=12)
    assert epochs.admits(1, 2.0, partitions=16)
