"""Rules for the addresses and ports that a process may dial; pure. ``allow_list`` applies them to names as well."""

import re
from ipaddress import IPv4Address, IPv6Address, ip_network
from typing import Final, NamedTuple

from diem.process.listeners import Network

_WITH_PORTS: Final = re.compile(r"(?:\[([^]]+)\]|([^:]+))(?::(\d{1,5})(?:-(\d{1,5}))?)?")
_LABEL: Final = r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_NAME: Final = re.compile(rf"(?:{_LABEL}\.)*(?=[0-9-]*[A-Za-z_]){_LABEL}\.?")


class AddressRule(NamedTuple):
    """A network or host name, and an inclusive range of ports."""

    host: Network | str
    low: int
    high: int

    def admits(self, address: IPv4Address | IPv6Address, port: int) -> bool:
        """Return whether an address and port match the rule; False if its host is a name."""
        return self.admits_port(port) and not isinstance(self.host, str) and address in self.host

    def admits_port(self, port: int) -> bool:
        """Return whether a port matches the rule."""
        return self.low <= port <= self.high


def is_host_name(text: str) -> bool:
    """Return whether a text is a host name, and neither an address nor a number that resolvers read as one."""
    return len(text) <= 253 and _NAME.fullmatch(text) is not None


def parse_rule(text: str) -> AddressRule:
    """Parse ``CIDR`` or ``NAME``, alone or with ``:port`` or ``:low-high``; IPv6 with ports is in brackets.

    Raises:
        ValueError: it is none of these.
    """
    match = _WITH_PORTS.fullmatch(text)
    host, low, high = (match[1] or match[2], match[3], match[4]) if match else (text, None, None)
    first = int(low) if low else 0
    last = int(high) if high else (first if low else 65535)
    if not 0 <= first <= last <= 65535:
        raise ValueError(f"{text!r} has no ports from 0 to 65535")
    return AddressRule(host if is_host_name(host) else ip_network(host), first, last)


def check_rules(rules: list[str]) -> list[str]:
    """Validate the rules of a setting. Raises ``ValueError``."""
    for rule in rules:
        parse_rule(rule)
    return rules
