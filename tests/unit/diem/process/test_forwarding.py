"""Addresses of clients behind proxies."""

from ipaddress import ip_network

import pytest
from structlog.testing import capture_logs

from diem.process.forwarding import UNKNOWN, ClientAddresses, client_address
from diem.process.listeners import is_loopback

PROXIES = (ip_network("10.0.0.0/8"), ip_network("fd00::/8"))
NGINX = (ip_network("127.0.0.1/32"),)


@pytest.mark.parametrize(
    ("peer", "header", "expected"),
    [
        ("192.0.2.7", None, "192.0.2.7"),
        ("192.0.2.7", "198.51.100.1", "192.0.2.7"),  # the peer is not a proxy of ours: it says what it likes
        ("10.0.0.1", None, "10.0.0.1"),
        ("10.0.0.1", "198.51.100.1", "198.51.100.1"),
        ("10.0.0.1", "127.0.0.1, 198.51.100.1", "198.51.100.1"),  # a forged entry is left of the true one
        ("10.0.0.1", "198.51.100.1, 10.9.9.9", "198.51.100.1"),
        ("10.0.0.1", "10.1.1.1, 10.2.2.2", "10.1.1.1"),
        ("10.0.0.1", "198.51.100.1, unknown", "10.0.0.1"),
        ("10.0.0.1", "198.51.100.1, unknown, 10.3.3.3", "10.3.3.3"),
        ("10.0.0.1", "198.51.100.1:4711", "198.51.100.1"),
        ("fd00::1", "[2001:db8::1]:4711", "2001:db8::1"),
        ("::ffff:10.0.0.1", "2001:db8::1", "2001:db8::1"),
        ("::ffff:192.0.2.7", None, "192.0.2.7"),
        ("10.0.0.1", "", "10.0.0.1"),
        ("10.0.0.1", ",,,", "10.0.0.1"),
    ],
)
def test_client_is_the_rightmost_address_that_is_not_a_trusted_proxy(
    peer: str, header: str | None, expected: str
) -> None:
    assert client_address(peer, header, PROXIES) == expected


def test_endless_forwarding_chain_is_cut() -> None:
    assert client_address("10.0.0.1", ",".join(["192.0.2.1"] + ["10.0.0.2"] * 100), PROXIES) == "10.0.0.2"


def test_unknown_client_is_not_on_this_machine() -> None:
    assert not is_loopback(UNKNOWN)


@pytest.mark.parametrize("field", ["198.51.100.1", "127.0.0.1", "", "nonsense"])
@pytest.mark.parametrize("peer", ["127.0.0.1", "::1", "::ffff:127.0.0.1"])
def test_client_behind_an_untrusted_proxy_of_this_machine_is_unknown(peer: str, field: str) -> None:
    assert client_address(peer, field, PROXIES) == UNKNOWN


@pytest.mark.parametrize("peer", ["127.0.0.1", "::1"])
def test_forwarded_and_via_fields_show_a_proxy_of_this_machine_too(peer: str) -> None:
    assert client_address(peer, None, PROXIES, relayed=True) == UNKNOWN
    assert client_address(peer, None, PROXIES) == peer


def test_client_of_this_machine_behind_a_trusted_proxy_is_known() -> None:
    assert client_address("127.0.0.1", "127.0.0.1", NGINX) == "127.0.0.1"
    assert client_address("127.0.0.1", "198.51.100.1", NGINX) == "198.51.100.1"


def test_trusted_proxy_marks_what_an_untrusted_one_forwarded_to_it() -> None:
    assert client_address("127.0.0.1", "127.0.0.1", NGINX, relayed=True) == UNKNOWN
    assert client_address("127.0.0.1", "198.51.100.1", NGINX, relayed=True) == "198.51.100.1"
    assert client_address("127.0.0.1", "bad, 127.0.0.1", NGINX) == UNKNOWN


def test_long_chain_within_this_machine_is_unknown() -> None:
    assert client_address("127.0.0.1", ",".join(["127.0.0.1"] * 40), NGINX) == UNKNOWN


def test_untrusted_proxies_are_warned_of_once_for_this_machine_and_once_for_others() -> None:
    addresses = ClientAddresses(PROXIES)
    with capture_logs() as logs:
        assert [addresses.resolve("127.0.0.1", "192.0.2.1", relayed=False) for _ in range(3)] == [UNKNOWN] * 3
        assert addresses.resolve("::1", None, relayed=True) == UNKNOWN
        assert [addresses.resolve("192.0.2.9", "192.0.2.1", relayed=False) for _ in range(3)] == ["192.0.2.9"] * 3
    assert [(log["log_level"], log["peer"]) for log in logs] == [("warning", "127.0.0.1"), ("warning", "192.0.2.9")]


def test_clients_of_trusted_proxies_and_direct_ones_are_no_reason_to_warn() -> None:
    addresses = ClientAddresses(PROXIES)
    with capture_logs() as logs:
        assert addresses.resolve("10.0.0.1", "192.0.2.1", relayed=True) == "192.0.2.1"
        assert addresses.resolve("127.0.0.1", None, relayed=False) == "127.0.0.1"
        assert addresses.resolve("::ffff:192.0.2.7", None, relayed=False) == "192.0.2.7"
        assert addresses.resolve("", None, relayed=False) == ""
    assert logs == []
