"""Limits of one client, one address and one process; pure, time is given (docs/reliability.md S12, S13)."""

import math
from array import array
from collections import OrderedDict
from dataclasses import dataclass
from enum import Enum
from heapq import heappop, heappush
from ipaddress import IPv6Address
from typing import Final

from diem.process.listeners import is_loopback
from diem.protocol.messages import MAX_NAMES

CONNECTIONS_PER_ADDRESS: Final = 50
CONNECT_RATE_PER_S: Final = 10.0
CONNECT_BURST: Final = 50.0
"""New connections of one address."""
MAX_ADDRESSES: Final = 65_536
MESSAGE_RATE_PER_S: Final = 100 / 60
MESSAGE_BURST: Final = 20.0
NAMES_PER_MESSAGE: Final = 50
"""So many names in a message count as one message more: their hashes take as long as all else of a small one."""
FRAME_RATE_PER_S: Final = 10.0
FRAME_BURST: Final = 200.0
"""Pings, pongs and fragments of a client."""
READMITTED_WITH: Final = 0.25
"""Share of a burst that must be there again before an address may connect with what it has used up."""
MAX_ERRORS: Final = 20
ERROR_WINDOW_S: Final = 60.0


def messages_for(subscriptions: int) -> int:
    """Return as how many messages it counts to ask for so many endpoints, in as few messages as possible."""
    return math.ceil(subscriptions / MAX_NAMES) + subscriptions // NAMES_PER_MESSAGE


def message_burst(subscriptions: int) -> float:
    """Return the messages that a client may send at once: enough to ask twice for all that it may subscribe to."""
    return max(MESSAGE_BURST, 2 * messages_for(subscriptions))


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

    @property
    def full_at(self) -> float:
        """When the bucket is full again, if nothing more is taken; in the past when it is full now."""
        return self._full_at

    def retry_after(self, now: float, tokens: float = 1.0) -> float:
        """Return the seconds until so many tokens are there; 0 when they are now."""
        return max(0.0, max(self._full_at, now) + (tokens - self._burst) / self._rate - now)


class ErrorWindow:
    """Counts errors of one client over a sliding window; allocates nothing before the first one."""

    __slots__ = ("_limit", "_seconds", "_times")

    def __init__(self, limit: int = MAX_ERRORS, seconds: float = ERROR_WINDOW_S) -> None:
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


@dataclass(frozen=True, slots=True)
class AddressLimits:
    """What one address may use; messages are those of each of its connections."""

    connections: int = CONNECTIONS_PER_ADDRESS
    """At a time."""
    connect_rate_per_s: float = CONNECT_RATE_PER_S
    connect_burst: float = CONNECT_BURST
    message_rate_per_s: float = MESSAGE_RATE_PER_S
    message_burst: float = MESSAGE_BURST
    readmitted_with: float = READMITTED_WITH


