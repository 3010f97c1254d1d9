"""Limits on what one client, one address and one process may use; time is given (docs/reliability.md S12, S13)."""

from array import array
from enum import Enum
from ipaddress import IPv6Address
from typing import Final

CONNECTIONS_PER_ADDRESS: Final = 50
MAX_ADDRESSES: Final = 65_536
MESSAGE_RATE_PER_S: Final = 100 / 60
MESSAGE_BURST: Final = 20.0
ERRORS: Final = 20
ERROR_WINDOW_S: Final = 60.0


class TokenBucket:
    """Allows `burst` at once and `rate_per_s` in the long run; starts full.

    It holds one number of its own, the time at which the bucket is full again (the generic cell rate algorithm,
    equivalent to counting tokens), so that every connection can afford one.
    """

    __slots__ = ("_burst", "_full_at", "_rate")

    def __init__(self, rate_per_s: float = MESSAGE_RATE_PER_S, burst: float = MESSAGE_BURST) -> None:
        self._rate = rate_per_s
        self._burst = burst
        self._full_at = 0.0

    def take(self, now: float) -> bool:
        """Take a token at `now` (monotonic seconds); false, and nothing taken, when none is left."""
        full_at = max(self._full_at, now) + 1 / self._rate
        # The tolerance is rounding: a token that is due at this very instant is there.
        if full_at - now > self._burst / self._rate + 1e-9:
            return False
        self._full_at = full_at
        return True

    def charge(self, now: float, tokens: float) -> None:
        """Take more than there is, if need be: what comes next waits until it is paid."""
        self._full_at = max(self._full_at, now) + tokens / self._rate

    def retry_after(self, now: float) -> float:
        """Return the seconds until `take` succeeds again; 0 when it would now."""
        return max(0.0, max(self._full_at, now) + (1 - self._burst) / self._rate - now)


class ErrorWindow:
    """Counts errors of one client over a sliding window; allocates nothing before the first one."""

    __slots__ = ("_limit", "_seconds", "_times")

    def __init__(self, limit: int = ERRORS, seconds: float = ERROR_WINDOW_S) -> None:
        self._limit = limit
        self._seconds = seconds
        self._times: array[float] | None = None

    def add(self, now: float) -> bool:
        """Count an error at `now` (monotonic seconds); true when it is the `limit`-th within the window.

        Holds at most `limit` times; older ones are forgotten.
        """
        times = self._times
        if times is None:
            times = self._times = array("d")
        times.append(now)
        del times[: max(0, len(times) - self._limit)]
        return len(times) == self._limit and now - times[0] < self._seconds


class Verdict(Enum):
    """Whether a connection is admitted, and if not, why and with which HTTP status."""

    ADMITTED = ("admitted", 101)
    ADDRESS_LIMIT = ("too many connections from this address", 429)
    PROCESS_FULL = ("this server is full", 503)
    TOO_FAST = ("too many new connections", 503)

    def __init__(self, reason: str, status: int) -> None:
        self.reason = reason
        self.status = status


class AddressTable:
    """Counts the open connections of every address.

    An IPv6 client owns a whole /64, so that is what counts as one address. At `max_addresses` different ones new
    addresses are refused; an entry goes when its last connection closes.
    """

    __slots__ = ("_counts", "_limit", "_max_addresses")

    def __init__(self, limit: int = CONNECTIONS_PER_ADDRESS, max_addresses: int = MAX_ADDRESSES) -> None:
        self._limit = limit
        self._max_addresses = max_addresses
        self._counts: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._counts)

    def admit(self, address: str) -> bool:
        """Count one more connection of `address`; false, and nothing counted, when it has too many."""
        key = address_key(address)
        count = self._counts.get(key, 0)
        if count >= self._limit or (not count and len(self._counts) >= self._max_addresses):
            return False
        self._counts[key] = count + 1
        return True

    def release(self, address: str) -> None:
        """Count one connection less; must follow exactly one successful `admit`."""
        key = address_key(address)
        count = self._counts[key] - 1
        if count:
            self._counts[key] = count
        else:
            del self._counts[key]


class Admission:
    """Decides on every new connection: total of the process, rate of new ones, connections per address."""

    __slots__ = ("_addresses", "_cap", "_open", "_rate")

    def __init__(self, addresses: AddressTable, cap: int, rate: TokenBucket) -> None:
        self._addresses = addresses
        self._cap = cap
        self._rate = rate
        self._open = 0

    @property
    def open(self) -> int:
        """Connections that were admitted and not released."""
        return self._open

    def admit(self, address: str, now: float) -> Verdict:
        """Decide on a connection from `address`; one that is admitted must be released once."""
        if self._open >= self._cap:
            return Verdict.PROCESS_FULL
        # The address comes first: one that knocks beyond its limit must not use up the rate of the others.
        if not self._addresses.admit(address):
            return Verdict.ADDRESS_LIMIT
        if not self._rate.take(now):
            self._addresses.release(address)
            return Verdict.TOO_FAST
        self._open += 1
        return Verdict.ADMITTED

    def release(self, address: str) -> None:
        """Give back what an admitted connection of `address` held."""
        self._addresses.release(address)
        self._open -= 1


def address_key(address: str) -> str:
    """Return what counts as one address: an IPv4 address itself, an IPv6 address's /64."""
    if ":" not in address:
        return address
    try:
        network = int(IPv6Address(address.partition("%")[0])) >> 64
    except ValueError:
        return address
    return f"{network:x}::/64"
