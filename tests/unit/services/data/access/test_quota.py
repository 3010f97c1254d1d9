"""Quotas: never exceeded in any window, whatever is interleaved, lost or killed."""

from collections import Counter
from typing import NamedTuple

import hypothesis.strategies as st
import pytest
from hypothesis import given
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from services.data.access.plans import AccessPlan
from services.data.access.quota import Limit, Quota, QuotaOutcome, RateWindow, day_of, rate_limit_fields
from tests.walks import walk_settings

NOON = 1_700_000_000_000 // 86_400_000 * 86_400_000 + 43_200_000


def reserved(quota: Quota, day: int, store: Counter[int], amount: int) -> None:
    store[day] += amount
    quota.grant(day, amount, store[day])


@given(st.lists(st.floats(0, 40), min_size=1, max_size=300), st.integers(1, 20), st.floats(0, 1e6))
def test_no_interval_of_60_seconds_has_more_than_the_quota(steps: list[float], limit: int, start: float) -> None:
    quota, now, taken = Quota(AccessPlan("a", per_minute=limit)), start, list[float]()
    quota.grant(0, 1000, 1000)
    for step in steps:
        now += step / limit
        if quota.acquire(now, 0) is QuotaOutcome.ADMITTED:
            taken.append(now)
    for first in taken:
        assert sum(first <= at < first + 60 for at in taken) <= limit


@given(st.integers(1, 50), st.floats(0, 1e6))
def test_the_whole_quota_is_available_at_once_and_again_after_the_wait(limit: int, now: float) -> None:
    quota = Quota(AccessPlan("a", per_minute=limit))
    quota.grant(0, 1000, 1000)
    for _ in range(2):
        outcomes = [quota.acquire(now, 0) for _ in range(limit + 5)]
        assert outcomes == [QuotaOutcome.ADMITTED] * limit + [QuotaOutcome.OVER_MINUTE] * 5
        (minute,) = quota.limits(now, NOON)
        assert minute.remaining == 0
        assert 59 < minute.reset_s <= 61
        now += minute.reset_s


def test_the_second_that_began_60_seconds_ago_still_counts() -> None:
    quota = Quota(AccessPlan("a", per_minute=1))
    quota.grant(0, 10, 10)
    outcomes = [quota.acquire(now, 0) for now in (100.9, 160.0, 160.8, 161.0)]
    assert outcomes == [
        QuotaOutcome.ADMITTED,
        QuotaOutcome.OVER_MINUTE,
        QuotaOutcome.OVER_MINUTE,
        QuotaOutcome.ADMITTED,
    ]


def test_a_window_holds_at_most_61_cells() -> None:
    window = RateWindow()
    for tenth in range(10_000):
        window.add(tenth / 10)
        assert window.count(tenth / 10) <= 610
    assert window.count(10_000) == 0
    assert window.wait_s(10_000) == 0


class Flight(NamedTuple):
    """A reservation under way to the store."""

    day: int
    amount: int
    life: int


class Days(RuleBasedStateMachine):
    """One key, through kills of the process, failures and silence of the store, and steps of the clock."""

    @initialize(per_day=st.integers(1, 400), day=st.integers(20_000, 20_002))
    def begin(self, per_day: int, day: int) -> None:
        self.per_day = per_day
        self.day = day
        self.life = 0
        self.quota = Quota(AccessPlan("a", per_day=per_day))
        self.store: Counter[int] = Counter()
        self.served: Counter[int] = Counter()
        self.flight: Flight | None = None
        self.lost: Counter[int] = Counter()

    @rule(count=st.integers(1, 60))
    def ask(self, count: int) -> None:
        waiting = 0
        for _ in range(count):
            outcome = self.quota.acquire(0.0, self.day)
            self.served[self.day] += outcome is QuotaOutcome.ADMITTED
            waiting += outcome is QuotaOutcome.RESERVE
            if outcome is QuotaOutcome.OVER_DAY:
                assert self.store[self.day] >= self.per_day
        if self.flight is None and (waiting or self.quota.is_low(self.day)):
            self.flight = Flight(self.day, self.quota.block(waiting), self.life)

    @precondition(lambda self: self.flight is not None)
    @rule(committed=st.booleans(), answered=st.booleans())
    def settle(self, committed: bool, answered: bool) -> None:
        assert self.flight is not None
        flight, self.flight = self.flight, None
        if committed:
            self.store[flight.day] += flight.amount
        if committed and answered and flight.life == self.life:
            if flight.day != self.quota.day:
                self.lose()
            self.quota.grant(flight.day, flight.amount, self.store[flight.day])
        elif committed:
            self.lost[flight.day] += flight.amount

    def lose(self) -> None:
        """Reserved units that were not handed out may be void from now on."""
        self.lost[self.quota.day] += self.quota.spare

    @rule()
    def kill(self) -> None:
        self.lost[self.quota.day] += self.quota.release()[1]
        self.life += 1
        self.quota = Quota(AccessPlan("a", per_day=self.per_day))

    @rule()
    def restart(self) -> None:
        day, units = self.quota.release()
        self.store[day] -= units
        self.life += 1
        self.quota = Quota(AccessPlan("a", per_day=self.per_day))

    @rule(step=st.sampled_from((-1, 1, 1)))
    def step(self, step: int) -> None:
        self.day += step

    @invariant()
    def never_more_than_the_quota(self) -> None:
        for day, served in self.served.items():
            assert served <= self.per_day
            assert served <= self.store[day]

    def teardown(self) -> None:
        """The remaining units can be acquired: exactly the quota, except for lost units."""
        if self.flight is not None:
            self.settle(committed=False, answered=False)
        while (outcome := self.quota.acquire(0.0, self.day)) is not QuotaOutcome.OVER_DAY:
            self.served[self.day] += outcome is QuotaOutcome.ADMITTED
            if outcome is QuotaOutcome.RESERVE:
                reserved(self.quota, self.day, self.store, self.quota.block())
        assert self.per_day - self.lost[self.day] <= self.served[self.day] <= self.per_day


