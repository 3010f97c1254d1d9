"""The offset tracker: accepts our own records, detects foreign ones once, and knows what the log has."""

from diem.protocol.watermark import LogProof
from services.data.publisher.offsets import Extent, OffsetTracker, decode_extents, encode_extents


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


def test_a_missing_base_offset_counts_as_foreign() -> None:
    tracker = OffsetTracker()
    tracker.acknowledged(-1, 2)
    assert looked_at(tracker)
    tracker.acknowledged(7, 1)
    assert not looked_at(tracker)


def complete(next_: int = 10) -> OffsetTracker:
    """A log that has everything from offset 4 on."""
    tracker = OffsetTracker(Extent(3, 4, next_))
    tracker.compare_end(next_)
    return tracker


def test_everything_is_sent_before_the_first_watermark_of_a_log() -> None:
    tracker = OffsetTracker()
    assert (tracker.incomplete, tracker.proof(0)) == (True, None)
    tracker.compare_end(7)
    tracker.resending()
    assert (tracker.incomplete, tracker.proof(2)) == (False, LogProof(1, 7, 9))


def test_a_watermark_proves_what_was_sent_before_it() -> None:
    tracker = complete()
    assert tracker.proof(0) == LogProof(3, 4, 10)
    tracker.acknowledged(10, 5)
    assert tracker.proof(1) == LogProof(3, 4, 16)


def test_a_log_cut_before_its_complete_part_is_complete_again_once_everything_was_sent() -> None:
    tracker = complete()
    tracker.compare_begin(4)
    assert not tracker.incomplete
    tracker.compare_begin(5)
    assert (tracker.incomplete, tracker.proof(0)) == (True, None)
    tracker.resending()
    assert tracker.proof(0) == LogProof(3, 10, 10), "the records before were not lost: the same incarnation"


def test_a_log_that_ends_early_or_acknowledges_an_earlier_offset_is_another_incarnation() -> None:
    shorter, earlier = complete(), complete()
    shorter.compare_end(5)
    earlier.acknowledged(3, 2)
    for tracker in (shorter, earlier):
        assert (tracker.incomplete, tracker.proof(0)) == (True, None)
        tracker.resending()
        assert tracker.proof(0) == LogProof(4, 5, 5)


def test_after_a_reconnect_more_records_are_accepted_and_fewer_are_not() -> None:
    tracker = complete()
    tracker.reconnected()
    tracker.compare_end(12)
    assert not tracker.incomplete
    tracker.reconnected()
    tracker.compare_end(11)
    assert tracker.incomplete


def test_the_next_process_sends_everything_unless_a_watermark_proved_the_log_complete() -> None:
    tracker = complete()
    tracker.compare_begin(9)
    tracker.resending()
    proof = tracker.proof(0)
    assert proof is not None
    assert tracker.extent == Extent(3, None, 10)
    tracker.acknowledged(10, 1)
    tracker.proved(proof)
    assert tracker.extent == Extent(3, 10, 11)


def test_extents_are_read_as_they_were_kept() -> None:
    extents = {0: Extent(1, None, 4), -1: Extent(2, 3, 9)}
    assert decode_extents(encode_extents(extents)) == extents
    assert decode_extents("") == {}, "of earlier releases"
