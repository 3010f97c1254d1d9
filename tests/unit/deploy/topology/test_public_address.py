"""Where a system listens, and the names by which clients know it."""

from pathlib import Path

import pytest

from deploy.topology import (
    CLIENT_ORIGINS,
    BadTopology,
    PublicAddress,
    origins_in,
    parse_listen,
    parse_networks,
    parse_origins,
)

CERTIFICATE = Path("/c.pem")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0.0.0.0", ("0.0.0.0", None)),
        ("0.0.0.0:443", ("0.0.0.0", 443)),
        ("localhost:8443", ("127.0.0.1", 8443)),
        ("::", ("::", None)),
        ("[::]", ("::", None)),
        ("[::]:443", ("::", 443)),
        ("2001:db8::1", ("2001:db8::1", None)),
    ],
)
def test_listen_is_an_address_with_or_without_a_port(text: str, expected: tuple[str, int | None]) -> None:
    assert parse_listen(text) == expected


@pytest.mark.parametrize(
    "text",
    ["", ":443", "diem.example", "diem.example:1", "0.0.0.0:", "0.0.0.0:0", "1.2.3.4:65536", "1.2.3.4:x", "[::]:x",
     "1.2.3.4:9999999"],
)  # fmt: skip
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(BadTopology, match="--listen is ADDRESS"):
        parse_listen(text)


def test_networks_and_origins_are_canonical_and_distinct() -> None:
    assert parse_networks(["10.0.0.0/8", "192.0.2.1", "10.0.0.0/8"], "--x") == ("10.0.0.0/8", "192.0.2.1/32")
    assert parse_origins(["https://A.example:443", "https://a.example"]) == ("https://a.example",)
    for wrong in ("10.0.0.1/8", "front.example", ""):
        with pytest.raises(BadTopology, match="--x: "):
            parse_networks([wrong], "--x")
    with pytest.raises(BadTopology, match="--origin: "):
        parse_origins(["a.example"])


@pytest.mark.parametrize(
    ("listen", "connect"),
    [("127.0.0.1", "127.0.0.1"), ("0.0.0.0", "127.0.0.1"), ("::", "127.0.0.1"), ("::1", "[::1]"),
     ("192.0.2.1", "192.0.2.1"), ("2001:db8::1", "[2001:db8::1]")],
)  # fmt: skip
def test_programs_of_this_machine_connect_where_it_listens(listen: str, connect: str) -> None:
    assert PublicAddress(listen).connect == connect


def test_names_of_the_certificate_are_hosts_and_origins_on_the_port_of_the_page() -> None:
    public = PublicAddress("0.0.0.0", CERTIFICATE, names=("diem.example", "2001:db8::1"))
    assert public.hosts == ("diem.example", "[2001:db8::1]")
    assert public.page_origins(8443) == (
        "https://diem.example:8443",
        "https://[2001:db8::1]:8443",
        "https://localhost:8443",
        "https://127.0.0.1:8443",
        "https://[::1]:8443",
    )
    assert public.page_origins(443)[0] == "https://diem.example"


def test_explicit_origins_replace_the_names_of_the_certificate() -> None:
    public = PublicAddress("192.0.2.1", CERTIFICATE, origins=("https://app.example",), names=("diem.example",))
    assert public.hosts == ("app.example", "192.0.2.1")
    assert public.page_origins(8443) == ("https://app.example", "https://192.0.2.1:8443")


DEV_SERVERS = ("http://localhost:5173", "http://[::1]:3000", "http://shop.localhost:4200")


def test_dev_servers_of_this_machine_are_admitted_beside_the_pages_own_names() -> None:
    here = PublicAddress(origins=DEV_SERVERS)
    assert here.page_origins(8080) == (
        *DEV_SERVERS, "http://localhost:8080", "http://127.0.0.1:8080", "http://[::1]:8080"
    )  # fmt: skip
    assert here.hosts == ()
    public = PublicAddress("192.0.2.1", CERTIFICATE, origins=DEV_SERVERS[:1], names=("diem.example",))
    assert public.hosts == ("diem.example", "192.0.2.1")
    assert public.page_origins(443) == (DEV_SERVERS[0], "https://diem.example", "https://192.0.2.1")
    both = PublicAddress(origins=("https://app.example", *DEV_SERVERS))
    assert (both.own_origins, both.other_origins) == (("https://app.example",), DEV_SERVERS)
    files = PublicAddress(origins=("null",), behind_proxy=True)
    assert (files.own_origins, files.other_origins, files.hosts) == ((), ("null",), ())


def test_behind_a_front_proxy_the_first_origin_of_this_machine_is_the_systems_own_if_there_is_no_other() -> None:
    here = PublicAddress(origins=DEV_SERVERS, behind_proxy=True)
    assert (here.own_origins, here.other_origins) == (DEV_SERVERS[:1], DEV_SERVERS[1:])
    assert here.hosts == ("localhost",)
    named = PublicAddress(origins=(*DEV_SERVERS, "https://app.example"), behind_proxy=True)
    assert (named.own_origins, named.other_origins) == (("https://app.example",), DEV_SERVERS)


def test_origins_of_the_environment_are_lists_of_either_form() -> None:
    environ = {
        "DIEM_WEBSOCKET_ORIGINS": "http://localhost:5173, https://A.example",
        "DIEM_PROXY_ORIGINS": '["https://b.example","https://a.example"]',
        "DIEM_DATA_CORS_ORIGINS": "*",
    }
    found = ("http://localhost:5173", "https://a.example", "https://b.example")
    assert origins_in(environ, CLIENT_ORIGINS) == found
    assert origins_in(environ, ["DIEM_DATA_CORS_ORIGINS"]) == ("*",)
    assert origins_in({}, CLIENT_ORIGINS) == ()
    for wrong in ("a.example", '["https://a.example"', "[1]"):
        with pytest.raises(BadTopology, match="DIEM_METADATA_ORIGINS: "):
            origins_in({"DIEM_METADATA_ORIGINS": wrong}, CLIENT_ORIGINS)


def test_without_tls_only_this_machine_or_a_front_proxy_connects() -> None:
    PublicAddress().check()
    PublicAddress("::1").check()
    PublicAddress("0.0.0.0", CERTIFICATE).check()
    PublicAddress("0.0.0.0", behind_proxy=True).check()
    for listen in ("0.0.0.0", "192.0.2.1", "::"):
        with pytest.raises(BadTopology, match=f"--listen {listen} would send everything unencrypted"):
            PublicAddress(listen).check()
    with pytest.raises(BadTopology, match="--tls-key needs"):
        PublicAddress(key=Path("/k")).check()
