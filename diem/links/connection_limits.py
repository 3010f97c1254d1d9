"""Limits of an HTTP listener: open connections, and requests begun in one turn of the event loop; pure.

The purpose of a connection is known only from its first request. So there are three pools: connections without a
complete request head (*pending*), those of *readers*, and those whose last request was *privileged*. A herd of readers
fills its own pool and gets 503s, without taking the connections of privileged requests.
"""

import asyncio
import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, Generic, Protocol, TypeVar

from diem.process.limits import AdmissionResult, networks
from diem.process.listeners import Network, is_in, is_loopback

GRACE_S: Final = 1.0
"""Age below which a pending connection is not evicted for a newer one: its request may be under way."""
EVICTION_CANDIDATES: Final = 8
"""Idle connections to check for one with its response read; the others go to the end of the queue."""


REQUESTS_PER_TURN: Final = 16
"""Requests begun in one turn, some milliseconds of work, so that work of many turns makes progress."""
HEAD_START_S: Final = 0.05
"""Time without new reads after a write starts: a commit takes some fifty turns, and a thread delayed by busy ones."""
READS_BESIDE_WRITES: Final = 1
"""Reads begun in one turn after that, while writes are in progress."""


class LimitedConnection(Protocol):
    """The limits' view of a connection."""

    @property
    def drained(self) -> bool:
        """True if the client has read everything sent to it."""
        ...

    def evict(self) -> None:
        """Close the connection at once; called only between requests."""
        ...


C = TypeVar("C", bound=LimitedConnection)


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Bounds of one listener; at most the sum of the three pools is open."""

    readers: int = 1000
    privileged: int = 0
    """Connections reserved for privileged requests; 0 if there are no such requests."""
    pending: int = 2048
    """The size of the kernel's backlog (``listeners.BACKLOG``), so that a herd is answered, not reset."""
    per_address: Callable[[str], int | None] = lambda _address: None
    """Returns the limit of an address's connections in one pool; None for no limit."""


def address_bound(connections: int, *, loopback: int, trusted: Sequence[Network] = ()) -> Callable[[str], int | None]:
    """Return a function for :attr:`ConnectionLimits.per_address`.

    Trusted proxies have no limit: the clients behind them share their addresses.

    Args:
        connections: limit of any other address.
        loopback: limit of an address of this machine, which local tools and unconfigured proxies share.
        trusted: the networks of trusted proxies.
    """

    def bound(address: str) -> int | None:
        if trusted and is_in(address, trusted):
            return None
        return loopback if is_loopback(address) else connections

    return bound


class _Share(Generic[C]):
    """The connections of one address in one pool."""

    __slots__ = ("count", "idle")

    def __init__(self) -> None:
        self.count = 0
        self.idle: dict[C, None] = {}


