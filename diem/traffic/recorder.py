"""Records events at the edge as small tuples in a bounded queue, encoded later by the flusher."""

import math
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from copy import copy
from itertools import islice
from secrets import token_bytes, token_hex
from typing import Final, NamedTuple

from diem.fanout.fanout import UpdateCounter
from diem.fanout.session import Session
from diem.process.limits import address_key
from diem.process.listeners import is_loopback
from diem.protocol.endpoints import CANARY
from diem.protocol.traffic import MAX_ACCESSED, MAX_COUNTED, MAX_NAMES, Accessed, Counted, TrafficEvent, Type, encode
from diem.traffic.salt import DailySalt, client_identity

MAX_QUEUED: Final = 100_000
"""Limit of queued events."""
MAX_BYTES: Final = 16 << 20
"""Approximate limit of the memory of queued events."""
EVENT_BYTES: Final = 250
"""Memory of an event and its client."""
NAME_BYTES: Final = 50
"""Memory of an endpoint name besides its characters."""
COUNTED_BYTES: Final = 120
"""Memory of a counted endpoint."""
RENEWED_AT_ONCE: Final = 25
"""Connections renamed for a new day per turn of the loop, about 1 ms; 10,000 take 7 minutes."""
FULL: Final = "queue"
"""Drop reason with a working sink: events are recorded faster than written."""


_CANARY: Final = CANARY.encode()


def _without_canaries(endpoints: Iterable[bytes]) -> list[bytes]:
    """Return the endpoints without canaries, which plans leave out."""
    return [name for name in endpoints if not name.startswith(_CANARY)]


class _Item(NamedTuple):
    type: Type
    time: int
    source: "RecordedConnection | None"
    endpoints: tuple[bytes, ...]
    unknown: tuple[bytes, ...]
    sharers: int
    since: int
    counter: UpdateCounter | None
    events: int
    size: int


class RecordedConnection:
    """One connection of a client on one day (the session's ``ClientTrace``).

    Recorded from its first subscription on, which carries the client's id.
    """

    __slots__ = ("_recorder", "address", "client", "connection", "identity", "session", "shares")

    def __init__(self, recorder: "Recorder", session: Session, connection: bytes, address: str) -> None:
        self._recorder = recorder
        self.session = session
        self.identity: str | None = None
        """The client's own id, if it has sent one; used only within this process, and never written."""
        self.connection = connection
        self.client = b""
        """The pseudonym; empty until the connection is recorded."""
        self.address = address_key(address)
        """Key of the address; used only within this process, and never written."""
        self.shares = bool(address) and not is_loopback(address)
        """The clients of the address share one weight; those of this machine, tests and tools, do not."""

    def identified(self, client: str) -> None:
        """Set the client's self-chosen id; only the first counts, and none once the connection is recorded."""
        if not self.client and self.identity is None:
            self.identity = client

    def subscribed(self, endpoints: Sequence[bytes], unknown: Collection[bytes] = ()) -> None:
        """Record new subscriptions; this server has no version of the ``unknown`` ones."""
        recorded = _without_canaries(endpoints)
        if not recorded:
            return
        if not self.client:
            self._recorder.begin(self)
        self._recorder.put(Type.SUBSCRIBE, self, recorded, _without_canaries(unknown))

    def unsubscribed(self, endpoints: Sequence[bytes]) -> None:
        """Record removed subscriptions."""
        if self.client and (recorded := _without_canaries(endpoints)):
            self._recorder.put(Type.UNSUBSCRIBE, self, recorded)

    def renewed(self) -> "RecordedConnection":
        """Return the same connection under a new name, not recorded yet."""
        new = copy(self)
        new.connection, new.client = token_bytes(len(self.connection)), b""
        return new

    def ended(self) -> None:
        """Record the end of the connection."""
        self._recorder.end(self)
        self._recorder.connections -= 1


class _EventSource:
    """Event ids of one incarnation, and counts of recorded and dropped events."""

    def __init__(self, edge: str) -> None:
        self.edge = edge
        self.incarnation = token_hex(6)
        """Identifies this incarnation of the process in event ids."""
        self.recorded: Counter[str] = Counter()
        """Events by type."""
        self.dropped: Counter[str] = Counter()
        """Dropped events by reason."""
        self.drop_reason = FULL
        """Reason for which events are dropped now."""
        self._last_number = 0

    def drop(self, events: int, reason: str) -> None:
        """Count events as dropped."""
        self.dropped[reason] += events

    def _id(self) -> str:
        self._last_number += 1
        return f"{self.incarnation}-{self._last_number}"


