"""Backlog of a log: due updates of each partition, the cursor of the complete part, and the publisher's state."""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, NamedTuple

from diem.errors import DiemError
from diem.kafka.metadata import ReplicaFaults
from diem.protocol.partition_map import HOT, PartitionMap, Phase
from diem.protocol.update import Change
from services.data.publisher.offsets import Extent, OffsetTracker, encode_extents
from services.data.publisher.refusals import RefusedRecords
from services.data.store.tables import Cursor

NO_SEQUENCE: Final = 1 << 63
"""Above every sequence, for endpoints that are only resent or not pending: it does not hold the cursor back."""


class PartitionQueue:
    """The due and in-flight endpoints of one partition.

    ``due`` and ``in_flight`` map each endpoint to the lowest of its sequences that the log may lack. At most one
    request is in flight: an endpoint that changes meanwhile is due after it.
    """

    __slots__ = ("due", "first", "first_in_flight", "in_flight", "tombstones", "tombstones_in_flight")

    def __init__(self) -> None:
        self.due: dict[bytes, int] = {}
        self.in_flight: dict[bytes, int] = {}
        self.first: set[bytes] = set()
        """Endpoints newly routed to this partition whose first record is not yet acknowledged."""
        self.first_in_flight: set[bytes] = set()
        """Those of :attr:`first` in flight, with the update that was current when the request was made."""
        self.tombstones: dict[bytes, None] = {}
        """Endpoints no longer routed to this partition, whose tombstone is due."""
        self.tombstones_in_flight: dict[bytes, None] = {}

    @property
    def stable(self) -> bool:
        """True once the log has everything required of this partition by a change of the map."""
        return not (self.first or self.tombstones or self.tombstones_in_flight)

    def enqueue_first(self, endpoint: bytes) -> None:
        """Enqueue the first update of a newly routed ``endpoint``: readers of the partition do not know it yet."""
        self.tombstones.pop(endpoint, None)
        self.first.add(endpoint)
        self.first_in_flight.discard(endpoint)
        self.enqueue(endpoint, NO_SEQUENCE)

    def enqueue_tombstone(self, endpoint: bytes) -> int:
        """Enqueue the tombstone of an endpoint that is no longer routed here.

        Returns:
            Its lowest sequence pending here, else :data:`NO_SEQUENCE`; the update is due elsewhere now.
        """
        self.first.discard(endpoint)
        self.first_in_flight.discard(endpoint)
        self.tombstones[endpoint] = None
        return min(self.due.pop(endpoint, NO_SEQUENCE), self.in_flight.get(endpoint, NO_SEQUENCE))

    def enqueue(self, endpoint: bytes, sequence: int) -> None:
        """Enqueue ``endpoint``, which the log may lack from ``sequence`` on."""
        held = self.due.get(endpoint)
        if held is None or sequence < held:
            self.due[endpoint] = sequence

    def lower_if_pending(self, endpoint: bytes, sequence: int) -> None:
        """Lower the sequence of a due or in-flight ``endpoint`` to ``sequence``."""
        for pending in (self.due, self.in_flight):
            if endpoint in pending:
                pending[endpoint] = min(pending[endpoint], sequence)

    def dequeue(self, limit: int, held: Collection[bytes] = ()) -> list[bytes]:
        """Move the endpoints of the next request in flight, longest due first, except ``held``."""
        batch = list(islice((endpoint for endpoint in self.due if endpoint not in held), limit))
        self.in_flight = {endpoint: self.due.pop(endpoint) for endpoint in batch}
        self.first_in_flight = {endpoint for endpoint in batch if endpoint in self.first}
        return batch

    def dequeue_tombstones(self, limit: int, held: Collection[bytes] = ()) -> list[bytes]:
        """Move the tombstones of the next request in flight; for :meth:`Backlog.dequeue_tombstones`."""
        batch = list(islice((endpoint for endpoint in self.tombstones if endpoint not in held), limit))
        self.tombstones_in_flight = {endpoint: self.tombstones.pop(endpoint) for endpoint in batch}
        return batch

    def acknowledged(self) -> None:
        """Clear the endpoints in flight: they were acknowledged."""
        # Including endpoints changed meanwhile, whose later updates follow: one that changes during every request would
        # otherwise never count as written.
        self.first -= self.first_in_flight
        self.in_flight, self.first_in_flight, self.tombstones_in_flight = {}, set(), {}

    def requeue(self, endpoints: Iterable[bytes] | None = None) -> None:
        """Requeue the endpoints in flight, or only ``endpoints``; the next request sends their current updates."""
        for endpoint in list((self.in_flight | self.tombstones_in_flight) if endpoints is None else endpoints):
            self.first_in_flight.discard(endpoint)
            if endpoint in self.tombstones_in_flight:
                del self.tombstones_in_flight[endpoint]
                if endpoint not in self.due:
                    self.tombstones[endpoint] = None
            elif endpoint in self.tombstones:
                # Rerouted meanwhile: its current update is due in its new partition.
                del self.in_flight[endpoint]
            else:
                self.enqueue(endpoint, self.in_flight.pop(endpoint))

    def lowest_pending(self) -> int:
        """Return the lowest sequence possibly missing in the log."""
        return min(min(self.due.values(), default=NO_SEQUENCE), min(self.in_flight.values(), default=NO_SEQUENCE))


