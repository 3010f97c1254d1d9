import errno
import socket
from collections.abc import Iterator
from typing import NoReturn

import pytest

from diem.process import lifecycle
from diem.process.listeners import (
    AddressUnavailable,
    PortInUse,
    RefusedBind,
    bind,
    bind_all,
    bind_error,
    canonical_origin,
    check_bind,
    has_ipv6_loopback,
    host_of,
    is_loopback,
    origin_allowed,
    parse_address,
    web_origin,
)
from tests.support.patience import PATIENCE_S


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with bind("127.0.0.1", 0) as opened:
        yield opened


@pytest.mark.parametrize("address", ["127.0.0.1", "127.8.9.1", "::1", "[::1]", "localhost", "::ffff:127.0.0.1"])
def test_loopback_addresses_are_recognised(address: str) -> None:
    assert is_loopback(address)


@pytest.mark.parametrize(
    "address",
    [
        *("0.0.0.0", "::", "10.0.0.1", "localhost.example", "", "128.0.0.1"),
        *("127.0.0.1%2eevil", "127.0.0.1%lo", "[::1].evil.example", "[::1]x:80", "[127.0.0.1]", "127.0.0.1:80x"),
        *("localhost:1@evil", "127.0.0.1:1@evil", "[::1", "::1]", "[[::1]]", "127.0.0.1:\u0663"),
    ],
)
def test_other_addresses_are_not_loopback(address: str) -> None:
    assert not is_loopback(address)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("192.0.2.1:80", "192.0.2.1"),
        ("[2001:db8::1]:80", "2001:db8::1"),
        ("[2001:db8::1]", "2001:db8::1"),
        ("fe80::1%eth0", "fe80::1"),
        ("[fe80::1%25eth0]:1", "fe80::1"),
        ("[::ffff:192.0.2.1]:80", "192.0.2.1"),
    ],
)
def test_addresses_are_parsed_with_port_and_zone(text: str, address: str) -> None:
    assert str(parse_address(text)) == address


@pytest.mark.parametrize(
    ("text", "host"),
    [
        ("localhost", "localhost"),
        ("localhost:8080", "localhost"),
        ("localhost:", "localhost"),
        ("[::1]:80", "[::1]"),
        ("localhost:1@evil", None),
        ("[::1].evil.example", None),
        ("localhost:80:80", None),
        ("a b", None),
        ("a/b", None),
    ],
)
def test_host_is_what_stands_before_a_port_and_nothing_else(text: str, host: str | None) -> None:
    assert host_of(text) == host


@pytest.mark.parametrize("origin", ["http://[::1].evil.example", "http://localhost:1@evil", "http://a\\@localhost"])
def test_origin_with_more_than_a_host_and_a_port_is_none(origin: str) -> None:
    with pytest.raises(ValueError, match="origin is"):
        canonical_origin(origin)


def test_bind_beyond_the_machine_is_refused_without_authentication() -> None:
    with pytest.raises(RefusedBind, match=r"the REST listener would listen on 0\.0\.0\.0"):
        check_bind("0.0.0.0", authenticated=False, what="the REST listener")


def test_bind_is_accepted_on_loopback_or_with_authentication() -> None:
    check_bind("127.0.0.1", authenticated=False, what="x")
    check_bind("0.0.0.0", authenticated=True, what="x")


def test_bound_socket_listens_on_a_free_port_without_blocking(listener: socket.socket) -> None:
    assert not listener.getblocking()
    with socket.create_connection(listener.getsockname(), timeout=PATIENCE_S):
        pass


def test_localhost_is_both_loopback_addresses() -> None:
    sockets = bind_all("localhost", 0)
    try:
        names = [each.getsockname()[:2] for each in sockets]
        port = names[0][1]
        assert names == [("127.0.0.1", port), ("::1", port)][: 1 + has_ipv6_loopback()]
        with pytest.raises(PortInUse):
            bind_all("localhost", port)
    finally:
        for each in sockets:
            each.close()
    (alone,) = bind_all("127.0.0.1", 0)
    alone.close()


