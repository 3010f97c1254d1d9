"""Admission of client connections: origin, address behind proxies, capacity (docs/reliability.md S2, S13, S18)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network

from websockets.datastructures import Headers, MultipleValuesError

from diem.links.acceptor import Reply
from diem.process.edge_settings import EdgeSettings
from diem.process.limits import (
    CONNECT_BURST,
    CONNECT_RATE_PER_S,
    CONNECTIONS_PER_ADDRESS,
    READMITTED_WITH,
    AddressLimits,
    AddressTable,
    Admission,
    AdmissionResult,
    MessageAllowance,
    TokenBucket,
    address_key,
    message_burst,
    messages_for,
)
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
    per_address: int = CONNECTIONS_PER_ADDRESS
    rate_per_address: float | None = None
    """New connections of one address a second; None: 10, or a fifth of ``per_address`` if that is more."""
    subscriptions: int = 128
    """Names of one connection: who has many may ask for all of them at once."""
    capacity: int = 10_000
    rate: float = 200.0
    """New connections a second, over all addresses; five seconds' worth may come at once."""

    @property
    def of_address(self) -> AddressLimits:
        """The limits of one address.

        All of its connections may come back at once, as they do when a server was lost, and a client may ask twice for
        all that it may subscribe to before it has to wait. It is let in again when it may ask for all: otherwise it
        would use up what it has each time, and never have asked for the rest.
        """
        rate = max(CONNECT_RATE_PER_S, self.per_address / 5) if self.rate_per_address is None else self.rate_per_address
        burst = message_burst(self.subscriptions)
        return AddressLimits(
            connections=self.per_address,
            connect_rate_per_s=rate,
            connect_burst=max(CONNECT_BURST, self.per_address),
            message_burst=burst,
            readmitted_with=max(READMITTED_WITH, messages_for(self.subscriptions) / burst),
        )


def gate_rules(settings: EdgeSettings) -> GateRules:
    """The rules that a process was set to."""
    return GateRules(
        origins=frozenset(settings.origins),
        page_port=settings.page_port,
        loopback_bind=is_loopback(settings.host),
        trusted_proxies=tuple(settings.trusted_proxies),
        per_address=settings.connections_per_address,
        rate_per_address=settings.connection_rate_per_address,
        subscriptions=settings.connection_subscriptions,
        capacity=settings.capacity,
        rate=settings.connection_rate,
    )


class Gate:
    """Decides on opening handshakes and remembers whom it let in."""

    def __init__(self, rules: GateRules) -> None:
        self._rules = rules
        rate = TokenBucket(rules.rate, rules.rate * 5)
        self._admission = Admission(AddressTable(rules.of_address), rules.capacity, rate)
        self._strikes: dict[str, tuple[int, float]] = {}

    @property
    def open(self) -> int:
        """Connections let in that have not left."""
        return self._admission.open

    def open_of(self, address: str) -> int:
        """Those of one address."""
        return self._admission.open_of(address)

    def enter(self, peer: str, headers: Headers, now: float) -> tuple[str, MessageAllowance | Reply]:
        """The client's address, and what it may send, or the refusal if it may not enter (403, 429 or 503)."""
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
        outcome = self._admission.admit(address, now)
        if not isinstance(outcome, AdmissionResult):
            return address, outcome
        wait = max(1, math.ceil(self._admission.retry_after(address, now)))
        return address, Reply(outcome.status, f"{outcome.reason}\n".encode(), headers={"Retry-After": str(wait)})

    def leave(self, address: str, allowance: MessageAllowance, now: float) -> None:
        """A client that was let in is gone; what it has used up stays with its address until it is there again."""
        self._admission.release(address, allowance, now)

    def strike(self, address: str, now: float) -> bool:
        """Count a rate violation; True when the address has had its warnings (bounded: the oldest is forgotten)."""
        key = address_key(address)
        count, since = self._strikes.pop(key, (0, now))
        if now - since > STRIKE_SECONDS:
            count, since = 0, now
        if len(self._strikes) >= MAX_STRIKES:
            del self._strikes[next(iter(self._strikes))]
        self._strikes[key] = (count + 1, since)
        return count + 1 > STRIKES
