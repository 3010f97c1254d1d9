"""The time by which ages are measured follows a clock that is right, and one that steps only slowly."""

import pytest

from diem.process.clock import ManualClock
from services.data.limits import DAY_MS
from services.data.store.retention_clock import PACE, RetentionClock

DAY_S = DAY_MS // 1000


def test_a_clock_that_is_right_is_followed() -> None:
    clock = ManualClock()
    ages = RetentionClock(clock, 0)
    for seconds in (0, 0.25, 3600, 30 * DAY_S):
        clock.advance(seconds)
        assert ages.now_ms() == ages.reached_ms() == clock.wall_ms()


def test_a_clock_that_goes_ahead_and_comes_back_moves_it_by_ten_times_the_time_between() -> None:
    clock = ManualClock()
    ages = RetentionClock(clock, 0)
    began = ages.now_ms()
    clock.step_wall(8 * DAY_S)
    assert ages.now_ms() == began
    clock.advance(60)
    assert ages.now_ms() == began + 60_000 * PACE
    clock.step_wall(-8 * DAY_S)
    assert ages.now_ms() == clock.wall_ms() == began + 60_000
    assert ages.reached_ms() == began + 60_000 * PACE, "it never falls"


def test_the_time_of_a_standstill_is_caught_up_with() -> None:
    clock = ManualClock()
    ages = RetentionClock(clock, clock.wall_ms() - 7 * DAY_MS)
    clock.advance(7 * DAY_S / PACE)
    assert ages.now_ms() < clock.wall_ms()
    clock.advance(DAY_S)
    assert ages.now_ms() == clock.wall_ms()


@pytest.mark.parametrize("before_s", [-40 * 365 * DAY_S, -DAY_S])
def test_a_clock_that_goes_back_and_returns_leaves_no_delay(before_s: int) -> None:
    clock = ManualClock()
    ages = RetentionClock(clock, 0)
    ages.now_ms()
    clock.step_wall(before_s)
    assert ages.now_ms() == clock.wall_ms()
    clock.step_wall(-before_s)
    assert ages.now_ms() == clock.wall_ms()


def test_a_store_that_was_made_before_the_clock_was_set_begins_with_the_first_time_that_may_be_right() -> None:
    clock = ManualClock(wall_ms=0)
    ages = RetentionClock(clock, 0)
    assert ages.now_ms() == 0
    clock.step_wall(1_700_000_000)
    assert ages.now_ms() == 1_700_000_000_000
