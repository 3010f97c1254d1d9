import pytest

from diem.process.clock import Clock, ManualClock, SystemClock, until_next


def test_manual_clock_moves_both_hands_together() -> None:
    clock = ManualClock(monotonic=5.0, wall_ms=1_000)
    clock.advance(1.5)
    assert (clock.monotonic(), clock.wall_ms()) == (6.5, 2_500)


def test_manual_clock_steps_the_wall_alone() -> None:
    clock = ManualClock(monotonic=5.0, wall_ms=1_000_000)
    clock.step_wall(-10)
    assert (clock.monotonic(), clock.wall_ms()) == (5.0, 990_000)


def test_manual_clock_refuses_to_go_back() -> None:
    with pytest.raises(ValueError, match="cannot go back"):
        ManualClock().advance(-0.1)


def test_system_clock_returns_milliseconds_and_never_goes_back() -> None:
    clock: Clock = SystemClock()
    first = clock.monotonic()
    assert clock.monotonic() >= first
    assert 1_600_000_000_000 < clock.wall_ms() < 10_000_000_000_000


@pytest.mark.parametrize(
    ("now", "left_s"), [(0.0, 1.0), (7.25, 0.75), (7.5, 0.5), (7.999, 1.001), (7.75, 1.25), (8.001, 0.999)]
)
def test_timers_of_a_period_meet_and_are_not_due_twice_at_once(now: float, left_s: float) -> None:
    assert until_next(now, 1.0) == pytest.approx(left_s)
