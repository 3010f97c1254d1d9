"""Servers that may be dialled: rules with networks and names, and URLs with addresses and names."""

import asyncio
from ipaddress import ip_address

import pytest

from diem.process import allow_list
from diem.process.address_rules import parse_rule
from diem.process.allow_list import Address, AllowList
from diem.process.clock import ManualClock


class Names:
    """Addresses of names, and the look-ups that there were."""

    def __init__(self, **addresses: str) -> None:
        self.addresses = {name.replace("_", "."): texts.split() for name, texts in addresses.items()}
        self.lookups: list[str] = []

    async def __call__(self, name: str) -> list[Address]:
        self.lookups.append(name)
        await asyncio.sleep(0)
        if name not in self.addresses:
            raise OSError("no such name")
        return [ip_address(text) for text in self.addresses[name]]


@pytest.mark.parametrize(
    ("rule", "url", "admitted"),
    [
        ("127.0.0.0/8", "ws://127.0.0.1:9101/ws", True),
        ("127.0.0.0/8:9101", "ws://127.0.0.1:9101/ws", True),
        ("127.0.0.0/8:9101", "ws://127.0.0.1:9102/ws", False),
        ("127.0.0.0/8:9101-9109", "ws://127.0.0.1:9109/ws", True),
        ("127.0.0.0/8:9101-9109", "ws://127.0.0.1:9110/ws", False),
        ("10.0.0.0/8", "ws://127.0.0.1:9101/ws", False),
        ("::1/128", "ws://[::1]:9101/ws", True),
        ("[::1/128]:9101", "ws://[::1]:9101/ws", True),
        ("[::1/128]:9101", "ws://[::1]:9102/ws", False),
        ("127.0.0.0/8", "ws://localhost:9101/ws", True),
        ("127.0.0.0/8:9101", "ws://localhost:9102/ws", False),
        ("pairs:9101", "ws://pair-0.pairs:9101/ws", True),
        ("pairs:9101", "ws://10.0.0.1:9101/ws", True),
        ("pairs:9101", "ws://10.0.0.1:9102/ws", False),
        ("pairs", "ws://127.1:9101/ws", False),
        ("127.0.0.0/8", "ws://127.1:9101/ws", False),
        ("127.0.0.0/8", "ws://2130706433:9101/ws", False),
        ("127.0.0.0/8", "ws://127.0.0.1/ws", False),
        ("127.0.0.0/8", "wss://127.0.0.1:9101/ws", True),
        ("127.0.0.0/8", "ws://user@127.0.0.1:9101/ws", False),
        ("127.0.0.0/8", "ws://127.0.0.1:9101/ws?x=1", False),
        ("127.0.0.0/8", "http://127.0.0.1:9101/ws", False),
        ("127.0.0.0/8", "ws://127.0.0.1:99999/ws", False),
        ("127.0.0.0/8", "nonsense", False),
    ],
)
def test_what_can_be_excluded_without_a_lookup_is(rule: str, url: str, *, admitted: bool) -> None:
    assert AllowList([rule]).may_admit(url) is admitted


@pytest.mark.parametrize(
    "rule",
    [
        "",
        "non sense",
        "127.0.0.1/8",
        "10.0.0.256",
        "127.0.0.0/8:x",
        "127.0.0.0/8:9-1",
        "name:70000",
        "-a",
        "a..b",
        "*.a",
    ],
)
def test_malformed_rule_is_refused(rule: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        parse_rule(rule)


@pytest.mark.parametrize(
    ("rules", "host", "port", "found"),
    [
        (["10.0.0.0/24"], "pair-0.pairs", 9101, "10.0.0.7"),
        (["10.0.0.0/24:9101"], "pair-0.pairs", 9102, None),
        (["10.0.1.0/24"], "pair-0.pairs", 9101, None),
        (["10.0.0.0/24"], "two.pairs", 9101, "10.0.0.8"),
        (["pairs:9101"], "10.0.0.7", 9101, "10.0.0.7"),
        (["pairs:9101"], "10.0.0.9", 9101, None),
        (["pairs:9101"], "10.0.0.7", 9102, None),
        (["pairs:9101"], "pair-0.pairs", 9101, "10.0.0.7"),
        (["gone.example", "pairs"], "10.0.0.7", 9101, "10.0.0.7"),
        (["gone.example"], "10.0.0.7", 9101, None),
    ],
)
async def test_names_in_urls_and_rules_are_resolved_and_addresses_compared(
    rules: list[str], host: str, port: int, found: str | None
) -> None:
    names = Names(pairs="10.0.0.7 10.0.0.8", two_pairs="192.0.2.1 10.0.0.8")
    names.addresses["pair-0.pairs"] = ["10.0.0.7"]
    address = await AllowList(rules, names).address(host, port)
    assert (None if address is None else str(address)) == found


async def test_addresses_in_networks_need_no_lookup() -> None:
    names = Names()
    assert await AllowList(["pairs", "127.0.0.0/8"], names).address("127.0.0.1", 9101) == ip_address("127.0.0.1")
    assert not names.lookups


@pytest.mark.parametrize("host", ["gone.example", "127.1", "2130706433", ""])
async def test_a_name_without_an_address_is_an_error(host: str) -> None:
    with pytest.raises(OSError, match=r".+"):
        await AllowList(["0.0.0.0/0"], Names()).address(host, 9101)


async def test_links_that_are_dialled_at_once_share_one_lookup_which_is_repeated_later() -> None:
    clock, names = ManualClock(), Names(a="10.0.0.7")
    allowed = AllowList(["10.0.0.0/8"], names, clock.monotonic)
    assert await asyncio.gather(*(allowed.address("a", 9101) for _ in range(5))) == [ip_address("10.0.0.7")] * 5
    assert await allowed.address("a", 9102) == ip_address("10.0.0.7")
    assert names.lookups == ["a"]
    names.addresses["a"] = ["10.0.0.8"]
    clock.advance(allow_list.KNOWN_FOR_S)
    assert await allowed.address("a", 9101) == ip_address("10.0.0.8")


async def test_a_lookup_that_failed_is_repeated_at_once() -> None:
    names = Names()
    allowed = AllowList(["10.0.0.0/8"], names)
    with pytest.raises(OSError, match="no such name"):
        await allowed.address("a", 9101)
    names.addresses["a"] = ["10.0.0.7"]
    assert await allowed.address("a", 9101) == ip_address("10.0.0.7")


async def test_who_gives_up_leaves_the_lookup_to_the_others() -> None:
    names = Names(a="10.0.0.7")
    allowed = AllowList(["10.0.0.0/8"], names)
    first, second = (asyncio.ensure_future(allowed.address("a", 9101)) for _ in "12")
    await asyncio.sleep(0)
    first.cancel()
    assert await second == ip_address("10.0.0.7")
    assert names.lookups == ["a"]


async def test_known_names_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allow_list, "MAX_NAMES", 2)
    names = Names(a="10.0.0.1", b="10.0.0.2", c="10.0.0.3")
    allowed = AllowList(["10.0.0.0/8"], names)
    for name in "abca":
        await allowed.address(name, 9101)
    assert len(allowed._lookups) == 2


async def test_the_system_resolves_names() -> None:
    found = await AllowList(["127.0.0.0/8", "::1/128"]).address("localhost", 9101)
    assert found is not None
    assert found.is_loopback
