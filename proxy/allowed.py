"""Pure: which addresses the proxy may dial at all, whatever anybody tells it (docs/reliability.md 3.6)."""

import re
from collections.abc import Iterable
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import NamedTuple
from urllib.parse import urlsplit

_WITH_PORTS = re.compile(r"(?:\[([^]]+)\]|([^:]+))(?::(\d{1,5})(?:-(\d{1,5}))?)?")


class AllowedNetwork(NamedTuple):
    """A network, and the ports there, both ends included."""

    network: IPv4Network | IPv6Network
    low: int
    high: int


def parse_rule(text: str) -> AllowedNetwork:
    """Read ``CIDR``, ``CIDR:port`` or ``CIDR:low-high``; IPv6 in brackets when ports follow.

    Raises:
        ValueError: it is none of these.
    """
    match = _WITH_PORTS.fullmatch(text)
    cidr, low, high = (match[1] or match[2], match[3], match[4]) if match else (text, None, None)
    first = int(low) if low else 0
    last = int(high) if high else (first if low else 65535)
    if not 0 <= first <= last <= 65535:
        raise ValueError(f"{text!r} has no ports from 0 to 65535")
    return AllowedNetwork(ip_network(cidr), first, last)


class Allowed:
    """The allow-list. A URL passes when its host is an IP literal within a rule: names are never resolved."""

    def __init__(self, rules: Iterable[str]) -> None:
        self._rules = [parse_rule(rule) for rule in rules]

    def admits(self, url: str) -> bool:
        """Whether ``url`` may be dialled: ``ws://address:port/path``, and nothing else in it."""
        try:
            parts = urlsplit(url)
            address, port = ip_address(parts.hostname or ""), parts.port
        except ValueError:
            return False
        if parts.scheme != "ws" or port is None or "@" in parts.netloc or parts.query or parts.fragment:
            return False
        return any(rule.low <= port <= rule.high and address in rule.network for rule in self._rules)
