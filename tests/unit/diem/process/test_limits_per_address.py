"""The request limit per address of anonymous readers, with a bound on addresses."""

from diem.process import limits
from diem.process.limits import AddressRateLimiter, RateLimit


def test_an_address_has_its_burst_and_then_its_rate() -> None:
    reading = AddressRateLimiter(RateLimit(2, 3), RateLimit(1000, 1000))
    assert [reading.take("192.0.2.1", 0) > 0 for _ in range(4)] == [False, False, False, True]
    assert reading.take("192.0.2.2", 0) == 0
    assert reading.take("192.0.2.1", 0.5) == 0


def test_a_network_of_ipv6_addresses_is_one_client() -> None:
    reading = AddressRateLimiter(RateLimit(1, 1), RateLimit(1000, 1000))
    assert reading.take("2001:db8::1", 0) == 0
    assert reading.take("2001:db8::2", 0) > 0


def test_wider_networks_have_several_times_the_rate() -> None:
    reading = AddressRateLimiter(RateLimit(1, 1), RateLimit(1000, 1000))
    in_56 = [reading.take(f"2001:db8:0:{number:x}::1", 0) for number in range(256)]
    assert in_56.count(0) == 4
    in_48 = [reading.take(f"2001:db8:0:{number:x}00::1", 0) for number in range(1, 256)]
    assert in_48.count(0) == 12
    assert reading.take("2001:db8:1::1", 0) == 0
    reading.refund("2001:db8::1", 0)
    assert reading.take("2001:db8:0:fe::1", 0) == 0


def test_this_machine_has_a_rate_of_its_own() -> None:
    reading = AddressRateLimiter(RateLimit(1, 1), RateLimit(1000, 50))
    assert [reading.take("127.0.0.5", 0) for _ in range(50)] == [0] * 50
    assert reading.take("127.0.0.5", 0) > 0


def test_addresses_are_bounded_and_the_longest_silent_is_forgotten() -> None:
    reading = AddressRateLimiter(RateLimit(1, 1), RateLimit(1, 1))
    for number in range(limits.MAX_RATED_ADDRESSES + 10):
        reading.take(f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}", 0)
    assert len(reading) == limits.MAX_RATED_ADDRESSES
    assert reading.take("10.0.0.0", 0) == 0
