"""Backlog of a log: updates to be written to each partition, how far the log is complete, and the publisher's state."""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Final

from diem.errors import DiemError
from diem.protocol.partition_map import HOT, PartitionMap, Phase
from diem.protocol.update import Change

ANY: Final = 1 << 63
"""In place of a sequence, for what is only sent again: it does not hold the cursor back."""


class PartitionQueue:
    """One partition's endpoints: those due, and those in flight.

    The value of each is the lowest sequence of it that the log may lack. There is at most one request in flight, so an
    endpoint is never in two: what changes meanwhile is due after it.
    """

    __slots__ = ("due", "first", "first_in_flight", "in_flight", "tombstones", "tombstones_in_flight")

    def __init__(self) -> None:
        self.due: dict[bytes, int] = {}
        self.in_flight: dict[bytes, int] = {}
        self.first: set[bytes] = set()
        """Endpoints newly routed to this partition whose first record is not yet acknowledged."""
        self.first_in_flight: set[bytes] = set()
        """Those of them that are in flight, with what was current when the request was made."""
        self.tombstones: dict[bytes, None] = {}
        """Endpoints no longer routed to this partition, whose tombstone is due."""
        self.tombstones_in_flight: dict[bytes, None] = {}

    @property
    def stable(self) -> bool:
        """True once the log has everything that a change of the map requires of this partition."""
        return not (self.first or self.tombstones or self.tombstones_in_flight)

    def enqueue_first(self, endpoint: bytes) -> None:
        """Enqueue the first update of a newly routed ``endpoint``: until it is here, readers know nothing of it."""
        self.tombstones.pop(endpoint, None)
        self.first.add(endpoint)
        self.first_in_flight.discard(endpoint)
        self.enqueue(endpoint, ANY)

    def enqueue_tombstone(self, endpoint: bytes) -> int:
        """Enqueue the tombstone of an endpoint that is no longer routed here.

        Returns:
            The lowest sequence of it that the log may lack here, or :data:`ANY`: it is due elsewhere now.
        """
        self.first.discard(endpoint)
        self.first_in_flight.discard(endpoint)
        self.tombstones[endpoint] = None
        return min(self.due.pop(endpoint, ANY), self.in_flight.get(endpoint, ANY))

    def enqueue(self, endpoint: bytes, sequence: int) -> None:
        """Enqueue ``endpoint``, which the log may lack from ``sequence`` on."""
        held = self.due.get(endpoint)
        if held is None or sequence < held:
            self.due[endpoint] = sequence

    def lower_if_pending(self, endpoint: bytes, sequence: int) -> None:
        """Lower the sequence of ``endpoint`` to ``sequence`` where it is due or in flight."""
        for pending in (self.due, self.in_flight):
            if endpoint in pending:
                pending[endpoint] = min(pending[endpoint], sequence)

    def dequeue(self, limit: int) -> list[bytes]:
        """Move the endpoints of the next request in flight, longest due first."""
        batch = list(self.due)[:limit]
        self.in_flight = {endpoint: self.due.pop(endpoint) for endpoint in batch}
        self.first_in_flight = {endpoint for endpoint in batch if endpoint in self.first}
        return batch

    def dequeue_tombstones(self, limit: int) -> list[bytes]:
        """Move the tombstones of the next request in flight; for :meth:`Backlog.dequeue_tombstones`."""
        batch = list(self.tombstones)[:limit]
        self.tombstones_in_flight = {endpoint: self.tombstones.pop(endpoint) for endpoint in batch}
        return batch

    def acknowledged(self) -> None:
        """Clear what is in flight: it was acknowledged."""
        # Also of what has changed meanwhile: an endpoint that always has would never be here, and later ones follow.
        self.first -= self.first_in_flight
        self.in_flight, self.first_in_flight, self.tombstones_in_flight = {}, set(), {}

    def requeue(self, endpoints: Iterable[bytes] | None = None) -> None:
        """Requeue what is in flight (or ``endpoints`` of it); a repetition sends what is current then."""
        for endpoint in list((self.in_flight | self.tombstones_in_flight) if endpoints is None else endpoints):
            self.first_in_flight.discard(endpoint)
            if endpoint in self.tombstones_in_flight:
                del self.tombstones_in_flight[endpoint]
                if endpoint not in self.due:
                    self.tombstones[endpoint] = None
            elif endpoint in self.tombstones:
                # It was rerouted meanwhile, and its current update is due in its new partition.
                del self.in_flight[endpoint]
            else:
                self.enqueue(endpoint, self.in_flight.pop(endpoint))

    def lowest_pending(self) -> int:
        """Return the lowest sequence that the log may lack."""
        return min(min(self.due.values(), default=ANY), min(self.in_flight.values(), default=ANY))