class Pool(Generic[C]):
    """At most ``limit`` connections; idle ones (between requests) are evicted for new ones.

    An address at its limit (``per_address``) evicts its own oldest idle connection, as does a wider network of IPv6
    addresses, with a multiple of that limit. Idle connections younger than ``grace_s`` are not evicted.
    """

    def __init__(self, limit: int, per_address: Callable[[str], int | None], *, grace_s: float = 0.0) -> None:
        self._limit = limit
        self._per_address = per_address
        self._grace_s = grace_s
        self.members: dict[C, tuple[str, ...]] = {}
        """Connection -> keys of the networks that it is counted under; none where there is no limit."""
        self._idle: dict[C, float] = {}
        self._shares: dict[str, _Share[C]] = {}

    def __len__(self) -> int:
        return len(self.members)

    @property
    def idle(self) -> int:
        """Number of connections between requests."""
        return len(self._idle)

    @property
    def busy(self) -> int:
        """Number of connections with a request in progress."""
        return len(self.members) - len(self._idle)

    @property
    def addresses(self) -> int:
        """Number of networks with connections in the pool."""
        return len(self._shares)

    def join(self, connection: C, address: str, now: float) -> AdmissionResult | None:
        """Add a busy connection, evicting an idle one if necessary; return the reason of a refusal, or None."""
        bound = self._per_address(address)
        counted = () if bound is None else networks(address)
        evicted = False
        for key, times in counted:
            share = self._shares.get(key)
            # An eviction in a narrower network has made room here, too.
            if bound is not None and share is not None and share.count >= bound * times:
                if not self._evict_oldest(share.idle, now):
                    return AdmissionResult.ADDRESS_LIMIT
                evicted = True
        if not evicted and len(self.members) >= self._limit and not self._evict_oldest(self._idle, now):
            return AdmissionResult.PROCESS_FULL
        # The evicted connection may have been this address's only one.
        for key, _ in counted:
            self._shares.setdefault(key, _Share[C]()).count += 1
        self.members[connection] = tuple(key for key, _ in counted)
        return None

    def leave(self, connection: C) -> None:
        """Remove a connection; a no-op if it is not in the pool."""
        self.set_busy(connection)
        for key in self.members.pop(connection, ()):
            share = self._shares[key]
            share.count -= 1
            if not share.count:
                del self._shares[key]

    def set_busy(self, connection: C) -> None:
        """Protect a member from eviction while its request is answered."""
        self._idle.pop(connection, None)
        for key in self.members.get(connection, ()):
            self._shares[key].idle.pop(connection, None)

    def set_idle(self, connection: C, now: float) -> None:
        """Allow the eviction of a member from ``now`` (monotonic seconds) on."""
        keys = self.members.get(connection)
        if keys is not None:
            self.set_busy(connection)
            self._idle[connection] = now
            for key in keys:
                self._shares[key].idle[connection] = None

    def _evict_oldest(self, idle: Mapping[C, object], now: float) -> bool:
        for _ in range(min(EVICTION_CANDIDATES, len(idle))):
            oldest = next(iter(idle))
            if now - self._idle[oldest] < self._grace_s:
                return False
            if oldest.drained:
                self.leave(oldest)
                oldest.evict()
                return True
            self.set_idle(oldest, now)
        return False


class ConnectionLimiter(Generic[C]):
    """The three pools of a listener; each connection is in one of them until :meth:`closed`."""

    def __init__(self, limits: ConnectionLimits) -> None:
        self.pending = Pool[C](limits.pending, limits.per_address, grace_s=GRACE_S)
        self.readers = Pool[C](limits.readers, limits.per_address)
        self.privileged = Pool[C](limits.privileged, lambda _address: None)
        self.refused: dict[AdmissionResult, int] = {AdmissionResult.ADDRESS_LIMIT: 0, AdmissionResult.PROCESS_FULL: 0}
        """Refused connections and requests by reason."""

    def __len__(self) -> int:
        return len(self.pending) + len(self.readers) + len(self.privileged)

    def opened(self, connection: C, address: str, now: float) -> AdmissionResult | None:
        """Admit a new connection to *pending*, or return the reason to close it at once."""
        verdict = self.pending.join(connection, address, now)
        if verdict is None:
            self.pending.set_idle(connection, now)
        else:
            self.refused[verdict] += 1
        return verdict

    def requested(self, connection: C, address: str, now: float, *, privileged: bool) -> AdmissionResult | None:
        """Admit a request with a complete head, or return the reason of its refusal, which must end the connection.

        One connection may carry requests of both kinds in turn, as those of a proxy do.
        """
        if privileged and self._move(connection, self.privileged, address, now) is None:
            return None
        verdict = self._move(connection, self.readers, address, now)
        if verdict is not None:
            self.refused[verdict] += 1
            # Not evicted before the refusal is sent.
            for pool in (self.pending, self.privileged):
                pool.set_busy(connection)
        return verdict

    def admits_at_once(self, connection: C, address: str, now: float) -> bool:
        """Admit a reader's request answered in this very step; if refused, return False and count nothing."""
        if self._move(connection, self.readers, address, now) is not None:
            return False
        self.readers.set_idle(connection, now)
        return True

    def answered(self, connection: C, now: float) -> None:
        """Mark a connection as idle: the response has been written."""
        for pool in (self.readers, self.privileged):
            if connection in pool.members:
                pool.set_idle(connection, now)

    def closed(self, connection: C) -> None:
        """Remove a connection that ended or was handed over."""
        for pool in (self.pending, self.readers, self.privileged):
            pool.leave(connection)

    def _move(self, connection: C, pool: Pool[C], address: str, now: float) -> AdmissionResult | None:
        """Have a connection in a pool, busy, and in no other; or return the reason of the pool's refusal."""
        if connection in pool.members:
            pool.set_busy(connection)
            return None
        verdict = pool.join(connection, address, now)
        if verdict is None:
            for other in (self.pending, self.readers, self.privileged):
                if other is not pool and connection in other.members:
                    other.leave(connection)
        return verdict


