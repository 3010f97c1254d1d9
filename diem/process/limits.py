"""Limits of one client, one address and one process (docs/reliability.md S12, S13). Pure: callers pass the time."""

import math
from array import array
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from heapq import heappop, heappush
from ipaddress import IPv6Address
from typing import Final, NamedTuple

from diem.process.listeners import is_loopback
from diem.process.shared_counts import SharedCounts
from diem.protocol.messages import MAX_NAMES

CAPACITY: Final = 10_000
"""Clients of one process."""
CONNECTIONS_PER_ADDRESS: Final = 50
CONNECT_RATE_PER_S: Final = 10.0
CONNECT_BURST: Final = 50.0
"""New connections of one address."""
MAX_ADDRESSES: Final = 65_536
CONNECTIONS_PER_USER: Final = 20
MESSAGE_RATE_PER_S: Final = 100 / 60
MESSAGE_BURST: Final = 20.0
NAMES_PER_MESSAGE: Final = 50
"""Names in a message that count as one more message: hashing them takes as long as a small message."""
FRAME_RATE_PER_S: Final = 10.0
FRAME_BURST: Final = 200.0
"""Pings, pongs and fragments of a client."""
REPLY_DATA_RATE_PER_S: Final = 64 * 1024
REPLY_DATA_BURST: Final = 4 * 1024 * 1024
"""Bytes of data in retained updates after ``subscribed``: a burst of 4 KiB for each of a client's endpoints."""
READMITTED_WITH: Final = 0.25
"""Share of a burst that an exhausted address must regain before it may connect."""
UNLIMITED_SHARE: Final = 0.8
"""Share of a process's capacity for clients exempt from address limits; the rest is for others."""
ROUNDING_S: Final = 1e-9
"""Tolerance of token buckets: a token due at this very instant is available."""
MAX_ERRORS: Final = 20
ERROR_WINDOW_S: Final = 60.0


def messages_for(subscriptions: int) -> int:
    """Return the cost in messages of subscribing to this many endpoints, in as few messages as possible."""
    return math.ceil(subscriptions / MAX_NAMES) + subscriptions // NAMES_PER_MESSAGE


def message_burst(subscriptions: int) -> float:
    """Return a client's burst of messages: enough to request all of its subscriptions twice."""
    return max(MESSAGE_BURST, 2 * messages_for(subscriptions))


class TokenBucket:
    """Allows ``burst`` at once and ``rate_per_s`` in the long run; starts full.

    Its only state is the time at which it is full again (the generic cell rate algorithm, equivalent to counting
    tokens), cheap enough for every connection.
    """

    __slots__ = ("_burst", "_full_at", "_rate")

    def __init__(self, rate_per_s: float = MESSAGE_RATE_PER_S, burst: float = MESSAGE_BURST) -> None:
        self._rate = rate_per_s
        self._burst = burst
        self._full_at = 0.0

    def take(self, now: float, tokens: float = 1.0) -> bool:
        """Take ``tokens`` at ``now`` (monotonic seconds); return False, and take none, if fewer are left."""
        full_at = max(self._full_at, now) + tokens / self._rate
        if full_at - now > self._burst / self._rate + ROUNDING_S:
            return False
        self._full_at = full_at
        return True

    def charge(self, now: float, tokens: float) -> None:
        """Take ``tokens`` even beyond those left; later takers wait until the debt is paid."""
        self._full_at = max(self._full_at, now) + tokens / self._rate

    @property
    def burst(self) -> float:
        """Tokens of a full bucket."""
        return self._burst

    @property
    def full_at(self) -> float:
        """Time at which the bucket is full again; in the past if it is full now."""
        return self._full_at

    def drain_to(self, full_at: float) -> None:
        """Reduce the bucket to the level of an equal one that is full again at ``full_at``."""
        self._full_at = max(self._full_at, full_at)

    def retry_after(self, now: float, tokens: float = 1.0) -> float:
        """Return the seconds until this many tokens are available."""
        wait_s = max(self._full_at, now) + (tokens - self._burst) / self._rate - now
        return wait_s if wait_s > ROUNDING_S else 0.0