class Backlog:
    """The changes possibly missing in a log: a queue per partition, and a last one for the topic of hot updates.

    Bounded for any outage of the log: each endpoint is at most twice in each of its queues, due and in flight.

    Args:
        partitions: of the updates topic; the map may use fewer of them.
        cursor: the sequence up to which the log is complete.
        map_: routes each endpoint to partitions.
    """

    def __init__(self, partitions: int, cursor: int, map_: PartitionMap) -> None:
        self.queues = [PartitionQueue() for _ in range(partitions + 1)]
        self.ingested = cursor
        """Changes up to this sequence were ingested."""
        self.map = map_
        """The current map."""
        self._homes: dict[bytes, tuple[int, ...]] = {}

    def __len__(self) -> int:
        """Endpoints due or in flight."""
        return sum(len(queue.due) + len(queue.in_flight) for queue in self.queues)

    def homes(self, endpoint: bytes) -> tuple[int, ...]:
        """Return the queue numbers of an endpoint; cached, as the hash is slow in Python."""
        homes = self._homes.get(endpoint)
        if homes is None:
            homes = self._homes[endpoint] = self._queues_of(endpoint)
        return homes

    def _queues_of(self, endpoint: bytes) -> tuple[int, ...]:
        return tuple([self._queue_number(place) for place in self.map.written_to(endpoint)])

    def _queue_number(self, place: int) -> int:
        return len(self.queues) - 1 if place == HOT else place

    @property
    def stable(self) -> bool:
        """True once the log has everything required by the map's phase, so that it can be acknowledged."""
        return all(queue.stable for queue in self.queues)

    def unknown(self, is_known: Callable[[bytes], bool]) -> list[bytes]:
        """Return the never published endpoints in the map, possibly invented by its other writers.

        Ordered by relevance, since an acknowledgement may not have room for all: in PREPARE the moving ones first, in
        RETIRE the others, because the entries of moving ones are about to change anyway.
        """
        found = [name for name in self.map.entries if not is_known(name)]
        moving_first = self.map.head.phase is Phase.PREPARE
        return sorted(found, key=lambda name: (self.map.entries[name].target is None) is moving_first)

    def dequeue_tombstones(self, number: int, limit: int, held: Collection[bytes] = ()) -> list[bytes]:
        """Dequeue tombstones of a partition; none until every endpoint has its first update in its new partition.

        Thus the log as a whole always has an update of every endpoint.
        """
        return [] if any(queue.first for queue in self.queues) else self.queues[number].dequeue_tombstones(limit, held)

    def with_tombstones(self) -> list[int]:
        """Return the partitions with tombstones to send now."""
        if any(queue.first for queue in self.queues):
            return []
        return [number for number, queue in enumerate(self.queues) if queue.tombstones]

    def resume_phase(self, endpoints: Collection[bytes]) -> None:
        """Enqueue everything required by the map's phase: the progress of an earlier publisher is unknown.

        ``endpoints`` are all of the store.
        """
        phase = self.map.head.phase
        if phase not in {Phase.PREPARE, Phase.RETIRE}:
            return
        for endpoint in self.map.entries.keys() & set(endpoints):
            home, target = self.map.entry(endpoint)
            if target in {None, home}:
                continue
            queues = self.homes(endpoint)
            if phase is Phase.PREPARE:
                self.queues[queues[-1]].enqueue_first(endpoint)
            else:
                self.queues[self._queue_number(home)].enqueue_tombstone(endpoint)

    def ingest(self, changes: Iterable[Change]) -> set[int]:
        """Ingest changes in the order of the store, beyond :attr:`ingested`; return the partitions with work."""
        touched: set[int] = set()
        for change in changes:
            homes = self.homes(change.endpoint)
            for home in homes:
                self.queues[home].enqueue(change.endpoint, change.sequence)
            touched.update(homes)
            self.ingested = change.sequence
        return touched

    def resend(self, endpoints: Iterable[bytes]) -> set[int]:
        """Re-enqueue endpoints, in case the log ends with older updates; return the partitions with work."""
        touched: set[int] = set()
        for endpoint in endpoints:
            homes = self.homes(endpoint)
            for home in homes:
                self.queues[home].enqueue(endpoint, NO_SEQUENCE)
            touched.update(homes)
        return touched

    def switch_map(self, newer: PartitionMap, endpoints: Collection[bytes]) -> set[int]:
        """Switch to another map; return the partitions with work.

        The current update of each of the ``endpoints`` (all of the store) is due in every partition added by ``newer``:
        readers of only that partition have never seen one. In a partition that the endpoint leaves, only a tombstone is
        due, so that readers from the start do not find the endpoint.

        Atomic: an interruption leaves either the old map, or the new one with everything due. Entries cost about 1 us
        each; a change of the number of partitions hashes every endpoint again.
        """
        older, touched = self.map, set[int]()
        if newer == older:
            return touched
        # Only endpoints with an entry in either map can have moved, unless the number of partitions changed.
        moved = older.entries.keys() | newer.entries.keys()
        changed = moved.intersection(endpoints) if newer.head.partitions == older.head.partitions else endpoints
        before = {endpoint: self.homes(endpoint) for endpoint in changed}
        self.map = newer
        for endpoint, had in before.items():
            has = self._homes[endpoint] = self._queues_of(endpoint)
            # An update dropped here holds the cursor back there, even if only due for a resend.
            left = [home for home in had if home not in has]
            touched.update(left)
            pending = min((self.queues[home].enqueue_tombstone(endpoint) for home in left), default=NO_SEQUENCE)
            for home in has:
                if home not in had:
                    self.queues[home].enqueue_first(endpoint)
                    touched.add(home)
                self.queues[home].lower_if_pending(endpoint, pending)
        return touched

    def is_pending(self, endpoints: frozenset[bytes]) -> bool:
        """Return whether any of ``endpoints`` is due or in flight."""
        return any(not endpoints.isdisjoint(part) for queue in self.queues for part in (queue.due, queue.in_flight))

    def forget(self, endpoints: Iterable[bytes]) -> None:
        """Forget the places of endpoints that are no longer in the store."""
        for endpoint in endpoints:
            self._homes.pop(endpoint, None)

    @property
    def cursor(self) -> int:
        """Sequence up to which the log has every change, or a later one of the same endpoint."""
        return min(self.ingested, *(queue.lowest_pending() - 1 for queue in self.queues))