class Recorder(_EventSource):
    """Queue of events (the edge's ``TraceSink``), encoded by :meth:`next` in order.

    When the queue is full, new events are dropped and counted, so that the queued ones stay complete. ``recorded`` is
    the sum of the written, dropped and ``queued`` events. The clients of one address may fill at most as much of the
    queue as is free (the dynamic threshold of Choudhury and Hahne, 1998): a flooding one gets half, and others always
    have room.

    Args:
        edge: the name of this process in events.
        salt: makes the day's pseudonyms: equal for one client at all processes with the same salt, else meaningless.
        wall_ms: returns Unix milliseconds.
        counter: counts updates; :meth:`count` reads and clears it.
        count_open: returns the open connections of an address, among which its weight in plans is divided.
    """

    def __init__(
        self,
        edge: str,
        salt: DailySalt,
        wall_ms: Callable[[], int],
        counter: UpdateCounter,
        *,
        count_open: Callable[[str], int] = lambda _address: 1,
        max_queued: int = MAX_QUEUED,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        super().__init__(edge)
        self.queued = 0
        """Events that were not dequeued yet."""
        self.connections = 0
        """Open connections of clients."""
        self._idle = False
        """Nothing has happened since the last count; a new incarnation is recorded once in any case."""
        self._salt = salt
        self._begun: dict[RecordedConnection, None] = {}
        """Recorded connections that are open."""
        self._stale: deque[RecordedConnection] = deque()
        """Those of them that have pseudonyms of an earlier day."""
        self._wall_ms = wall_ms
        self._counter = counter
        self._since = wall_ms()
        self._count_open = count_open
        self._waiting: dict[str, tuple[int, int]] = {}
        """Queued events and bytes by address."""
        self._max_queued = max_queued
        self._max_bytes = max_bytes
        self._queue: deque[_Item] = deque()
        self._bytes = 0
        self._open: Iterator[TrafficEvent] = iter(())
        """Remaining events of the item that is being encoded."""

    def connected(self, session: Session, connection: bytes, address: str = "") -> RecordedConnection:
        """Return the trace of a new connection; until it is identified, it counts as a separate client."""
        self.connections += 1
        return RecordedConnection(self, session, connection, address)

    def begin(self, source: RecordedConnection) -> None:
        """Record the start of a connection, under its client's pseudonym of the day."""
        client = source.identity
        identity = b"connection:" + source.connection if client is None else client_identity(client)
        source.client = self._salt.pseudonym(identity)
        self._begun[source] = None
        self.put(Type.CONNECT, source)

    def end(self, source: RecordedConnection) -> None:
        """Record the end of a recorded connection."""
        if source in self._begun:
            del self._begun[source]
            self.put(Type.DISCONNECT, source)

    def renew(self) -> None:
        """After midnight (UTC), end every recorded connection and begin it under another name and pseudonym.

        Nothing in the events connects the two days of a client. A few at a time, and none while the queue is half full:
        without its end, the earlier part would count until the process ends.
        """
        if self._salt.advance(self._wall_ms()):
            self._stale = deque(self._begun)
        for _ in range(min(RENEWED_AT_ONCE, len(self._stale))):
            if 2 * self.queued > self._max_queued or 2 * self._bytes > self._max_bytes:
                return
            before = self._stale.popleft()
            if before not in self._begun:
                continue
            self.end(before)
            after = before.session.trace = before.renewed()
            self.begin(after)
            if endpoints := tuple(_without_canaries(before.session.endpoints)):
                # Existence was recorded on subscribing: here it is only the client's claim.
                self.put(Type.SUBSCRIBE, after, endpoints, endpoints)

    def put(
        self,
        type_: Type,
        source: RecordedConnection,
        endpoints: Sequence[bytes] = (),
        unknown: Collection[bytes] = (),
    ) -> None:
        """Queue one event of a client, or several if it has more than :data:`MAX_NAMES` endpoints."""
        if len(endpoints) > MAX_NAMES:
            for start in range(0, len(endpoints), MAX_NAMES):
                part = endpoints[start : start + MAX_NAMES]
                self.put(type_, source, part, set(part).intersection(unknown))
            return
        self._idle = False
        size = EVENT_BYTES + NAME_BYTES * len(endpoints) + sum(map(len, endpoints))
        sharers = max(1, self._count_open(source.address)) if source.shares else 1
        self._offer(_Item(type_, self._wall_ms(), source, tuple(endpoints), tuple(unknown), sharers, 0, None, 1, size))

    def count(self) -> None:
        """Queue an event with the updates counted since the last call.

        With clients, even an empty count is recorded, as a sign of life. Without clients, one empty count is the last,
        so that an idle process writes no files (docs/traffic.md section 1).
        """
        until = self._wall_ms()
        if until <= self._since:
            # The wall clock was set back: what is counted belongs to the interval that begins now.
            self._since = until
            return
        counted = self._counter.swap()
        since, self._since = self._since, until
        idle, self._idle = self._idle, not (counted or self.connections)
        if idle and self._idle:
            return
        events = math.ceil(len(counted) / MAX_COUNTED) or 1
        size = EVENT_BYTES + COUNTED_BYTES * len(counted)
        self._offer(_Item(Type.COUNTS, until, None, (), (), 1, since, counted, events, size))

    def next(self) -> bytes | None:
        """Dequeue and encode the oldest event; None when the queue is empty."""
        event = next(self._open, None)
        if event is None:
            if not self._queue:
                return None
            item = self._queue.popleft()
            self._bytes -= item.size
            self._count_for_address(item, -1)
            self._open = self._events(item)
            event = next(self._open)
        self.queued -= 1
        return encode(event)

    def drop_all(self, reason: str) -> None:
        """Drop all queued events."""
        self.drop(self.queued, reason)
        self._queue.clear()
        self._waiting.clear()
        self._open = iter(())
        self.queued = self._bytes = 0

    def _offer(self, item: _Item) -> None:
        self.recorded[item.type] += item.events
        # Counts are not charged: they are already in memory, and those of very many endpoints would never fit.
        more = 0 if item.counter is not None else item.size
        if self.queued >= self._max_queued or self._bytes + more > self._max_bytes:
            self.dropped[self.drop_reason] += item.events
            return
        if item.source is not None and item.source.address:
            events, size = self._waiting.get(item.source.address, (0, 0))
            if events + self.queued >= self._max_queued or size + self._bytes + more > self._max_bytes:
                self.dropped[self.drop_reason] += item.events
                return
        self._queue.append(item)
        self._bytes += item.size
        self.queued += item.events
        self._count_for_address(item, 1)

    def _count_for_address(self, item: _Item, sign: int) -> None:
        """Add a queued item to the count of its address (``sign`` 1), or subtract a dequeued one (-1)."""
        if item.source is not None and (address := item.source.address):
            events, size = self._waiting.get(address, (0, 0))
            now = events + sign * item.events, size + sign * item.size
            if now[0]:
                self._waiting[address] = now
            else:
                self._waiting.pop(address, None)

    def _events(self, item: _Item) -> Iterator[TrafficEvent]:
        source = item.source
        if source is not None:
            client, connection = source.client.hex(), source.connection.hex()
            names, unknown = tuple(map(bytes.decode, item.endpoints)), tuple(map(bytes.decode, item.unknown))
            yield TrafficEvent(
                item.type, self._id(), item.time, self.edge, client, connection, names, unknown, item.sharers
            )
        elif item.counter is not None:
            counts = iter(item.counter)
            for _ in range(item.events):
                part = {
                    name.decode(): Counted(received, sent)
                    for name, received, sent in islice(counts, MAX_COUNTED)
                    if not name.startswith(_CANARY)
                }
                yield TrafficEvent(
                    item.type, self._id(), item.time, self.edge, since=item.since, until=item.time, updates=part
                )


MAX_QUEUED_ACCESSES: Final = 500
"""Limit of queued events: 7 minutes of the most that can be counted, hours of the usual."""


class AccessCounter(_EventSource):
    """Queue of events of type ``access``, encoded by :meth:`next`.

    When the queue is full, new events are dropped and counted. ``recorded`` is the sum of the written, dropped and
    ``queued`` events.

    Args:
        edge: the name of this process in events.
        wall_ms: returns Unix milliseconds.
        take: returns the requests counted since its last call.
    """

    def __init__(
        self,
        edge: str,
        wall_ms: Callable[[], int],
        take: Callable[[], Sequence[Accessed]],
        *,
        max_queued: int = MAX_QUEUED_ACCESSES,
    ) -> None:
        super().__init__(edge)
        self._wall_ms = wall_ms
        self._take = take
        self._max_queued = max_queued
        self._since = wall_ms()
        self._queue: deque[TrafficEvent] = deque()

    @property
    def queued(self) -> int:
        """Events that were not dequeued yet."""
        return len(self._queue)

    def renew(self) -> None:
        """Do nothing: API keys have no pseudonyms."""

    def count(self) -> None:
        """Queue events with the requests counted since the last call, if any."""
        until = self._wall_ms()
        if until <= self._since:
            # The wall clock was set back: what is counted belongs to the interval that begins now.
            self._since = until
            return
        counted = self._take()
        for start in range(0, len(counted), MAX_ACCESSED):
            self.recorded[Type.ACCESS] += 1
            if len(self._queue) >= self._max_queued:
                self.dropped[self.drop_reason] += 1
                continue
            part = tuple(counted[start : start + MAX_ACCESSED])
            self._queue.append(
                TrafficEvent(Type.ACCESS, "", until, self.edge, since=self._since, until=until, requests=part)
            )
        self._since = until

    def next(self) -> bytes | None:
        """Dequeue and encode the oldest event; None when the queue is empty."""
        if not self._queue:
            return None
        return encode(self._queue.popleft()._replace(id=self._id()))

    def drop_all(self, reason: str) -> None:
        """Drop all queued events."""
        self.drop(self.queued, reason)
        self._queue.clear()