class ErrorWindow:
    """Counts errors of one client over a sliding window; allocates nothing before the first one."""

    __slots__ = ("_limit", "_seconds", "_times")

    def __init__(self, limit: int = MAX_ERRORS, seconds: float = ERROR_WINDOW_S) -> None:
        self._limit = limit
        self._seconds = seconds
        self._times: array[float] | None = None

    def add(self, now: float) -> bool:
        """Count an error at ``now`` (monotonic seconds); return whether it is the ``limit``-th within the window.

        At most ``limit`` times are kept.
        """
        times = self._times
        if times is None:
            times = self._times = array("d")
        times.append(now)
        del times[: max(0, len(times) - self._limit)]
        return len(times) == self._limit and now - times[0] < self._seconds


@dataclass(frozen=True, slots=True)
class AddressLimits:
    """Limits of one address; those of messages apply to each of its connections."""

    connections: int = CONNECTIONS_PER_ADDRESS
    """Limit of open connections."""
    connect_rate_per_s: float = CONNECT_RATE_PER_S
    connect_burst: float = CONNECT_BURST
    message_rate_per_s: float = MESSAGE_RATE_PER_S
    message_burst: float = MESSAGE_BURST
    readmitted_with: float = READMITTED_WITH

    def times(self, number: int) -> "AddressLimits":
        """Return the limits of a network with this multiple of an address's connections."""
        return replace(
            self,
            connections=self.connections * number,
            connect_rate_per_s=self.connect_rate_per_s * number,
            connect_burst=self.connect_burst * number,
        )

    def new_allowance(self) -> "MessageAllowance":
        """Return an unused allowance."""
        return MessageAllowance(TokenBucket(self.message_rate_per_s, self.message_burst))


