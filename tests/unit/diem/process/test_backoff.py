import asyncio
import math
import random

from hypothesis import given
from hypothesis import strategies as st

from diem.process.backoff import Backoff, Outage, wait
from tests.support.patience import PATIENCE_S


def test_the_first_delay_is_none_where_that_is_wanted() -> None:
    backoff = Backoff(0.25, 5.0, immediate=True, rng=random.Random(1))
    assert backoff.next_delay() == 0
    assert 0 < backoff.next_delay() <= 0.5


@given(st.integers(0, 2**32), st.integers(1, 60))
def test_delays_grow_up_to_the_cap(seed: int, attempts: int) -> None:
    backoff = Backoff(0.25, 5.0, rng=random.Random(seed))
    for attempt in range(attempts):
        assert 0 <= backoff.next_delay() <= min(5.0, 0.25 * 2**attempt)


def test_delays_are_spread_over_the_whole_interval() -> None:
    backoff = Backoff(0.25, 5.0, rng=random.Random(2))
    delays = [backoff.next_delay() for _ in range(300)]
    assert min(delays[10:]) < 0.5
    assert max(delays) > 4.5


def test_a_failure_after_a_stable_time_counts_as_the_first() -> None:
    backoff = Backoff(0.25, 5.0, stable_s=10.0, immediate=True)
    backoff.next_delay()
    assert backoff.next_delay(9.9) > 0
    assert backoff.next_delay(10.0) == 0


def test_success_resets_the_count() -> None:
    backoff = Backoff(0.25, 5.0, immediate=True)
    backoff.next_delay()
    backoff.reset()
    assert backoff.next_delay() == 0


async def test_wait_ends_with_the_event_or_with_the_time() -> None:
    event = asyncio.Event()
    assert not await wait(event, 0.0)
    assert not await wait(event, -1.0)
    asyncio.get_running_loop().call_soon(event.set)
    async with asyncio.timeout(PATIENCE_S):
        assert await wait(event, math.inf)
        assert await wait(event, 1000.0)


def test_an_outage_lasts_until_a_connection_holds() -> None:
    outage = Outage(100.0, held_s=10.0)
    assert outage.seconds(103.0) == 3.0
    outage.lost(112.0, lasted_s=9.0)
    assert outage.seconds(115.0) == 15.0
    outage.lost(130.0, lasted_s=10.0)
    assert outage.seconds(131.0) == 1.0
