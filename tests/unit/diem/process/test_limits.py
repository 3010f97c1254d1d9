import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diem.process.limits import AddressTable, Admission, ErrorWindow, TokenBucket, Verdict, address_key


def test_bucket_gives_its_burst_and_then_its_rate() -> None:
    bucket = TokenBucket(rate_per_s=2.0, burst=3.0)
    assert [bucket.take(10.0) for _ in range(4)] == [True, True, True, False]
    assert not bucket.take(10.4)
    assert bucket.take(10.5)
    assert not bucket.take(10.5)


def test_bucket_never_holds_more_than_its_burst() -> None:
    bucket = TokenBucket(rate_per_s=1.0, burst=2.0)
    assert [bucket.take(1e6) for _ in range(3)] == [True, True, False]


def test_default_bucket_is_20_at_once_and_100_a_minute() -> None:
    bucket = TokenBucket()
    assert sum(bucket.take(0.0) for _ in range(50)) == 20
    assert sum(bucket.take(second / 10) for second in range(1, 601)) == 100


def test_bucket_says_when_to_come_again() -> None:
    bucket = TokenBucket(rate_per_s=0.5, burst=1.0)
    assert bucket.retry_after(5.0) == 0
    bucket.take(5.0)
    assert bucket.retry_after(5.5) == pytest.approx(1.5)


@given(
    st.floats(0.1, 50),
    st.integers(1, 20),
    st.lists(st.floats(0, 3), max_size=60),
)
def test_bucket_equals_counting_tokens(rate: float, burst: int, gaps: list[float]) -> None:
    bucket = TokenBucket(rate, float(burst))
    tokens, now = float(burst), 100.0
    for gap in gaps:
        now += gap
        tokens = min(float(burst), tokens + gap * rate)
        if abs(tokens - 1) < 1e-6:
            return  # within rounding of the threshold the two may differ
        expected = tokens >= 1
        assert bucket.take(now) is expected
        tokens -= expected


def test_error_window_trips_at_the_limit_within_the_window() -> None:
    window = ErrorWindow(limit=3, seconds=60)
    assert [window.add(now) for now in (0, 30, 59)] == [False, False, True]


def test_error_window_forgets() -> None:
    window = ErrorWindow(limit=3, seconds=60)
    assert [window.add(now) for now in (0, 30, 60, 89, 91)] == [False, False, False, True, True]


def test_error_window_is_bounded_and_free_before_the_first_error() -> None:
    window = ErrorWindow()
    assert window._times is None
    for now in range(1000):
        window.add(now * 10.0)
    assert window._times is not None
    assert len(window._times) == 20


def test_limits_of_a_connection_are_small() -> None:
    assert sys.getsizeof(TokenBucket()) + sys.getsizeof(ErrorWindow()) <= 128


def test_address_has_a_number_of_connections() -> None:
    table = AddressTable(limit=2)
    assert [table.admit("192.0.2.1") for _ in range(3)] == [True, True, False]
    assert table.admit("192.0.2.2")
    table.release("192.0.2.1")
    assert table.admit("192.0.2.1")


def test_address_table_is_bounded_and_empties() -> None:
    table = AddressTable(limit=2, max_addresses=1)
    assert table.admit("192.0.2.1")
    assert not table.admit("192.0.2.2")
    assert table.admit("192.0.2.1")
    table.release("192.0.2.1")
    table.release("192.0.2.1")
    assert len(table) == 0
    assert table.admit("192.0.2.2")


def test_ipv6_network_counts_as_one_address() -> None:
    assert address_key("2001:db8::1") == address_key("2001:db8::ffff:1")
    assert address_key("2001:db8::1") != address_key("2001:db8:0:1::1")
    assert address_key("192.0.2.1") == "192.0.2.1"
    assert address_key("fe80::1%eth0") == address_key("fe80::2")
    assert address_key("not:an:address") == "not:an:address"


def admission(per_address: int = 10, cap: int = 10, burst: float = 10.0) -> Admission:
    return Admission(AddressTable(per_address), cap, TokenBucket(1.0, burst))


def test_full_process_refuses_with_503() -> None:
    gate = admission(cap=1)
    assert gate.admit("a", 0) is Verdict.ADMITTED
    assert gate.admit("b", 0) is Verdict.PROCESS_FULL
    gate.release("a")
    assert gate.open == 0
    assert gate.admit("b", 0) is Verdict.ADMITTED
    assert Verdict.PROCESS_FULL.status == 503


def test_too_many_new_connections_are_refused_and_not_counted() -> None:
    gate = admission(burst=1.0)
    assert gate.admit("a", 0) is Verdict.ADMITTED
    assert gate.admit("b", 0) is Verdict.TOO_FAST
    assert gate.open == 1
    assert Verdict.TOO_FAST.status == 503


def test_address_beyond_its_limit_does_not_use_up_the_rate() -> None:
    gate = admission(per_address=1, burst=2.0)
    assert gate.admit("a", 0) is Verdict.ADMITTED
    assert {gate.admit("a", 0) for _ in range(5)} == {Verdict.ADDRESS_LIMIT}
    assert gate.admit("b", 0) is Verdict.ADMITTED
    assert Verdict.ADDRESS_LIMIT.status == 429
