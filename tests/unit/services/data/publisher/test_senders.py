"""The ledger of a partition: what is ours is expected, what is not is noticed once."""

from services.data.publisher.senders import OffsetTracker


def looked_at(tracker: OffsetTracker) -> bool:
    found, tracker.foreign = tracker.foreign, False
    return found


def test_what_was_there_before_is_taken_as_it_is() -> None:
    tracker = OffsetTracker()
    tracker.compare_end(17)
    tracker.acknowledged(17, 3)
    tracker.compare_end(20)
    assert not looked_at(tracker)


def test_a_record_between_ours_is_noticed_when_ours_lands() -> None:
    tracker = OffsetTracker()
    tracker.compare_end(0)
    tracker.acknowledged(1, 2)
    assert looked_at(tracker)
    tracker.acknowledged(3, 1)
    assert not looked_at(tracker)


def test_a_record_after_ours_is_noticed_at_the_next_look() -> None:
    tracker = OffsetTracker()
    tracker.acknowledged(0, 2)
    tracker.compare_end(3)
    assert looked_at(tracker)
    tracker.compare_end(3)
    assert not looked_at(tracker)


def test_a_log_that_went_back_is_noticed() -> None:
    tracker = OffsetTracker()
    tracker.acknowledged(10, 2)
    tracker.compare_end(5)
    assert looked_at(tracker)


def test_without_an_offset_from_the_broker_the_worst_is_assumed() -> None:
    tracker = OffsetTracker()
    tracker.acknowledged(-1, 2)
    assert looked_at(tracker)
    tracker.acknowledged(7, 1)
    assert not looked_at(tracker)
