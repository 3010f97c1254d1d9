"""Addresses of clients behind proxies, from the header fields of forwarded requests."""

from collections.abc import Sequence
from typing import Final

import structlog

from diem.process.listeners import Network, canonical_address, is_loopback, parse_address

MAX_HOPS: Final = 32
"""Maximum number of X-Forwarded-For entries read; no real chain of proxies is longer."""
UNKNOWN: Final = "unknown"
"""Address of a client behind an untrusted proxy of this machine (the identifier of RFC 7239 section 6.2).

It is not a loopback address, so such clients get none of the rights of this machine.
"""
_logger = structlog.get_logger("process")


def client_address(peer: str, x_forwarded_for: str | None, trusted: Sequence[Network], *, relayed: bool = False) -> str:
    """Return the address of the client behind trusted proxies.

    It is the rightmost address of X-Forwarded-For other than a trusted proxy's. The header counts only if the peer is
    trusted, and only up to the first non-address from the right: the rest may be forged. A loopback address with
    entries left, or with another trace of a proxy, is :data:`UNKNOWN`.

    Args:
        peer: address of the other end of the connection.
        x_forwarded_for: all fields of this name, joined with commas; None if there are none.
        trusted: networks of the trusted proxies.
        relayed: the request has a Forwarded or Via field.
    """
    current = parse_address(peer)
    if current is None:
        return peer
    hops = [] if x_forwarded_for is None else x_forwarded_for.rsplit(",", MAX_HOPS)
    unread = len(hops)
    for hop in reversed(hops[-MAX_HOPS:]):
        if not any(current in network for network in trusted):
            break
        parsed = parse_address(hop.strip())
        if parsed is None:
            break
        current = parsed
        unread -= 1
    return UNKNOWN if (unread or relayed) and current.is_loopback else str(current)


class ClientAddresses:
    """Resolves the addresses of clients; logs a warning when an untrusted proxy forwards a request.

    The warning comes once for proxies of this machine and once for others, so that requests cannot fill the log.
    """

    def __init__(self, trusted: Sequence[Network] = ()) -> None:
        self._trusted = tuple(trusted)
        self._warned: set[bool] = set()

    def resolve(self, peer: str, x_forwarded_for: str | None, *, relayed: bool) -> str:
        """Return the address of a client (see :func:`client_address`)."""
        if x_forwarded_for is None and not relayed:
            return canonical_address(peer)
        address = client_address(peer, x_forwarded_for, self._trusted, relayed=relayed)
        if address == UNKNOWN or not self._trusts(peer):
            self._warn(peer)
        return address

    def _trusts(self, peer: str) -> bool:
        parsed = parse_address(peer)
        return parsed is None or any(parsed in network for network in self._trusted)

    def _warn(self, peer: str) -> None:
        here = is_loopback(peer)
        if here in self._warned:
            return
        self._warned.add(here)
        _logger.warning(
            "a proxy that is not trusted forwards requests: its clients share one address, and have no rights of this "
            "machine (name it with --front-proxy, or in TRUSTED_PROXIES)",
            peer=peer,
        )
