"""Who may open a client connection: origin, address behind trusted proxies, and capacity (reliability S2, S13, S18)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network

from websockets.datastructures import Headers, MultipleValuesError

from diem.links.acceptor import Reply
from diem.process.edge_settings import EdgeSettings
from diem.process.limits import AddressTable, Admission, TokenBucket, Verdict
from diem.process.listeners import client_address, is_loopback, origin_allowed

STRIKES = 3
"""Rate violations of one address within a minute after which it is told to stay away (1008 instead of 4003)."""
STRIKE_SECONDS = 60.0
MAX_STRIKES = 4096


@dataclass(frozen=True, slots=True)
class GateRules:
    """What a gate lets in."""

    origins: frozenset[str] = frozenset()
    """Exact origins allowed besides the page's on a loopback bind."""
    page_port: int | None = None
    loopback_bind: bool = True
    trusted_proxies: Sequence[IPv4Network | IPv6Network] = ()
    per_address: int = 50
    capacity: int = 10_000
    rate: float = 200.0
    """New connections a second, over all addresses; five seconds' worth may come at once."""


def gate_rules(settings: EdgeSettings) -> GateRules:
    """The rules that a process was set to."""
    return GateRules(
        origins=frozenset(settings.origins),
        page_port=settings.page_port,
        loopback_bind=is_loopback(settings.host),
        trusted_proxies=tuple(settings.trusted_proxies),
        per_address=settings.connections_per_address,
        capacity=settings.capacity,
        rate=settings.connection_rate,
    )


class Gate:
    """Decides on opening handshakes and remembers whom it let in."""

    def __init__(self, rules: GateRules) -> None:
        self._rules = rules
        self._rate = TokenBucket(rules.rate, rules.rate * 5)
        self._admission = Admission(AddressTable(rules.per_address), rules.capacity, self._rate)
        self._strikes: dict[str, tuple[int, float]] = {}

    @property
    def open(self) -> int:
        """Connections let in that have not left."""
        return self._admission.open

    def enter(self, peer: str, headers: Headers, now: float) -> tuple[str, Reply | None]:
        """The client's address, and the refusal if it may not enter (403, 429 or 503)."""
        rules = self._rules
        try:
            origin = headers.get("Origin")
            forwarded = ", ".join(headers.get_all("X-Forwarded-For")) or None
        except MultipleValuesError:
            return peer, Reply(403, b"more than one Origin\n")
        address = client_address(peer, forwarded, rules.trusted_proxies)
        if origin is None:
            # Not a browser: it would need a token, or come from this machine.
            if not is_loopback(address):
                return address, Reply(403, b"without an Origin a token is needed\n")
        elif not origin_allowed(
            origin, allowed=rules.origins, page_port=rules.page_port, loopback_bind=rules.loopback_bind
        ):
            return address, Reply(403, b"this Origin is not allowed\n")
        verdict = self._admission.admit(address, now)
        if verdict is Verdict.ADMITTED:
            return address, None
        wait = max(1, math.ceil(self._rate.retry_after(now)))
        return address, Reply(verdict.status, f"{verdict.reason}\n".encode(), headers={"Retry-After": str(wait)})

    def leave(self, address: str) -> None:
        """A client that was let in is gone."""
        self._admission.release(address)

    def strike(self, address: str, now: float) -> bool:
        """Count a rate violation; True when the address has had its warnings (bounded: the oldest is forgotten)."""
        count, since = self._strikes.pop(address, (0, now))
        if now - since > STRIKE_SECONDS:
            count, since = 0, now
        if len(self._strikes) >= MAX_STRIKES:
            del self._strikes[next(iter(self._strikes))]
        self._strikes[address] = (count + 1, since)
        return count + 1 > STRIKES
