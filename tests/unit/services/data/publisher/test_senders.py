"""The offset tracker: accepts our own records, and detects foreign ones once."""

from services.data.publisher.senders import OffsetTracker


def looked_at(tracker: OffsetTracker) -> bool:
    found, tracker.foreign = tracker.foreign, False
    return found


def test_records_from_before_the_start_are_accepted() -> None:
    tracker = OffsetTracker()
    tracker.compare_end(17)
    tracker.acknowledged(17, 3)
    tracker.compare_end(20)
    assert not looked_at(tracker)


def test_a_foreign_record_between_ours_is_detected_at_the_acknowledgement() -> None:
    tracker = OffsetTracker()
    tracker.compare_end(0)
    tracker.acknowledged(1, 2)
    assert looked_at(tracker)
    tracker.acknowledged(3, 1)
    assert not looked_at(tracker)


def test_a_foreign_record_after_ours_is_detected_at_the_next_check() -> None:
    tracker = OffsetTracker()
    tracker.acknowledged(0, 2)
    tracker.compare_end(3)
    assert looked_at(tracker)
    tracker.compare_end(3)
    assert not looked_at(tracker)


def test_a_truncated_log_is_detected() -> None:
    tracker = OffsetTracker()
    tracker.acknowledged(10, 2)
    tracker.compare_end(5)
    assert looked_at(tracker)


def test_a_missing_base_offset_counts_as_foreign() -> None:
    tracker = OffsetTracker()
    tracker.acknowledged(-1, 2)
    assert looked_at(tracker)
    tracker.acknowledged(7, 1)
    assert not looked_at(tracker)
