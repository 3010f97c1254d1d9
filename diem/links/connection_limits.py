"""Limits of an HTTP listener: its open connections, and the requests begun in one turn of the event loop; pure.

What a connection is for is known only when it has sent a request. So there are three pools: connections that have not
sent a whole request head yet (*pending*), those of *readers*, and those whose last request was *privileged*. A herd of
readers fills its own pool and is answered 503; privileged requests have connections of their own.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeVar

from diem.process.limits import AdmissionResult, address_key
from diem.process.listeners import Network, is_in, is_loopback

GRACE_S: Final = 1.0
"""A pending connection that is younger is not closed for a newer one: its request may be on its way."""
EVICTION_CANDIDATES: Final = 8
"""Idle connections that are looked at for one whose answer has been taken; the others get another turn."""


class LimitedConnection(Protocol):
    """A connection as far as the limits are concerned."""

    @property
    def drained(self) -> bool:
        """Whether the client has taken everything that was sent to it."""
        ...

    def evict(self) -> None:
        """Close the connection at once; no request is being answered on it."""
        ...


C = TypeVar("C", bound=LimitedConnection)


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """The bounds of one listener. The most that can be open is the sum of the three pools."""

    readers: int = 1000
    privileged: int = 0
    """Connections beside those of readers for requests that are privileged; 0: there are no such requests."""
    pending: int = 2048
    """As many as the kernel may hand over at once (``listeners.BACKLOG``): a herd is answered, not reset."""
    per_address: Callable[[str], int | None] = lambda _address: None
    """How many connections of an address may be in one pool; None: no bound of its own."""


def address_bound(connections: int, *, loopback: int, trusted: Sequence[Network] = ()) -> Callable[[str], int | None]:
    """Return the rule for ``ConnectionLimits.per_address``.

    Trusted proxies have no bound of their own: whoever is behind them comes from their address.

    Args:
        connections: of any other address.
        loopback: of an address of this machine, which local tools and proxies that nobody told us of share.
        trusted: the networks of trusted proxies.
    """

    def bound(address: str) -> int | None:
        if trusted and is_in(address, trusted):
            return None
        return loopback if is_loopback(address) else connections

    return bound


class _Share(Generic[C]):
    """What one address has in one pool."""

    __slots__ = ("count", "idle")

    def __init__(self) -> None:
        self.count = 0
        self.idle: dict[C, None] = {}


class Pool(Generic[C]):
    """At most ``limit`` connections. Those on which nothing is being answered are idle, and give way to new ones.

    ``per_address`` bounds what one address has; its oldest idle connection gives way to its next one.
    """

    def __init__(self, limit: int, per_address: Callable[[str], int | None], *, grace_s: float = 0.0) -> None:
        self._limit = limit
        self._per_address = per_address
        self._grace_s = grace_s
        self._members: dict[C, str] = {}
        self._idle: dict[C, float] = {}
        self._shares: dict[str, _Share[C]] = {}

    def __len__(self) -> int:
        return len(self._members)

    def __contains__(self, connection: object) -> bool:
        return connection in self._members

    @property
    def idle(self) -> int:
        """Connections on which nothing is being answered."""
        return len(self._idle)

    @property
    def addresses(self) -> int:
        """Addresses that have connections here."""
        return len(self._shares)

    def join(self, connection: C, address: str, now: float) -> AdmissionResult | None:
        """Let a connection in, busy; an idle one is closed for it where there is no room otherwise.

        Returns why it is not admitted, or None.
        """
        key, bound = address_key(address), self._per_address(address)
        share = self._shares.get(key)
        if bound is not None and share is not None and share.count >= bound:
            if not self._evict_oldest(share.idle, now):
                return AdmissionResult.ADDRESS_LIMIT
        elif len(self._members) >= self._limit and not self._evict_oldest(self._idle, now):
            return AdmissionResult.PROCESS_FULL
        # Its address may have had no other connection than the one that was closed.
        share = self._shares.setdefault(key, _Share[C]())
        share.count += 1
        self._members[connection] = key
        return None

    def leave(self, connection: C) -> None:
        """Forget a connection; one that is not here changes nothing."""
        key = self._members.pop(connection, None)
        if key is None:
            return
        self.set_busy(connection, key)
        share = self._shares[key]
        share.count -= 1
        if not share.count:
            del self._shares[key]

    def set_busy(self, connection: C, key: str | None = None) -> None:
        """A request of a member is being answered: it does not give way."""
        self._idle.pop(connection, None)
        key = self._members.get(connection) if key is None else key
        if key is not None:
            self._shares[key].idle.pop(connection, None)

    def set_idle(self, connection: C, now: float) -> None:
        """Nothing is being answered on a member from now (monotonic seconds) on."""
        key = self._members.get(connection)
        if key is not None:
            self.set_busy(connection, key)
            self._idle[connection] = now
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
    """Keeps every connection of a listener in one of three pools. Call :meth:`closed` once a connection has ended."""

    def __init__(self, limits: ConnectionLimits) -> None:
        self.pending = Pool[C](limits.pending, limits.per_address, grace_s=GRACE_S)
        self.readers = Pool[C](limits.readers, limits.per_address)
        self.privileged = Pool[C](limits.privileged, lambda _address: None)
        self.refused: dict[AdmissionResult, int] = {AdmissionResult.ADDRESS_LIMIT: 0, AdmissionResult.PROCESS_FULL: 0}
        """Connections and requests that were refused, by the reason."""

    def __len__(self) -> int:
        return len(self.pending) + len(self.readers) + len(self.privileged)

    def opened(self, connection: C, address: str, now: float) -> AdmissionResult | None:
        """Let a new connection in, which has not sent anything; otherwise it must be closed at once."""
        verdict = self.pending.join(connection, address, now)
        if verdict is None:
            self.pending.set_idle(connection, now)
        else:
            self.refused[verdict] += 1
        return verdict

    def requested(self, connection: C, address: str, now: float, *, privileged: bool) -> AdmissionResult | None:
        """Decide on a request, whose head has been read; one that is not admitted must end its connection.

        A connection may carry requests of either kind in turn, as those of a proxy do.
        """
        if privileged and self._moved(connection, self.privileged, address, now) is None:
            return None
        verdict = self._moved(connection, self.readers, address, now)
        if verdict is not None:
            self.refused[verdict] += 1
            # It is told so before it is closed.
            for pool in (self.pending, self.privileged):
                pool.set_busy(connection)
        return verdict

    def answered(self, connection: C, now: float) -> None:
        """The answer to a request has been written."""
        for pool in (self.readers, self.privileged):
            if connection in pool:
                pool.set_idle(connection, now)

    def closed(self, connection: C) -> None:
        """Forget a connection that has ended, or has become something else."""
        for pool in (self.pending, self.readers, self.privileged):
            pool.leave(connection)

    def _moved(self, connection: C, pool: Pool[C], address: str, now: float) -> AdmissionResult | None:
        if connection in pool:
            pool.set_busy(connection)
            return None
        verdict = pool.join(connection, address, now)
        if verdict is None:
            for other in (self.pending, self.readers, self.privileged):
                if other is not pool:
                    other.leave(connection)
        return verdict


REQUESTS_PER_TURN: Final = 16
"""Requests that begin in one turn, some milliseconds of work: what takes many turns, as a commit does, goes on."""


class ReadyConnection(Protocol):
    """A connection that has received something."""

    def process_received(self) -> None:
        """Work on what was received."""
        ...


class RequestTurns:
    """What was received waits here when a turn of the loop has enough to do: first come, first served.

    Otherwise a thousand readers that ask at once are worked on in a single turn, and whatever needs the loop twenty
    times waits for twenty thousand of their requests. Bounded by the connections, each of which waits once.
    """

    def __init__(self, soon: Callable[[Callable[[], None]], object], per_turn: int) -> None:
        self._soon = soon
        self._per_turn = per_turn
        self._left = per_turn
        self._waiting: deque[ReadyConnection] = deque()
        self._scheduled = False

    def __len__(self) -> int:
        return len(self._waiting)

    def may_begin(self) -> bool:
        """Whether something may be worked on now; counts it."""
        if not self._scheduled:
            self._scheduled = True
            self._soon(self._next)
        if self._waiting or not self._left:
            return False
        self._left -= 1
        return True

    def wait(self, connection: ReadyConnection) -> None:
        """Let a connection wait for its turn, after :meth:`may_begin` was false."""
        self._waiting.append(connection)

    def _next(self) -> None:
        self._scheduled = False
        self._left = self._per_turn
        if self._waiting:
            self._scheduled = True
            self._soon(self._next)
        while self._waiting and self._left:
            self._left -= 1
            self._waiting.popleft().process_received()


def turns_of_loop() -> RequestTurns:
    """Return the turns of the running event loop."""
    return RequestTurns(lambda call: asyncio.get_running_loop().call_soon(call), REQUESTS_PER_TURN)