def test_port_in_use_is_one_clear_error(listener: socket.socket) -> None:
    port = listener.getsockname()[1]
    with pytest.raises(PortInUse, match=f"port {port} on 127.0.0.1 is taken"):
        bind("127.0.0.1", port)


@pytest.mark.parametrize("host", ["192.0.2.1", "nowhere.invalid"])
def test_address_that_may_come_later_is_worth_a_retry(host: str) -> None:
    with pytest.raises(AddressUnavailable, match=rf"cannot listen on {host}:0 now \(.*is its interface up") as raised:
        bind(host, 0)
    assert raised.value.retriable
    assert lifecycle.report(raised.value) == lifecycle.EXIT_FAILED, "systemd and supervisors restart it"


def test_a_name_without_an_address_is_reported_with_the_reason_of_the_resolver(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def unknown(*_: object, **__: object) -> NoReturn:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    with pytest.raises(AddressUnavailable, match="Name or service not known"):
        bind("nowhere.example", 0)


def test_privileged_port_is_a_fault_of_the_configuration_with_its_remedy() -> None:
    refused = bind_error("127.0.0.1", 443, PermissionError(errno.EACCES, "Permission denied"))
    assert "cannot listen on 127.0.0.1:443: Permission denied: ports below 1024 need CAP" in str(refused)
    assert lifecycle.report(refused) == lifecycle.EXIT_CONFIGURATION


@pytest.mark.parametrize("origin", ["http://localhost:8080", "http://127.0.0.1:8080", "http://[::1]:8080"])
def test_page_on_this_machine_may_connect_to_a_loopback_bind(origin: str) -> None:
    assert origin_allowed(origin, allowed=frozenset(), page_port=8080, loopback_bind=True)
    assert not origin_allowed(origin, allowed=frozenset(), page_port=8080, loopback_bind=False)


@pytest.mark.parametrize(
    "origin",
    [
        None,
        "",
        "null",
        "http://localhost",
        "http://localhost:8081",
        "https://localhost:8080",
        "http://localhost:80800",
        "http://localhost:8080.evil.example",
        "http://evil.example:8080",
        "http://localhost:8080/",
    ],
)
def test_foreign_or_missing_origin_is_not_allowed(origin: str | None) -> None:
    allowed = frozenset({"https://app.example"})
    assert not origin_allowed(origin, allowed=allowed, page_port=8080, loopback_bind=True)


def test_pages_of_files_may_connect_only_where_they_are_listed() -> None:
    assert canonical_origin("null") == "null"
    with pytest.raises(ValueError, match="any sandboxed frame"):
        web_origin("null")
    assert origin_allowed("null", allowed=frozenset({"null"}), page_port=None, loopback_bind=False)


def test_listed_origin_is_compared_exactly() -> None:
    allowed = frozenset({"https://app.example"})
    assert origin_allowed("https://app.example", allowed=allowed, page_port=None, loopback_bind=False)
    for other in ("https://app.example:444", "http://app.example", "https://sub.app.example"):
        assert not origin_allowed(other, allowed=allowed, page_port=None, loopback_bind=False)


def test_default_port_of_the_page_is_left_out_as_browsers_do() -> None:
    assert origin_allowed("http://localhost", allowed=frozenset(), page_port=80, loopback_bind=True)


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("https://App.Example", "https://app.example"),
        ("https://app.example:443", "https://app.example"),
        ("http://app.example:80", "http://app.example"),
        ("http://[::1]:8080", "http://[::1]:8080"),
    ],
)
def test_configured_origin_is_brought_into_the_browsers_form(text: str, canonical: str) -> None:
    assert canonical_origin(text) == canonical


@pytest.mark.parametrize(
    "text", ["app.example", "*", "https://", "ftp://a", "https://a/b", "https://u@a", "https://a?"]
)
def test_configured_origin_must_be_an_origin(text: str) -> None:
    with pytest.raises(ValueError, match="origin"):
        canonical_origin(text)
