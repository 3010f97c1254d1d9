import pytest

from learning.costs import ROLES
from tests.bench.modes.capacity import SLICE, Knee, Step, knee_of, quantile, queue_factor, slowest, write_cost_s


def steps(*p99s: float) -> list[Step]:
    return [Step(100.0 * number, 0.001, p99, 0.1) for number, p99 in enumerate(p99s, 1)]


def test_time_in_a_queue_grows_with_its_utilisation() -> None:
    factors = [queue_factor(utilisation, draws=50_000) for utilisation in (0.01, 0.5, 0.7, 0.9)]
    assert factors == sorted(factors)
    # Nearly nobody waits. The tail of M/D/1 at 0.7 is 4.6 / 0.67 after the service, in most slices less.
    assert factors[0] < 1.2
    assert 4.5 < factors[2] < 7.0


def test_knee_is_where_the_delay_passes_the_limit_for_good() -> None:
    assert knee_of(steps(1, 1, 3, 5), 2.0) == pytest.approx(250.0)
    # A single slow step is none.
    assert knee_of(steps(1, 9, 1, 3, 5), 2.0) == pytest.approx(350.0)
    assert knee_of(steps(1, 1, 1), 2.0) is None
    assert knee_of(steps(3, 5), 2.0) is None


def test_error_of_the_knee_is_in_percent_of_the_measured_one() -> None:
    assert Knee(80.0, 100.0, 7.0, []).error == pytest.approx(-20.0)
    assert Knee(80.0, None, 7.0, []).error is None


def test_quantile_is_of_the_sorted_values() -> None:
    assert quantile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert quantile([*map(float, range(101))]) == 99.0


def test_write_of_r1_costs_what_its_sends_cost() -> None:
    write_s, idle_s = write_cost_s(ROLES)
    # 277 of 300 clients have one of 50 endpoints of 200.
    assert write_s == pytest.approx(278 * 10e-6 + 430e-6 + 50 * 1.4e-6, rel=0.1)
    assert 0.002 < idle_s < 0.004


def test_what_keeps_writes_waiting_once_in_a_while_is_no_queue() -> None:
    usual = [1.0] * SLICE
    assert slowest([*usual * 3, *[9.0] * 20, *usual * 3]) == 1.0
    assert slowest([*usual, *[9.0] * 3 * SLICE]) == 9.0
    assert slowest([1.0, 2.0]) == 2.0
