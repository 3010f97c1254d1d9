"""TLS handshakes of an address: in progress, beside its open connections, and a second."""

from ipaddress import ip_network

import pytest

from diem.links.handshakes import HANDSHAKE_BURST, HandshakeEnd, HandshakeLimiter, HandshakeLimits
from diem.process.limits import AddressLimits, AdmissionResult, RateLimit

NEIGHBOURS = ("2001:db8::1", "2001:db8::ffff:2", "2001:db8:0:0:1::")


def limiter(limits: HandshakeLimits) -> HandshakeLimiter:
    return HandshakeLimiter("test", limits)


def test_handshakes_in_progress_of_an_address_are_bounded_and_those_that_end_make_room() -> None:
    handshakes = limiter(HandshakeLimits(connections=2))
    assert [handshakes.begin("192.0.2.1", 0) for _ in range(3)] == [None, None, AdmissionResult.ADDRESS_LIMIT]
    assert handshakes.begin("192.0.2.2", 0) is None, "another address"
    handshakes.end("192.0.2.1", HandshakeEnd.FAILED)
    assert handshakes.begin("192.0.2.1", 0) is None


def test_open_connections_count_where_they_are_known() -> None:
    handshakes = limiter(HandshakeLimits(connections=5, open_of={"192.0.2.1": 4}.__getitem__))
    assert handshakes.begin("192.0.2.1", 0) is None
    assert handshakes.begin("192.0.2.1", 0) is AdmissionResult.ADDRESS_LIMIT


def test_rate_of_an_address_is_bounded_and_refused_handshakes_do_not_count() -> None:
    handshakes = limiter(HandshakeLimits(connections=1, rate=lambda _: RateLimit(2, 4)))

    def tries(count: int, now: float) -> int:
        """Return how many of so many handshakes may begin; each ends at once."""
        begun = 0
        for _ in range(count):
            if handshakes.begin("192.0.2.1", now) is None:
                begun += 1
                handshakes.end("192.0.2.1", HandshakeEnd.COMPLETED)
        return begun

    assert tries(100, 0) == 4
    assert tries(100, 1) == 2
    assert handshakes.begin("192.0.2.1", 1) is AdmissionResult.ADDRESS_TOO_FAST
    assert handshakes.begin("192.0.2.2", 1) is None, "another address"


def test_ipv6_addresses_of_one_64_count_as_one() -> None:
    handshakes = limiter(HandshakeLimits(connections=2))
    verdicts = [handshakes.begin(address, 0) for address in NEIGHBOURS]
    assert verdicts == [None, None, AdmissionResult.ADDRESS_LIMIT]
    assert handshakes.begin("2001:db8:0:1::", 0) is None


def test_handshakes_of_a_56_are_bounded_by_four_times_the_limit() -> None:
    handshakes = limiter(HandshakeLimits(connections=2))
    addresses = [f"2001:db8:0:{number:x}::1" for number in range(256)]
    begun = [address for address in addresses if handshakes.begin(address, 0) is None]
    assert (len(begun), handshakes.pending) == (8, 8)
    for address in begun:
        handshakes.end(address, HandshakeEnd.COMPLETED)
    assert (handshakes.pending, len(handshakes._pending)) == (0, 0)


def test_addresses_of_this_machine_have_a_limit_of_their_own_and_trusted_proxies_none() -> None:
    trusted = (ip_network("198.51.100.0/24"),)
    handshakes = limiter(HandshakeLimits(connections=1, loopback=3, trusted=trusted))

    def begun(address: str) -> int:
        return sum(handshakes.begin(address, 0) is None for _ in range(1000))

    assert (begun("192.0.2.1"), begun("127.0.0.1"), begun("198.51.100.7")) == (1, 3, 1000)


@pytest.mark.parametrize("connections", [1, 50, 1000])
def test_all_clients_that_an_address_may_have_can_come_back_at_once(connections: int) -> None:
    clients = AddressLimits(connections=connections, connect_burst=max(50, connections))
    handshakes = limiter(HandshakeLimits.of_clients(clients, (), lambda _: 0))
    for _ in range(connections):
        assert handshakes.begin("192.0.2.1", 0) is None
        handshakes.end("192.0.2.1", HandshakeEnd.COMPLETED)


def test_a_proxy_can_redial_a_link_for_each_of_a_thousand_clients() -> None:
    handshakes = limiter(HandshakeLimits.of_links(64))
    for _ in range(1000):
        assert handshakes.begin("192.0.2.1", 0) is None
        handshakes.end("192.0.2.1", HandshakeEnd.COMPLETED)
    assert [handshakes.begin("192.0.2.1", 1) for _ in range(65)][-1] is AdmissionResult.ADDRESS_LIMIT


def test_nothing_is_kept_of_handshakes_that_have_ended_and_each_is_counted() -> None:
    handshakes = limiter(HandshakeLimits(connections=int(HANDSHAKE_BURST)))
    ends = [HandshakeEnd.COMPLETED, HandshakeEnd.COMPLETED, HandshakeEnd.FAILED, HandshakeEnd.EVICTED]
    for number, _ in enumerate(ends):
        assert handshakes.begin(f"192.0.2.{number}", 0) is None
    assert handshakes.pending == 4
    for number, outcome in enumerate(ends):
        handshakes.end(f"192.0.2.{number}", outcome)
    assert not handshakes.pending
    assert not handshakes._pending
    counted = {sample.labels: sample.value for sample in handshakes.samples()}
    assert counted == {
        ("test", "completed"): 2,
        ("test", "failed"): 1,
        ("test", "evicted"): 1,
        ("test", "refused"): 0,
    }