class LogReplaced(DiemError):
    """A topic was recreated, has more partitions, or was deleted: the publisher starts over."""


class LeaderMoved(DiemError):
    """Requests hang at a broker that no longer leads their partitions."""

    retriable = True


class StorePutBack(DiemError):
    """The store is an older copy: its log has later versions. Nothing is published."""


class ChosenDeletions(NamedTuple):
    """Deletions to be forgotten."""

    upto: int
    """The sequence of the last one."""
    ends: list[tuple[int, int]]
    """Incarnation and end of each log, with the last record of one that was no tombstone before it."""
    due: float
    """Time of the loop at which their tombstones may be written."""


@dataclass(slots=True)
class PublisherState:
    """State of publishing to one log, kept across connections."""

    source: str
    map: str | None
    """Id of the map's topic; None if the map must be read before anything is published."""
    backlog: Backlog
    resend_all: bool
    """True to resend everything, spread over a minute: another process published here before."""
    new_store: bool
    """True if the store has never published here, so that the log should be empty."""
    trackers: list[OffsetTracker]
    """Of each queue."""
    unread: dict[int, int] = field(default_factory=dict)
    """Offset of each queue up to which the log was compared with the store."""
    tombstones_until: int = 0
    """Deletions up to this sequence are sent as tombstones: they are about to be forgotten."""
    forgetting: ChosenDeletions | None = None
    """Deletions that are about to be forgotten; None: none are."""
    published: int = 0
    """Acknowledged records."""
    foreign: int = 0
    """Partitions resent because of foreign records."""
    replicas: ReplicaFaults = field(default_factory=ReplicaFaults)
    """Number of partitions of log and map that lacked a replica when last described."""
    refusals: RefusedRecords = field(default_factory=RefusedRecords)
    """Records refused by the brokers."""
    lesser_faults: list[str] = field(default_factory=list)
    """Wrong but harmless settings of the topics."""

    @property
    def extents(self) -> dict[int, Extent]:
        """Known extent of each partition's log, by number; the hot topic's as :data:`HOT`."""
        numbers = [*range(len(self.trackers) - 1), HOT]
        known = zip(numbers, (tracker.extent for tracker in self.trackers), strict=True)
        return {number: extent for number, extent in known if extent is not None}

    @property
    def proven(self) -> tuple[tuple[int, int | None, int], ...]:
        """The part of :attr:`extents` to persist on every change: progress by watermarks alone may get lost."""
        return tuple((each.incarnation, each.complete_from, each.forgotten) for each in self.extents.values())

    @property
    def cursor(self) -> Cursor:
        """The cursor to persist in the store."""
        return Cursor(self.source, self.backlog.cursor, encode_extents(self.extents))
