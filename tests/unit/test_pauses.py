"""Loops of tests pause at random."""

from tests.support.pauses import LONG_EVERY_S, LONG_S, SHORT_EVERY_S, SHORT_S, Pauses


def at_their_means() -> Pauses:
    return Pauses(lambda _low, high: high, lambda mean: mean, 100.0)


def test_short_and_long_pauses_come_at_their_own_times() -> None:
    pauses = at_their_means()
    assert pauses.due(100.0 + SHORT_EVERY_S / 2) == 0
    assert pauses.due(100.0 + SHORT_EVERY_S) == SHORT_S
    assert pauses.due(100.0 + LONG_EVERY_S) == LONG_S[1]


def test_the_next_pause_is_counted_from_the_end_of_the_last_one() -> None:
    pauses = at_their_means()
    now = 100.0 + LONG_EVERY_S
    ended = now + pauses.due(now)
    assert pauses.due(ended) == 0
    assert pauses.due(ended + SHORT_EVERY_S) == SHORT_S
    assert pauses.due(ended + LONG_EVERY_S) == LONG_S[1]
