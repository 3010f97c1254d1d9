"""Loads: frames, sends that merge them, and growth."""

import pytest

from learning.modes.load import Load, touched

LOAD = Load(clients=1000, endpoints=200, updates=100, subscriptions=10, batch=20)


@pytest.mark.parametrize(("parts", "draws", "expected"), [(1, 5, 1.0), (4, 1, 1.0), (4, 2, 1.75), (12, 1e6, 12.0)])
def test_expected_parts_that_draws_hit(parts: int, draws: float, expected: float) -> None:
    assert touched(parts, draws) == pytest.approx(expected)


def test_an_update_has_the_mean_subscribers_of_an_endpoint_unless_they_are_given() -> None:
    assert (LOAD.frames_per_update, LOAD.frames) == (50.0, 5000.0)
    assert Load(1000, 200, 100, subscribers=3.0).frames == 300.0
    assert Load(0, 0, 0).frames == 0.0


def test_frames_of_a_write_share_sends_and_pieces_of_a_write_do_not() -> None:
    merged, apart = LOAD.sends(), LOAD.sends(LOAD.batch)
    # Each client is sent one update of a write on average: some two, some none.
    assert merged == pytest.approx(LOAD.writes * LOAD.clients * (1 - 0.95**20))
    assert merged < LOAD.sends(5) < apart <= LOAD.frames
    # A write has no more pieces than updates.
    assert LOAD.sends(1000) == apart


def test_sends_are_never_more_than_frames_and_all_of_them_where_updates_come_alone() -> None:
    alone = Load(1000, 200, 100, 0.02, batch=1)
    assert alone.sends() == pytest.approx(alone.frames, rel=0.01)


def test_growth_keeps_the_subscribers_of_an_endpoint_and_scaling_does_not() -> None:
    assert LOAD.grown(3).frames == pytest.approx(3 * LOAD.frames)
    assert LOAD.scaled(3000, 100).frames == pytest.approx(3 * LOAD.frames)
    given = Load(1000, 200, 100, subscribers=5.0)
    assert given.scaled(3000, 200).frames == pytest.approx(6 * given.frames)
    assert given.scaled(1000, 100) == given