Days.TestCase.settings = walk_settings(examples=100)
TestDays = Days.TestCase


def test_exactly_the_quota_of_a_day_through_orderly_restarts() -> None:
    plan, store, served = AccessPlan("a", per_day=103), Counter[int](), 0
    while True:
        quota = Quota(plan)
        for _ in range(17):
            if (outcome := quota.acquire(0.0, 5)) is QuotaOutcome.RESERVE:
                reserved(quota, 5, store, quota.block())
                outcome = quota.acquire(0.0, 5)
            served += outcome is QuotaOutcome.ADMITTED
        if outcome is QuotaOutcome.OVER_DAY:
            break
        assert quota.used(5) == served
        day, units = quota.release()
        store[day] -= units
        assert store[5] == served
    assert served == 103


def test_units_of_a_day_cannot_be_used_on_the_next() -> None:
    quota = Quota(AccessPlan("a", per_day=100))
    quota.grant(5, 100, 100)
    assert quota.acquire(0.0, 5) is QuotaOutcome.ADMITTED
    quota.grant(6, 1, 100)
    assert [quota.acquire(0.0, 6) for _ in range(2)] == [QuotaOutcome.ADMITTED, QuotaOutcome.OVER_DAY]


def test_a_lower_plan_counts_from_what_was_used() -> None:
    quota = Quota(AccessPlan("a", per_day=10))
    quota.grant(5, 10, 500)
    assert quota.acquire(0.0, 5) is QuotaOutcome.OVER_DAY
    assert quota.used(5) == 10


def test_no_unit_is_consumed_when_either_limit_is_exceeded() -> None:
    quota = Quota(AccessPlan("a", per_minute=1, per_day=10))
    quota.grant(5, 10, 10)
    assert quota.acquire(0.0, 5) is QuotaOutcome.ADMITTED
    assert quota.acquire(1.0, 5) is QuotaOutcome.OVER_MINUTE
    assert quota.used(5) == 1


@pytest.mark.parametrize(
    ("per_day", "waiting", "block"), [(1, 1, 1), (40, 1, 1), (40, 30, 30), (40, 90, 40), (1000, 1, 20), (10**6, 1, 200)]
)
def test_a_block_is_a_small_part_of_the_quota(per_day: int, waiting: int, block: int) -> None:
    assert Quota(AccessPlan("a", per_day=per_day)).block(waiting) == block


def test_days_without_a_limit_are_counted() -> None:
    quota = Quota(AccessPlan("a"))
    assert quota.acquire(0.0, 5) is QuotaOutcome.RESERVE
    quota.grant(5, quota.block(), 1000 + quota.block())
    assert quota.acquire(0.0, 5) is QuotaOutcome.ADMITTED
    assert quota.used(5) == 1001
    assert quota.limits(0.0, NOON) == []


def test_rate_limit_headers_state_remaining_and_reset() -> None:
    quota, day = Quota(AccessPlan("a", per_minute=60, per_day=1000)), day_of(NOON)
    quota.grant(day, 20, 20)
    for now in (100.0, 100.5, 130.9):
        assert quota.acquire(now, day) is QuotaOutcome.ADMITTED
    assert quota.limits(130.9, NOON) == [Limit("minute", 60, 60, 57, 31), Limit("day", 1000, 86_400, 997, 43_200)]
    assert rate_limit_fields(quota.limits(130.9, NOON)) == {
        "RateLimit-Policy": '"minute";q=60;w=60, "day";q=1000;w=86400',
        "RateLimit": '"minute";r=57;t=31, "day";r=997;t=43200',
    }
    assert rate_limit_fields([]) == {}