class MessageAllowance:
    """Limits of one connection's messages, and of the data in its replies; lent by the address.

    So a reconnect does not refill it.
    """

    __slots__ = ("_data", "_frames", "messages")

    def __init__(self, messages: TokenBucket) -> None:
        self.messages = messages
        self._frames: TokenBucket | None = None
        self._data: TokenBucket | None = None

    def __lt__(self, other: "MessageAllowance") -> bool:
        return self.full_at < other.full_at

    @property
    def full_at(self) -> float:
        """Time at which the allowance is full again (monotonic seconds)."""
        return max(self.messages.full_at, self.frames_full_at, self.data_full_at)

    @property
    def frames_full_at(self) -> float:
        """The same for frames only; 0 before the first."""
        return 0.0 if self._frames is None else self._frames.full_at

    @property
    def data_full_at(self) -> float:
        """The same for data in replies only; 0 before the first."""
        return 0.0 if self._data is None else self._data.full_at

    def take_data(self, now: float, size: int) -> bool:
        """Count ``size`` bytes of data in a reply, and return True; beyond the limit return False."""
        return self._data_bucket().take(now, size)

    def admit_frame(self, now: float) -> bool:
        """Count a ping, pong or fragment; return False beyond the limit. Allocates nothing before the first."""
        return self._frame_bucket().take(now)

    def drain_to(self, other: "MessageAllowance") -> None:
        """Reduce the allowance to the level of ``other``, of the same limits."""
        self.messages.drain_to(other.messages.full_at)
        if other.frames_full_at:
            self._frame_bucket().drain_to(other.frames_full_at)
        if other.data_full_at:
            self._data_bucket().drain_to(other.data_full_at)

    def charge_names(self, now: float, names: int) -> None:
        """Charge an admitted message for the names in it."""
        if names >= NAMES_PER_MESSAGE:
            self.messages.charge(now, names // NAMES_PER_MESSAGE)

    def _frame_bucket(self) -> TokenBucket:
        if self._frames is None:
            self._frames = TokenBucket(FRAME_RATE_PER_S, FRAME_BURST)
        return self._frames

    def _data_bucket(self) -> TokenBucket:
        if self._data is None:
            self._data = TokenBucket(REPLY_DATA_RATE_PER_S, REPLY_DATA_BURST)
        return self._data


NETWORKS: Final = ((64, 1), (56, 4), (48, 16))
"""Lengths of the IPv6 prefixes counted as one client, with their multiples of the limits of one address.

A customer of a network may have a /64, the /56 of a home or the /48 of a company or a tunnel.
"""


class Network(NamedTuple):
    """A network that an address is counted under."""

    key: str
    times: int
    """Multiple of the limits of one address."""


def networks(address: str) -> tuple[Network, ...]:
    """Return the networks of an address, the narrowest first: an IPv4 address, or three networks of IPv6.

    IPv4-mapped IPv6 addresses, as on dual-stack sockets, count as IPv4: they all share one /64.
    """
    if ":" not in address:
        return (Network(address, 1),)
    try:
        parsed = IPv6Address(address.partition("%")[0])
    except ValueError:
        return (Network(address, 1),)
    if parsed.ipv4_mapped is not None:
        return (Network(str(parsed.ipv4_mapped), 1),)
    number = int(parsed)
    return tuple(Network(f"{number >> 128 - bits:x}::/{bits}", times) for bits, times in NETWORKS)


def address_key(address: str) -> str:
    """Return the key of the narrowest network of an address: the IPv4 address itself, or the /64 of an IPv6 address."""
    return networks(address)[0].key


class AdmissionResult(Enum):
    """Reason to refuse a connection, and the HTTP status of the refusal."""

    ADDRESS_LIMIT = ("too many connections from this address", 429)
    ADDRESS_TOO_FAST = ("too many new connections from this address", 429)
    ADDRESS_USED_UP = ("too many messages from this address", 429)
    USER_LIMIT = ("too many connections of this user", 429)
    USER_USED_UP = ("too many messages of this user", 429)
    PROCESS_FULL = ("this server is full", 503)

    def __init__(self, reason: str, status: int) -> None:
        self.reason = reason
        self.status = status


class _Address:
    __slots__ = ("_full_at", "_returned", "arrivals", "open")

    def __init__(self, limits: AddressLimits) -> None:
        self.open = 0
        self.arrivals = TokenBucket(limits.connect_rate_per_s, limits.connect_burst)
        self._returned: list[MessageAllowance] = []
        """Returned allowances, as a heap with the fullest first."""
        self._full_at = 0.0
        """Time at which all of these are full."""

    def lend(self, limits: AddressLimits) -> MessageAllowance:
        """Return the fullest returned allowance, else a new one."""
        return heappop(self._returned) if self._returned else limits.new_allowance()

    def reclaim(self, allowance: MessageAllowance, now: float) -> None:
        self._full_at = max(self._full_at, allowance.full_at)
        heappush(self._returned, allowance)
        self._drop_full(now)

    def retry_after(self, now: float, tokens: float) -> float:
        """Return the seconds until the allowance to be lent next has this many messages."""
        return self._returned[0].messages.retry_after(now, tokens) if self._returned else 0.0

    def is_unused(self, now: float) -> bool:
        """Return whether the address is indistinguishable from a new one."""
        self._drop_full(now)
        return not self.open and not self._returned and self.arrivals.full_at <= now

    def _drop_full(self, now: float) -> None:
        if self._full_at <= now:
            self._returned.clear()


class AddressTable:
    """The open connections and message allowances of every address.

    An IPv6 client has a whole /64, which counts as one address; the connections of a /56 and a /48 are bounded as well
    (:data:`NETWORKS`), each in a table of its own. A connection borrows an allowance, the fullest that the
    address has, else a new one: however often it reconnects, an address has no more allowances than it had simultaneous
    connections.

    With ``max_addresses`` addresses in the table, a new one replaces the one longest without connections, or is refused
    if all have some.

    Args:
        limits: of one address.
        max_addresses: bound of the table.
        key: returns the only key of an address; None: the networks of the address.
        shared: counts of all processes that share the port; the limit of connections is for all of them together.
    """

    __slots__ = ("_addresses", "_idle", "_key", "_limits", "_max_addresses", "_shared", "_wider")

    def __init__(
        self,
        limits: AddressLimits,
        max_addresses: int = MAX_ADDRESSES,
        key: Callable[[str], str] | None = None,
        shared: SharedCounts | None = None,
    ) -> None:
        self._shared = shared
        self._key = address_key if key is None else key
        self._wider: tuple[AddressTable, ...] = ()
        """Tables of /56 and /48, which lend nothing."""
        if key is None:
            self._wider = tuple(
                AddressTable(limits.times(times), max_addresses, partial(_wider_key, level), shared)
                for level, (_, times) in enumerate(NETWORKS)
                if level
            )
        self._limits = limits
        self._max_addresses = max_addresses
        self._addresses: dict[str, _Address] = {}
        self._idle: dict[str, None] = {}
        """Addresses without connections, in the order in which they are checked for removal."""

    def __len__(self) -> int:
        return len(self._addresses)

    def open(self, address: str) -> int:
        """Return the number of open connections of an address."""
        found = self._addresses.get(self._key(address))
        return 0 if found is None else found.open

    def refusal(self, address: str, now: float, *, arriving: bool = True) -> AdmissionResult | None:
        """Return the reason to refuse another connection of ``address`` at ``now`` (monotonic seconds), or None.

        Without ``arriving``, the rate of new connections does not count.
        """
        reasons = (table._refusal(address, now, arriving) for table in self._tables(address))  # noqa: SLF001 - of this class
        return next((reason for reason in reasons if reason is not None), None)

    def _tables(self, address: str) -> tuple["AddressTable", ...]:
        """Return the tables that count an address: IPv4 has no wider networks."""
        return (self, *self._wider) if self._wider and len(networks(address)) > 1 else (self,)

    def _refusal(self, address: str, now: float, arriving: bool) -> AdmissionResult | None:
        self._forget_unused(now)
        key, limit = self._key(address), self._limits.connections
        found = self._addresses.get(key)
        if self._shared is not None and self._shared.exceeds(key, limit, 0 if found is None else found.open):
            return AdmissionResult.ADDRESS_LIMIT
        if found is None:
            full = len(self._addresses) >= self._max_addresses and not self._idle
            return AdmissionResult.ADDRESS_LIMIT if full else None
        if found.open >= limit:
            return AdmissionResult.ADDRESS_LIMIT
        if arriving and found.arrivals.retry_after(now):
            return AdmissionResult.ADDRESS_TOO_FAST
        return AdmissionResult.ADDRESS_USED_UP if self._wait_for_messages(found, now) else None

    def retry_after(self, address: str, now: float) -> float:
        """Return the seconds until ``address`` may connect again, apart from its limit of open connections."""
        return max(table._retry_after(address, now) for table in self._tables(address))  # noqa: SLF001 - of this class

    def _retry_after(self, address: str, now: float) -> float:
        found = self._addresses.get(self._key(address))
        return 0.0 if found is None else max(found.arrivals.retry_after(now), self._wait_for_messages(found, now))

    def admit(self, address: str, now: float, *, arriving: bool = True) -> MessageAllowance:
        """Count a connection of ``address``, for which :meth:`refusal` is None, and lend it an allowance."""
        found, *_ = [table._count(address, now, arriving) for table in self._tables(address)]  # noqa: SLF001 - of this class
        return found.lend(self._limits)

    def _count(self, address: str, now: float, arriving: bool) -> _Address:
        key = self._key(address)
        found = self._addresses.get(key)
        if found is None:
            if len(self._addresses) >= self._max_addresses:
                self._forget(next(iter(self._idle)))
            found = self._addresses[key] = _Address(self._limits)
        self._idle.pop(key, None)
        found.open += 1
        if self._shared is not None:
            self._shared.add(key, 1)
        if arriving:
            found.arrivals.take(now)
        return found

    def release(self, address: str, allowance: MessageAllowance, now: float) -> None:
        """Uncount a connection, and reclaim its allowance; exactly once after each :meth:`admit`."""
        self._addresses[self._key(address)].reclaim(allowance, now)
        for table in self._tables(address):
            table._uncount(address, now)  # noqa: SLF001 - of this class

    def _uncount(self, address: str, now: float) -> None:
        key = self._key(address)
        found = self._addresses[key]
        found.open -= 1
        if self._shared is not None:
            self._shared.add(key, -1)
        if not found.open:
            if found.is_unused(now):
                del self._addresses[key]
            else:
                self._idle[key] = None

    def new_allowance(self) -> MessageAllowance:
        """Return an allowance not lent by an address."""
        return self._limits.new_allowance()

    def _wait_for_messages(self, found: _Address, now: float) -> float:
        return found.retry_after(now, self._limits.readmitted_with * self._limits.message_burst)

    def _forget_unused(self, now: float) -> None:
        # Two per new connection, each of which can leave only one idle: so they do not accumulate.
        for key in [key for key, _ in zip(self._idle, range(2), strict=False)]:
            del self._idle[key]
            if self._addresses[key].is_unused(now):
                del self._addresses[key]
            else:
                self._idle[key] = None

    def _forget(self, key: str) -> None:
        del self._idle[key], self._addresses[key]


def _wider_key(level: int, address: str) -> str:
    return networks(address)[level].key


class ConnectionQuota:
    """Admits connections by the process's capacity and the address limits.

    The rate of new connections of all addresses has no limit of its own: it follows from what one costs and from the
    time that other work leaves (``ACCEPT_BATCH`` in ``diem.links.listener``).

    Args:
        addresses: limits of each address.
        cap: maximum number of open connections.
        limits_loopback: True if addresses of this machine have the limits of an address; if not, each of their
            connections has its own message allowance, and together they have :data:`UNLIMITED_SHARE`.
    """

    __slots__ = (
        "_addresses",
        "_cap",
        "_limits_loopback",
        "_open",
        "_unlimited_open",
    )

    def __init__(self, addresses: AddressTable, cap: int, *, limits_loopback: bool = True) -> None:
        self._addresses = addresses
        self._cap = cap
        self._limits_loopback = limits_loopback
        self._open = 0
        self._unlimited_open = 0
        """Those of addresses without limits."""

    @property
    def open(self) -> int:
        """Number of connections admitted and not released."""
        return self._open

    def open_of(self, address: str) -> int:
        """Return the number of open connections of one address."""
        return self._addresses.open(address)

    def admit(self, address: str, now: float, *, arriving: bool = True) -> MessageAllowance | AdmissionResult:
        """Admit a connection of ``address``, which must be released once, or return the reason of the refusal.

        Without ``arriving``, it does not count to the address's rate of new ones: a long poll follows the one before.
        """
        refusal = self.refusal(address, now, arriving=arriving)
        if refusal is not None:
            return refusal
        self._open += 1
        if self._is_limited(address):
            return self._addresses.admit(address, now, arriving=arriving)
        self._unlimited_open += 1
        return self._addresses.new_allowance()

    def refusal(self, address: str, now: float, *, arriving: bool = True) -> AdmissionResult | None:
        """Return the reason why :meth:`admit` would refuse ``address``, None if it would not; counts nothing."""
        if self._open >= self._cap:
            return AdmissionResult.PROCESS_FULL
        if self._is_limited(address):
            return self._addresses.refusal(address, now, arriving=arriving)
        return AdmissionResult.PROCESS_FULL if self._unlimited_open >= self.capacity_for(address) else None

    def capacity_for(self, address: str) -> int:
        """Return the maximum number of open connections of clients like ``address``, at least one."""
        return max(1, int(self._cap * (1.0 if self._is_limited(address) else UNLIMITED_SHARE)))

    def _is_limited(self, address: str) -> bool:
        return self._limits_loopback or not is_loopback(address)

    def retry_after(self, address: str, now: float) -> float:
        """Return the seconds until the rates admit ``address`` again."""
        return self._addresses.retry_after(address, now)

    def release(self, address: str, allowance: MessageAllowance, now: float) -> None:
        """Release an admitted connection of ``address``."""
        if self._is_limited(address):
            self._addresses.release(address, allowance, now)
        else:
            self._unlimited_open -= 1
        self._open -= 1


class UserTable:
    """The open connections and message allowances of every user, whatever their addresses.

    Users are counted as addresses are, without a rate of new connections. A connection already has its address's
    allowance, charged for its messages: the token reduces it to the user's, and its remainder returns to both. So a
    message costs no more than without users, and changing addresses gains nothing.

    Args:
        connections: limit of open connections of a user.
        limits: of an address, of which those of messages apply.
    """

    def __init__(self, connections: int, limits: AddressLimits) -> None:
        limits = replace(limits, connections=connections, connect_rate_per_s=_NO_RATE, connect_burst=_NO_RATE)
        self._table = AddressTable(limits, key=str)

    def __len__(self) -> int:
        return len(self._table)

    def open(self, user: str) -> int:
        """Return the number of open connections of a user."""
        return self._table.open(user)

    def admit(self, user: str, now: float) -> MessageAllowance | AdmissionResult:
        """Count a connection of a user, to be released once, and lend it an allowance, or return its refusal."""
        refusal = self._table.refusal(user, now)
        if refusal is AdmissionResult.ADDRESS_USED_UP:
            return AdmissionResult.USER_USED_UP
        return self._table.admit(user, now) if refusal is None else AdmissionResult.USER_LIMIT

    def retry_after(self, user: str, now: float) -> float:
        """Return the seconds until ``user`` may connect again, apart from the limit of open connections."""
        return self._table.retry_after(user, now)

    def release(self, user: str, lent: MessageAllowance, used: MessageAllowance, now: float) -> None:
        """Uncount a connection, exactly once after each :meth:`admit` that lent it an allowance.

        Args:
            user: the user.
            lent: the result of :meth:`admit`.
            used: the allowance charged for the connection's messages.
            now: monotonic seconds.
        """
        lent.drain_to(used)
        self._table.release(user, lent, now)


_NO_RATE: Final = 1e9
"""Connections a second, and at once."""


MAX_RATED_ADDRESSES: Final = 10_000


@dataclass(frozen=True, slots=True)
class RateLimit:
    """``per_second`` requests in the long run, ``burst`` at once."""

    per_second: float
    burst: float

    @property
    def policy(self) -> str:
        """Value of the header ``RateLimit-Policy``."""
        return f'"anonymous";q={int(self.burst)};w={max(1, round(self.burst / self.per_second))}'


class AddressRateLimiter:
    """Limits requests per address; loopback addresses, shared by tests and local tools, have a separate rate.

    IPv6 addresses count to three networks each. Beyond 10,000 of these, the least recent is evicted: by then its burst
    is full again, unless somebody owns that many networks, and then no limit per address helps.
    """

    def __init__(self, rate: RateLimit, loopback: RateLimit) -> None:
        self._rate = rate
        self._loopback = loopback
        self._buckets: OrderedDict[str, TokenBucket] = OrderedDict()

    def __len__(self) -> int:
        return len(self._buckets)

    def rate(self, address: str) -> RateLimit:
        """Return the limit that applies to an address."""
        return self._loopback if is_loopback(address) else self._rate

    def take(self, address: str, now: float) -> float:
        """Count a request at ``now`` (monotonic seconds); return 0 within the limit, else the seconds to wait."""
        buckets = [self._bucket(address, network) for network in networks(address)]
        wait_s = max(bucket.retry_after(now) for bucket in buckets)
        if wait_s:
            return max(wait_s, 1e-3)
        for bucket in buckets:
            bucket.take(now)
        return 0.0

    def _bucket(self, address: str, network: Network) -> TokenBucket:
        bucket = self._buckets.get(network.key)
        if bucket is None:
            rate = self.rate(address)
            bucket = TokenBucket(rate.per_second * network.times, rate.burst * network.times)
            self._buckets[network.key] = bucket
            if len(self._buckets) > MAX_RATED_ADDRESSES:
                self._buckets.popitem(last=False)
        else:
            self._buckets.move_to_end(network.key)
        return bucket

    def charge(self, address: str, now: float, requests: float) -> None:
        """Charge an admitted request for further ones, once its cost is known."""
        for network in networks(address):
            if network.key in self._buckets:
                self._buckets[network.key].charge(now, requests)

    def refund(self, address: str, now: float) -> None:
        """Uncount a request counted by :meth:`take`."""
        self.charge(address, now, -1.0)
