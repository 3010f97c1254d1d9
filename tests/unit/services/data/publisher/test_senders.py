"""The ledger of a partition: what is ours is expected, what is not is noticed once."""

from services.data.publisher.senders import OffsetTracker


def looked_at(ledger: OffsetTracker) -> bool:
    found, ledger.foreign = ledger.foreign, False
    return found


def test_what_was_there_before_is_taken_as_it_is() -> None:
    ledger = OffsetTracker()
    ledger.ends(17)
    ledger.landed(17, 3)
    ledger.ends(20)
    assert not looked_at(ledger)


def test_a_record_between_ours_is_noticed_when_ours_lands() -> None:
    ledger = OffsetTracker()
    ledger.ends(0)
    ledger.landed(1, 2)
    assert looked_at(ledger)
    ledger.landed(3, 1)
    assert not looked_at(ledger)


def test_a_record_after_ours_is_noticed_at_the_next_look() -> None:
    ledger = OffsetTracker()
    ledger.landed(0, 2)
    ledger.ends(3)
    assert looked_at(ledger)
    ledger.ends(3)
    assert not looked_at(ledger)


def test_a_log_that_went_back_is_noticed() -> None:
    ledger = OffsetTracker()
    ledger.landed(10, 2)
    ledger.ends(5)
    assert looked_at(ledger)


def test_without_an_offset_from_the_broker_the_worst_is_assumed() -> None:
    ledger = OffsetTracker()
    ledger.landed(-1, 2)
    assert looked_at(ledger)
    ledger.landed(7, 1)
    assert not looked_at(ledger)
