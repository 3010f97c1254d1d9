import random

from hypothesis import given
from hypothesis import strategies as st

from diem.process.backoff import Backoff, Outage


def test_first_restart_is_at_once() -> None:
    assert Backoff(random.Random(1)).next_delay(0.0) == 0


@given(st.integers(0, 2**32), st.integers(1, 60))
def test_later_delays_grow_up_to_the_cap(seed: int, attempts: int) -> None:
    backoff = Backoff(random.Random(seed), base_s=0.25, cap_s=5.0)
    backoff.next_delay(0.0)
    for attempt in range(1, attempts):
        assert 0 <= backoff.next_delay(0.0) <= min(5.0, 0.25 * 2**attempt)


def test_delays_are_spread_over_the_whole_interval() -> None:
    backoff = Backoff(random.Random(2), cap_s=5.0)
    delays = [backoff.next_delay(0.0) for _ in range(300)]
    assert min(delays[10:]) < 0.5
    assert max(delays) > 4.5


def test_long_run_is_forgiven() -> None:
    backoff = Backoff(random.Random(3), stable_s=10.0)
    backoff.next_delay(0.0)
    backoff.next_delay(9.9)
    assert backoff.next_delay(10.0) == 0


def test_an_outage_lasts_until_a_connection_holds() -> None:
    outage = Outage(100.0, held_s=10.0)
    assert outage.seconds(103.0) == 3.0
    outage.lost(112.0, lasted_s=9.0)
    assert outage.seconds(115.0) == 15.0
    outage.lost(130.0, lasted_s=10.0)
    assert outage.seconds(131.0) == 1.0