class MessageAllowance:
    """What one connection may send. It belongs to the address, which lends it: a reconnect does not fill it."""

    __slots__ = ("_frames", "messages")

    def __init__(self, messages: TokenBucket) -> None:
        self.messages = messages
        self._frames: TokenBucket | None = None

    def __lt__(self, other: "MessageAllowance") -> bool:
        return self.full_at < other.full_at

    @property
    def full_at(self) -> float:
        """When nothing of it is used up any more (monotonic seconds)."""
        frames = 0.0 if self._frames is None else self._frames.full_at
        return max(self.messages.full_at, frames)

    def admit_frame(self, now: float) -> bool:
        """Take one of the pings, pongs and fragments; false when none is left. Allocates nothing before the first."""
        if self._frames is None:
            self._frames = TokenBucket(FRAME_RATE_PER_S, FRAME_BURST)
        return self._frames.take(now)

    def charge_names(self, now: float, names: int) -> None:
        """Count a message that was taken as so many more, by the names in it."""
        if names >= NAMES_PER_MESSAGE:
            self.messages.charge(now, names // NAMES_PER_MESSAGE)


class AdmissionResult(Enum):
    """Why a connection is not admitted, and with which HTTP status."""

    ADDRESS_LIMIT = ("too many connections from this address", 429)
    ADDRESS_TOO_FAST = ("too many new connections from this address", 429)
    ADDRESS_USED_UP = ("too many messages from this address", 429)
    PROCESS_FULL = ("this server is full", 503)
    TOO_FAST = ("too many new connections", 503)

    def __init__(self, reason: str, status: int) -> None:
        self.reason = reason
        self.status = status


class _Address:
    __slots__ = ("_full_at", "_returned", "arrivals", "open")

    def __init__(self, limits: AddressLimits) -> None:
        self.open = 0
        self.arrivals = TokenBucket(limits.connect_rate_per_s, limits.connect_burst)
        self._returned: list[MessageAllowance] = []
        """A heap of what was lent and given back, the fullest first."""
        self._full_at = 0.0
        """When all of these are full."""

    def lend(self, limits: AddressLimits) -> MessageAllowance:
        """Return the fullest allowance that was given back, else a new one."""
        if self._returned:
            return heappop(self._returned)
        return MessageAllowance(TokenBucket(limits.message_rate_per_s, limits.message_burst))

    def take_back(self, allowance: MessageAllowance, now: float) -> None:
        self._full_at = max(self._full_at, allowance.full_at)
        heappush(self._returned, allowance)
        self._drop_full(now)

    def wait(self, now: float, tokens: float) -> float:
        """Return the seconds until the allowance that would be lent has so many messages."""
        return self._returned[0].messages.retry_after(now, tokens) if self._returned else 0.0

    def is_fresh(self, now: float) -> bool:
        """Whether an address that was never seen is the same."""
        self._drop_full(now)
        return not self.open and not self._returned and self.arrivals.full_at <= now

    def _drop_full(self, now: float) -> None:
        if self._full_at <= now:
            self._returned.clear()


class AddressTable:
    """The open connections of every address, and what it has used up and not got back yet.

    An IPv6 client owns a whole /64, so that is what counts as one address. A connection is lent an allowance, the
    fullest that the address has given back, else a new one: an address never has more of them than it has had
    connections at a time, however often it reconnects.

    At `max_addresses` different ones, new addresses take the place of those without connections, the one that has been
    without for longest first, and are refused when there are none.
    """

    __slots__ = ("_addresses", "_idle", "_limits", "_max_addresses")

    def __init__(self, limits: AddressLimits, max_addresses: int = MAX_ADDRESSES) -> None:
        self._limits = limits
        self._max_addresses = max_addresses
        self._addresses: dict[str, _Address] = {}
        self._idle: dict[str, None] = {}
        """Addresses without connections, looked at in this order whether they are to be forgotten."""

    def __len__(self) -> int:
        return len(self._addresses)

    def open(self, address: str) -> int:
        """Return the number of connections that an address has."""
        found = self._addresses.get(address_key(address))
        return 0 if found is None else found.open

    def refusal(self, address: str, now: float) -> AdmissionResult | None:
        """Return why `address` may have no connection more at `now` (monotonic seconds); None when it may."""
        self._forget_fresh(now)
        found = self._addresses.get(address_key(address))
        if found is None:
            full = len(self._addresses) >= self._max_addresses and not self._idle
            return AdmissionResult.ADDRESS_LIMIT if full else None
        if found.open >= self._limits.connections:
            return AdmissionResult.ADDRESS_LIMIT
        if found.arrivals.retry_after(now):
            return AdmissionResult.ADDRESS_TOO_FAST
        return AdmissionResult.ADDRESS_USED_UP if self._used_up(found, now) else None

    def retry_after(self, address: str, now: float) -> float:
        """Return the seconds until `address` may connect again, if none of its connections is in the way."""
        found = self._addresses.get(address_key(address))
        return 0.0 if found is None else max(found.arrivals.retry_after(now), self._used_up(found, now))

    def admit(self, address: str, now: float) -> MessageAllowance:
        """Count a connection of `address`, which nothing speaks against, and lend it an allowance."""
        key = address_key(address)
        found = self._addresses.get(key)
        if found is None:
            if len(self._addresses) >= self._max_addresses:
                self._forget(next(iter(self._idle)))
            found = self._addresses[key] = _Address(self._limits)
        self._idle.pop(key, None)
        found.open += 1
        found.arrivals.take(now)
        return found.lend(self._limits)

    def release(self, address: str, allowance: MessageAllowance, now: float) -> None:
        """Count one connection less, and take back what it was lent; must follow exactly one `admit`."""
        key = address_key(address)
        found = self._addresses[key]
        found.open -= 1
        found.take_back(allowance, now)
        if not found.open:
            if found.is_fresh(now):
                del self._addresses[key]
            else:
                self._idle[key] = None

    def _used_up(self, found: _Address, now: float) -> float:
        return found.wait(now, self._limits.readmitted_with * self._limits.message_burst)

    def _forget_fresh(self, now: float) -> None:
        # Two for each connection that may make one idle: so they do not pile up.
        for key in [key for key, _ in zip(self._idle, range(2), strict=False)]:
            del self._idle[key]
            if self._addresses[key].is_fresh(now):
                del self._addresses[key]
            else:
                self._idle[key] = None

    def _forget(self, key: str) -> None:
        del self._idle[key], self._addresses[key]


class ConnectionQuota:
    """Decides on every new connection: total of the process, rate of new ones, and what its address may use."""

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

    def open_of(self, address: str) -> int:
        """Return the number of those that are of one address."""
        return self._addresses.open(address)

    def admit(self, address: str, now: float) -> MessageAllowance | AdmissionResult:
        """Admit a connection from `address`, which must be released once, or return why not."""
        if self._open >= self._cap:
            return AdmissionResult.PROCESS_FULL
        # The address comes first: one that knocks beyond its limits must not use up the rate of the others.
        refusal = self._addresses.refusal(address, now)
        if refusal is not None:
            return refusal
        if not self._rate.take(now):
            return AdmissionResult.TOO_FAST
        self._open += 1
        return self._addresses.admit(address, now)

    def retry_after(self, address: str, now: float) -> float:
        """Return the seconds until the rates let `address` connect again."""
        return max(self._rate.retry_after(now), self._addresses.retry_after(address, now))

    def release(self, address: str, allowance: MessageAllowance, now: float) -> None:
        """Take back what an admitted connection of `address` held."""
        self._addresses.release(address, allowance, now)
        self._open -= 1


def address_key(address: str) -> str:
    """Return what counts as one address: an IPv4 address itself, an IPv6 address's /64.

    A socket for both families gives IPv4 addresses inside IPv6 ones, which all have the same /64.
    """
    if ":" not in address:
        return address
    try:
        parsed = IPv6Address(address.partition("%")[0])
    except ValueError:
        return address
    return f"{int(parsed) >> 64:x}::/64" if parsed.ipv4_mapped is None else str(parsed.ipv4_mapped)


MAX_RATED_ADDRESSES: Final = 10_000


@dataclass(frozen=True, slots=True)
class RateLimit:
    """``per_second`` requests in the long run, ``burst`` at once."""

    per_second: float
    burst: float

    @property
    def policy(self) -> str:
        """The value of RateLimit-Policy."""
        return f'"anonymous";q={int(self.burst)};w={max(1, round(self.burst / self.per_second))}'


class AddressRateLimiter:
    """Counts requests per address; loopback addresses, which tests and local tools share, have a rate of their own.

    At 10,000 addresses the one that has been silent longest is forgotten: it would have its full burst again anyway,
    unless somebody owns that many addresses, against whom a limit per address is no use.
    """

    def __init__(self, rate: RateLimit, loopback: RateLimit) -> None:
        self._rate = rate
        self._loopback = loopback
        self._buckets: OrderedDict[str, TokenBucket] = OrderedDict()

    def __len__(self) -> int:
        return len(self._buckets)

    def rate(self, address: str) -> RateLimit:
        """The rate that holds for an address."""
        return self._loopback if is_loopback(address) else self._rate

    def take(self, address: str, now: float) -> float:
        """Count a request at ``now`` (monotonic seconds): 0 when it is within the plan, else the seconds to wait."""
        key = address_key(address)
        bucket = self._buckets.get(key)
        if bucket is None:
            rate = self.rate(address)
            bucket = self._buckets[key] = TokenBucket(rate.per_second, rate.burst)
            if len(self._buckets) > MAX_RATED_ADDRESSES:
                self._buckets.popitem(last=False)
        else:
            self._buckets.move_to_end(key)
        return 0.0 if bucket.take(now) else max(bucket.retry_after(now), 1e-3)

    def charge(self, address: str, now: float, requests: float) -> None:
        """Count a request that was taken as so many more: its work was only known when it had been read."""
        bucket = self._buckets.get(address_key(address))
        if bucket is not None:
            bucket.charge(now, requests)