class ReadyConnection(Protocol):
    """A connection with received data."""

    def process_received(self) -> None:
        """Process the received data."""
        ...


class ReadsPerTurn:
    """The number of reads allowed to begin per turn of the event loop: few while ``is_writing``, none at its start."""

    def __init__(self, is_writing: Callable[[], bool]) -> None:
        self._is_writing = is_writing
        self._since = -math.inf
        """When the writes began that are in progress."""
        self._last_turn = -math.inf

    def __call__(self, now: float) -> int:
        """Return the number for the turn at ``now`` (monotonic seconds, never decreasing); 0: none yet."""
        if not self._is_writing():
            self._since = math.inf
            return REQUESTS_PER_TURN
        if now - self._last_turn > HEAD_START_S or self._since > now:
            self._since = now
        self._last_turn = now
        return 0 if now - self._since < HEAD_START_S else READS_BESIDE_WRITES


PAUSE_S: Final = 0.001
"""Pause after a turn in which no request may begin: the loop sleeps meanwhile."""

Schedule = Callable[[Callable[[], None]], object]
"""Schedules a function on the event loop."""


class RequestTurns:
    """Limits the requests begun in one turn of the loop; the others wait, first come, first served.

    Otherwise the requests of a thousand readers are processed in one turn, and a task of twenty turns waits for twenty
    thousand requests. The queue is bounded by the connections, each of which waits at most once.

    Args:
        soon: calls in the next turn.
        later: calls after :data:`PAUSE_S`.
        per_turn: returns the number allowed to begin in this turn.
    """

    def __init__(self, soon: Schedule, later: Schedule, per_turn: Callable[[], int]) -> None:
        self._soon = soon
        self._later = later
        self._per_turn = per_turn
        self._left = 0
        self._waiting: deque[ReadyConnection] = deque()
        self._scheduled = False

    def __len__(self) -> int:
        return len(self._waiting)

    def may_begin(self) -> bool:
        """Return whether a request may begin in this turn, and count it."""
        if not self._scheduled:
            self._begin_turn()
        if self._waiting or not self._left:
            return False
        self._left -= 1
        return True

    def wait(self, connection: ReadyConnection) -> None:
        """Queue a connection after :meth:`may_begin` returned False; at most once at a time."""
        self._waiting.append(connection)

    def _begin_turn(self) -> None:
        self._left = self._per_turn()
        self._scheduled = True
        (self._soon if self._left else self._later)(self._run)

    def _run(self) -> None:
        self._scheduled = False
        if self._waiting:
            self._begin_turn()
        while self._waiting and self._left:
            self._left -= 1
            self._waiting.popleft().process_received()


def turns_of_loop(per_turn: Callable[[float], int] = lambda _now: REQUESTS_PER_TURN) -> RequestTurns:
    """Limit requests per turn of the running event loop; ``per_turn`` gets monotonic seconds."""
    loop = asyncio.get_running_loop()
    return RequestTurns(loop.call_soon, partial(loop.call_later, PAUSE_S), lambda: per_turn(loop.time()))
