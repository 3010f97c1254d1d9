"""The servers that a process may dial, by address: names in URLs and rules are resolved, and the results checked.

Callers must connect to the checked address, because the name may resolve differently next time.
"""

import asyncio
import contextlib
import socket
import time
from collections.abc import Awaitable, Callable, Iterable
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from diem.process.address_rules import is_host_name, parse_rule

KNOWN_FOR_S: Final = 2.0
"""Seconds to cache the addresses of a name: many links to one server are dialled at once."""
MAX_NAMES: Final = 1024
"""Maximum number of cached names; beyond it, the cache is cleared."""

Address = IPv4Address | IPv6Address
Resolve = Callable[[str], Awaitable[list[Address]]]
"""Returns the addresses of a name. Raises ``OSError``."""


async def resolve(name: str) -> list[Address]:
    """Return the addresses of a name by the system's resolver. Raises ``OSError``."""
    found = await asyncio.get_running_loop().getaddrinfo(name, None, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
    return [ip_address(str(each[4][0]).partition("%")[0]) for each in found]


class _Lookup(NamedTuple):
    addresses: "asyncio.Future[list[Address]]"
    until: float


class AllowList:
    """The rules of one setting (``address_rules``).

    Args:
        rules: valid ones.
        resolve: looks up a name.
        clock: returns monotonic seconds.
    """

    def __init__(
        self, rules: Iterable[str], resolve: Resolve = resolve, clock: Callable[[], float] = time.monotonic
    ) -> None:
        parsed = [parse_rule(rule) for rule in rules]
        self._rules = [rule for rule in parsed if not isinstance(rule.host, str)]
        self._names = [(rule.host, rule) for rule in parsed if isinstance(rule.host, str)]
        self._resolve = resolve
        self._clock = clock
        self._lookups: dict[str, _Lookup] = {}

    def may_admit(self, url: str) -> bool:
        """Return whether ``url`` may be dialled, as far as known without resolving names.

        It must have the form ``ws(s)://host:port/path``.
        """
        try:
            parts = urlsplit(url)
            host, port = parts.hostname or "", parts.port
        except ValueError:
            return False
        if parts.scheme not in {"ws", "wss"} or port is None or "@" in parts.netloc or parts.query or parts.fragment:
            return False
        if any(rule.admits_port(port) for _, rule in self._names):
            return is_host_name(host) or _literal(host) is not None
        literal = _literal(host)
        if literal is None:
            return is_host_name(host) and any(rule.admits_port(port) for rule in self._rules)
        return any(rule.admits(literal, port) for rule in self._rules)

    async def address(self, host: str, port: int) -> Address | None:
        """Return the address at which to dial ``host``; None if no rule admits any of its addresses.

        Raises:
            OSError: the name has no address, or cannot be resolved now.
        """
        literal = _literal(host)
        for address in [literal] if literal is not None else await self._addresses(host):
            if any(rule.admits(address, port) for rule in self._rules):
                return address
            for name, rule in self._names:
                if rule.admits_port(port) and await self._is_named(address, name):
                    return address
        return None

    async def _is_named(self, address: Address, name: str) -> bool:
        with contextlib.suppress(OSError):  # another rule may admit it
            return address in await self._addresses(name)
        return False

    async def _addresses(self, name: str) -> list[Address]:
        if not is_host_name(name):
            raise OSError(f"{name!r} is not the name of a host")
        known = self._lookups.get(name)
        if known is None or (known.addresses.done() and (_failed(known.addresses) or self._clock() >= known.until)):
            if len(self._lookups) >= MAX_NAMES:
                self._lookups.clear()
            known = _Lookup(asyncio.ensure_future(self._resolve(name)), self._clock() + KNOWN_FOR_S)
            # Retrieved, as all waiters may have given up.
            known.addresses.add_done_callback(_failed)
            self._lookups[name] = known
        return await asyncio.shield(known.addresses)


def _failed(lookup: "asyncio.Future[list[Address]]") -> bool:
    return lookup.cancelled() or lookup.exception() is not None


def _literal(host: str) -> Address | None:
    try:
        return ip_address(host)
    except ValueError:
        return None
