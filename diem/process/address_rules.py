"""Rules that say which addresses and ports a process may dial; pure."""

import re
from ipaddress import IPv4Address, IPv6Address, ip_network
from typing import Final, NamedTuple

from diem.process.listeners import Network

_WITH_PORTS: Final = re.compile(r"(?:\[([^]]+)\]|([^:]+))(?::(\d{1,5})(?:-(\d{1,5}))?)?")


class AddressRule(NamedTuple):
    """A network and a range of ports, both ends included."""

    network: Network
    low: int
    high: int

    def admits(self, address: IPv4Address | IPv6Address, port: int) -> bool:
        """Return whether an address and port are within the rule."""
        return self.low <= port <= self.high and address in self.network


def parse_rule(text: str) -> AddressRule:
    """Parse ``CIDR``, ``CIDR:port`` or ``CIDR:low-high``; IPv6 with ports is in brackets.

    Raises:
        ValueError: it is none of these.
    """
    match = _WITH_PORTS.fullmatch(text)
    cidr, low, high = (match[1] or match[2], match[3], match[4]) if match else (text, None, None)
    first = int(low) if low else 0
    last = int(high) if high else (first if low else 65535)
    if not 0 <= first <= last <= 65535:
        raise ValueError(f"{text!r} has no ports from 0 to 65535")
    return AddressRule(ip_network(cidr), first, last)


def check_rules(rules: list[str]) -> list[str]:
    """Return rules of a setting, all of which are valid. Raises ``ValueError``."""
    for rule in rules:
        parse_rule(rule)
    return rules
