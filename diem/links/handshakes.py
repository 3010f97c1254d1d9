"""TLS handshakes of a listener: their admission, and outcomes; pure.

A handshake costs 1 to 3 ms of CPU before the client has sent a byte for any other limit to judge. So the address
decides: a connection beyond its limits is closed before the handshake (docs/reliability.md S1).
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from diem.process import metrics
from diem.process.limits import (
    CONNECTIONS_PER_ADDRESS,
    AddressLimits,
    AddressRateLimiter,
    AdmissionResult,
    RateLimit,
    networks,
)
from diem.process.listeners import Network, is_in, is_loopback
from diem.process.metrics import Sample

HANDSHAKES_PER_S: Final = 20.0
HANDSHAKE_BURST: Final = 100.0
"""Handshakes of an address: twice its new WebSocket clients, so that excess clients still get a 429."""
LOOPBACK_CONNECTIONS: Final = 1000
LINK_RATE: Final = RateLimit(200.0, 1000.0)
"""Handshakes of an address with an internal listener."""


class HandshakeEnd(StrEnum):
    """End of a handshake; label of a metric."""

    COMPLETED = "completed"
    FAILED = "failed"
    """The client aborted it, spoke another protocol, or did not finish in time."""
    EVICTED = "evicted"
    """Aborted as the oldest of too many."""
    REFUSED = "refused"
    """Closed before the handshake: its address had reached a limit."""


def usual_rate(connections: int) -> RateLimit:
    """Return the rate of handshakes of an address with this limit of connections."""
    return RateLimit(max(HANDSHAKES_PER_S, connections * 2 / 5), max(HANDSHAKE_BURST, 2.0 * connections))


@dataclass(frozen=True, slots=True)
class HandshakeLimits:
    """Limits of one address (IPv6: of one /64, and several times these of wider networks).

    Trusted proxies have none: their clients share the address.
    """

    connections: int = CONNECTIONS_PER_ADDRESS
    """Handshakes in progress and, where ``open_of`` counts them, open connections."""
    loopback: int = LOOPBACK_CONNECTIONS
    """The same for an address of this machine."""
    trusted: Sequence[Network] = ()
    rate: Callable[[int], RateLimit] = usual_rate
    """Returns the rate of handshakes for an address's limit of connections."""
    open_of: Callable[[str], int] = lambda _address: 0
    """Returns the open connections of an address, if none may be evicted for a new one."""

    @classmethod
    def of_links(cls, connections: int) -> "HandshakeLimits":
        """Return the limits of an internal listener, where one address may redial a link per client.

        Args:
            connections: unproved connections of an address.
        """
        return cls(connections, connections, rate=lambda _connections: LINK_RATE)

    @classmethod
    def of_clients(
        cls,
        limits: AddressLimits,
        trusted: Sequence[Network],
        open_of: Callable[[str], int],
        *,
        loopback: int | None = None,
    ) -> "HandshakeLimits":
        """Return the limits of a listener for WebSocket clients with the address limits ``limits``.

        ``loopback`` is the limit of connections of an address of this machine; None: as any other.
        """
        own = RateLimit(
            max(HANDSHAKES_PER_S, 2 * limits.connect_rate_per_s), max(HANDSHAKE_BURST, 2 * limits.connect_burst)
        )

        def rate(connections: int) -> RateLimit:
            return own if connections == limits.connections else usual_rate(connections)

        here = limits.connections if loopback is None else loopback
        return cls(limits.connections, here, trusted, rate, open_of)


class HandshakeLimiter:
    """Decides on the handshakes of one listener, and counts them.

    Handshakes in progress are bounded by the listener; rates are remembered for 10,000 addresses.

    Args:
        listener: its name in metrics.
        limits: of one address.
    """

    def __init__(self, listener: str, limits: HandshakeLimits | None = None) -> None:
        self.listener = listener
        self._limits = limits = HandshakeLimits() if limits is None else limits
        self._rates = AddressRateLimiter(limits.rate(limits.connections), limits.rate(limits.loopback))
        self._pending: Counter[str] = Counter()
        """Handshakes in progress by network, without zeros."""
        self._in_progress = 0
        self.outcomes: Counter[HandshakeEnd] = Counter()

    def begin(self, address: str, now: float) -> AdmissionResult | None:
        """Count the start of a handshake, to be followed by :meth:`end`, or return the reason of its refusal."""
        limits, found = self._limits, networks(address)
        if not (limits.trusted and is_in(address, limits.trusted)):
            refusal = None
            bound = limits.loopback if is_loopback(address) else limits.connections
            # Open connections of wider networks are bounded on admission.
            if self._pending[found[0].key] + limits.open_of(address) >= bound or any(
                self._pending[key] >= bound * times for key, times in found[1:]
            ):
                refusal = AdmissionResult.ADDRESS_LIMIT
            elif self._rates.take(address, now):
                refusal = AdmissionResult.ADDRESS_TOO_FAST
            if refusal is not None:
                self.outcomes[HandshakeEnd.REFUSED] += 1
                return refusal
        self._in_progress += 1
        for key, _ in found:
            self._pending[key] += 1
        return None

    def end(self, address: str, outcome: HandshakeEnd) -> None:
        """Count the end of a handshake."""
        self.outcomes[outcome] += 1
        self._in_progress -= 1
        for key, _ in networks(address):
            self._pending[key] -= 1
            if not self._pending[key]:
                del self._pending[key]

    @property
    def pending(self) -> int:
        """Number of handshakes in progress."""
        return self._in_progress

    def samples(self) -> Iterable[Sample]:
        """Sample the handshakes by outcome."""
        for outcome in HandshakeEnd:
            yield metrics.TLS_HANDSHAKES.sample(self.outcomes[outcome], self.listener, outcome)