class Backlog:
    """The changes that a log may lack: a queue per partition, and a last one for the topic of hot updates.

    It holds each endpoint at most twice in each of its queues (due, and in flight with an older update), however long
    the log is unavailable.

    Args:
        partitions: of the updates topic; the map may use fewer of them.
        cursor: the sequence up to which the log is known to have everything.
        map_: routes each endpoint to partitions.
    """

    def __init__(self, partitions: int, cursor: int, map_: PartitionMap) -> None:
        self.queues = [PartitionQueue() for _ in range(partitions + 1)]
        self.ingested = cursor
        """Changes up to this sequence were ingested."""
        self.map = map_
        """The map that routes endpoints now."""
        self._homes: dict[bytes, tuple[int, ...]] = {}

    def __len__(self) -> int:
        """Endpoints due or in flight."""
        return sum(len(queue.due) + len(queue.in_flight) for queue in self.queues)

    def homes(self, endpoint: bytes) -> tuple[int, ...]:
        """Return the partitions of an endpoint; cached, because the hash is slow in Python."""
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
        """True once the log has all that the map requires before its phase may end, so that it can be acknowledged."""
        return all(queue.stable for queue in self.queues)

    def unknown(self, is_known: Callable[[bytes], bool]) -> list[bytes]:
        """Return endpoints with entries in the map that were never published, as other writers may have invented them.

        Not all may fit into an acknowledgement: first are those that matter to the phase, which are the moving ones in
        PREPARE, and the others in RETIRE, when the entries of what moves are about to change anyway.
        """
        found = [name for name in self.map.entries if not is_known(name)]
        moving_first = self.map.head.phase is Phase.PREPARE
        return sorted(found, key=lambda name: (self.map.entries[name].target is None) is moving_first)

    def dequeue_tombstones(self, number: int, limit: int) -> list[bytes]:
        """Dequeue tombstones of a partition: none before every new home has its first update.

        So the log as a whole always has an update of every endpoint.
        """
        return [] if any(queue.first for queue in self.queues) else self.queues[number].dequeue_tombstones(limit)

    def with_tombstones(self) -> list[int]:
        """Return the partitions that have tombstones to send now."""
        if any(queue.first for queue in self.queues):
            return []
        return [number for number, queue in enumerate(self.queues) if queue.tombstones]

    def resume_phase(self, endpoints: Collection[bytes]) -> None:
        """Enqueue what the phase of the map requires, whatever an earlier publisher has done of it.

        ``endpoints`` are all of the store. It is not known how far that publisher came: it acknowledges at the end.
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
        """Resend endpoints, in case the log has something older last; return the partitions with work."""
        touched: set[int] = set()
        for endpoint in endpoints:
            homes = self.homes(endpoint)
            for home in homes:
                self.queues[home].enqueue(endpoint, ANY)
            touched.update(homes)
        return touched

    def switch_map(self, newer: PartitionMap, endpoints: Collection[bytes]) -> set[int]:
        """Switch to another map; return the partitions that have work.

        Each of the ``endpoints`` (all of the store) that ``newer`` routes to a partition where it was not written
        before is due there, with its current update: readers of only that partition have never seen one. In a partition
        that it left, only a tombstone is due, so that readers from the start do not find it.

        All at once, and not in steps: whatever interrupts the publishing finds either the old map or the new one with
        all that is due. Entries cost about 1 us each; another number of partitions hashes every endpoint anew.
        """
        older, touched = self.map, set[int]()
        if newer == older:
            return touched
        # Only those with an entry in either can have moved, unless the hash is another one.
        moved = older.entries.keys() | newer.entries.keys()
        changed = moved.intersection(endpoints) if newer.head.partitions == older.head.partitions else endpoints
        before = {endpoint: self.homes(endpoint) for endpoint in changed}
        self.map = newer
        for endpoint, had in before.items():
            has = self._homes[endpoint] = self._queues_of(endpoint)
            # What is dropped here holds the cursor back there, also where it was only to be sent again.
            left = [home for home in had if home not in has]
            touched.update(left)
            pending = min((self.queues[home].enqueue_tombstone(endpoint) for home in left), default=ANY)
            for home in has:
                if home not in had:
                    self.queues[home].enqueue_first(endpoint)
                    touched.add(home)
                self.queues[home].lower_if_pending(endpoint, pending)
        return touched

    @property
    def cursor(self) -> int:
        """Sequence up to which the log has everything, or something later."""
        return min(self.ingested, *(queue.lowest_pending() - 1 for queue in self.queues))


class LogReplaced(DiemError):
    """A topic is another one than before, has more partitions, or is gone: what it lacks is found out anew."""


class LeaderMoved(DiemError):
    """Requests are in flight to a broker that no longer leads and does not answer."""

    retriable = True


@dataclass(slots=True)
class PublisherState:
    """State of publishing to one log; it outlives the connections to it."""

    source: str
    map: str | None
    """The topic that the map was read from; None if it is to be read before anything is published."""
    backlog: Backlog
    resend_all: bool
    """Resend everything, spread over a minute: another process published here before."""
    new_store: bool
    """The store has never published here, so that the log ought to be empty."""
    published: int = 0
    """Records written and acknowledged."""
    foreign: int = 0
    """Partitions that were sent again because of records that are not ours."""
