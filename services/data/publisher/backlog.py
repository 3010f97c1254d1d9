"""Backlog of a log: updates to be written to each partition, how far the log is complete, and the publisher's state."""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Final

from diem.errors import DiemError
from diem.protocol.partition_map import HOT, PartitionMap, Phase
from diem.protocol.update import Change

ANY: Final = 1 << 63
"""In place of a sequence, for what is only sent again: it holds nothing back."""


class PartitionQueue:
    """One partition: the endpoints that are due, and those that are in the request under way.

    The value of each is the lowest sequence of it that the log may lack. There is at most one request under way, so an
    endpoint is never in two: what changes meanwhile is due after it.
    """

    __slots__ = ("due", "first", "first_flying", "flying", "tombs", "tombs_flying")

    def __init__(self) -> None:
        self.due: dict[bytes, int] = {}
        self.flying: dict[bytes, int] = {}
        self.first: set[bytes] = set()
        """Endpoints that are written here since a short while, and of which nothing has been acknowledged yet."""
        self.first_flying: set[bytes] = set()
        """Those of them that are in the request under way, with what was current when it was made."""
        self.tombs: dict[bytes, None] = {}
        """Endpoints that are not written here any more, whose last record is yet to be overwritten with none."""
        self.tombs_flying: dict[bytes, None] = {}

    @property
    def settled(self) -> bool:
        """Whether the log has what a change of the map asked of this lane."""
        return not (self.first or self.tombs or self.tombs_flying)

    def owe_first(self, endpoint: bytes) -> None:
        """The lane is new for ``endpoint``: until its current update is here, whoever reads it knows nothing."""
        self.tombs.pop(endpoint, None)
        self.first.add(endpoint)
        self.first_flying.discard(endpoint)
        self.owe(endpoint, ANY)

    def bury(self, endpoint: bytes) -> int:
        """``endpoint`` is not written here any more.

        Returns:
            The lowest sequence of it that the log may lack here, or :data:`ANY`: it is owed elsewhere now.
        """
        self.first.discard(endpoint)
        self.first_flying.discard(endpoint)
        self.tombs[endpoint] = None
        return min(self.due.pop(endpoint, ANY), self.flying.get(endpoint, ANY))

    def owe(self, endpoint: bytes, sequence: int) -> None:
        """The log may lack ``endpoint`` from ``sequence`` on."""
        held = self.due.get(endpoint)
        if held is None or sequence < held:
            self.due[endpoint] = sequence

    def owe_if_owed(self, endpoint: bytes, sequence: int) -> None:
        """If the log may lack anything of ``endpoint``, it may lack it from ``sequence`` on."""
        for owed in (self.due, self.flying):
            if endpoint in owed:
                owed[endpoint] = min(owed[endpoint], sequence)

    def take(self, limit: int) -> list[bytes]:
        """The endpoints of the next request, longest due first."""
        taken = list(self.due)[:limit]
        self.flying = {endpoint: self.due.pop(endpoint) for endpoint in taken}
        self.first_flying = {endpoint for endpoint in taken if endpoint in self.first}
        return taken

    def take_tombs(self, limit: int) -> list[bytes]:
        """The tombstones of the next request; for :meth:`Backlog.take_tombs`."""
        taken = list(self.tombs)[:limit]
        self.tombs_flying = {endpoint: self.tombs.pop(endpoint) for endpoint in taken}
        return taken

    def landed(self) -> None:
        """The request under way was acknowledged."""
        # Also of what has changed meanwhile: an endpoint that always has would never be here, and later ones follow.
        self.first -= self.first_flying
        self.flying, self.first_flying, self.tombs_flying = {}, set(), {}

    def failed(self, endpoints: Iterable[bytes] | None = None) -> None:
        """What was under way (or ``endpoints`` of it) is due again; a repetition sends what is current then."""
        for endpoint in list((self.flying | self.tombs_flying) if endpoints is None else endpoints):
            self.first_flying.discard(endpoint)
            if endpoint in self.tombs_flying:
                del self.tombs_flying[endpoint]
                if endpoint not in self.due:
                    self.tombs[endpoint] = None
            elif endpoint in self.tombs:
                # It has left meanwhile, and its current update is due where it is written now.
                del self.flying[endpoint]
            else:
                self.owe(endpoint, self.flying.pop(endpoint))

    def owed_from(self) -> int:
        """The lowest sequence that the log may lack."""
        return min(min(self.due.values(), default=ANY), min(self.flying.values(), default=ANY))


class Backlog:
    """The changes of a store that a log may lack: ``partitions`` lanes, and a last one for the topic of hot updates.

    It holds each endpoint at most twice in each of its lanes (due, and under way with an older update), however long
    the log is away.

    Args:
        partitions: of the updates topic; the map may use fewer of them.
        cursor: the sequence up to which the log is known to have everything.
        map_: says which lanes an endpoint is written to.
    """

    def __init__(self, partitions: int, cursor: int, map_: PartitionMap) -> None:
        self.lanes = [PartitionQueue() for _ in range(partitions + 1)]
        self.read = cursor
        """Changes up to this sequence were taken in."""
        self.map = map_
        """The map that is followed."""
        self._homes: dict[bytes, tuple[int, ...]] = {}

    def __len__(self) -> int:
        """Endpoints that are to be written, or are under way."""
        return sum(len(lane.due) + len(lane.flying) for lane in self.lanes)

    def homes(self, endpoint: bytes) -> tuple[int, ...]:
        """The lanes of an endpoint; remembered, because the hash is slow in Python."""
        homes = self._homes.get(endpoint)
        if homes is None:
            homes = self._homes[endpoint] = self._lanes_of(endpoint)
        return homes

    def _lanes_of(self, endpoint: bytes) -> tuple[int, ...]:
        return tuple([self._lane(place) for place in self.map.written_to(endpoint)])

    def _lane(self, place: int) -> int:
        return len(self.lanes) - 1 if place == HOT else place

    @property
    def settled(self) -> bool:
        """Whether the log has all that the map asks for before its phase may end: what is to be acknowledged."""
        return all(lane.settled for lane in self.lanes)

    def unknown(self, is_known: Callable[[bytes], bool]) -> list[bytes]:
        """The endpoints with entries in the map that nobody has published, as strangers may have invented them.

        Not all may fit into an acknowledgement: first are those that matter to the phase, which are the moving ones in
        PREPARE, and the others in RETIRE, when the entries of what moves are about to change anyway.
        """
        found = [name for name in self.map.entries if not is_known(name)]
        moving_first = self.map.head.phase is Phase.PREPARE
        return sorted(found, key=lambda name: (self.map.entries[name].target is None) is moving_first)

    def take_tombs(self, number: int, limit: int) -> list[bytes]:
        """The tombstones of the next request to a lane: none before every new home has its first update.

        So the log as a whole always has an update of every endpoint.
        """
        return [] if any(lane.first for lane in self.lanes) else self.lanes[number].take_tombs(limit)

    def buried(self) -> list[int]:
        """The lanes that have tombstones to send now."""
        if any(lane.first for lane in self.lanes):
            return []
        return [number for number, lane in enumerate(self.lanes) if lane.tombs]

    def begin(self, endpoints: Collection[bytes]) -> None:
        """Owe what the phase of the map asks for, whatever an earlier publisher has done of it.

        ``endpoints`` are all of the store. It is not known how far that publisher came: it acknowledges at the end.
        """
        phase = self.map.head.phase
        if phase not in {Phase.PREPARE, Phase.RETIRE}:
            return
        for endpoint in self.map.entries.keys() & set(endpoints):
            home, target = self.map.entry(endpoint)
            if target in {None, home}:
                continue
            lanes = self.homes(endpoint)
            if phase is Phase.PREPARE:
                self.lanes[lanes[-1]].owe_first(endpoint)
            else:
                self.lanes[self._lane(home)].bury(endpoint)

    def take_in(self, changes: Iterable[Change]) -> set[int]:
        """Changes in the order of the store, beyond :attr:`read`; returns the lanes that have work now."""
        touched: set[int] = set()
        for change in changes:
            homes = self.homes(change.endpoint)
            for home in homes:
                self.lanes[home].owe(change.endpoint, change.sequence)
            touched.update(homes)
            self.read = change.sequence
        return touched

    def again(self, endpoints: Iterable[bytes]) -> set[int]:
        """Write endpoints once more, in case the log has something older last; returns the lanes with work."""
        touched: set[int] = set()
        for endpoint in endpoints:
            homes = self.homes(endpoint)
            for home in homes:
                self.lanes[home].owe(endpoint, ANY)
            touched.update(homes)
        return touched

    def follow(self, newer: PartitionMap, endpoints: Collection[bytes]) -> set[int]:
        """Write by another map from now on; returns the lanes that have work.

        Each of the ``endpoints`` (all of the store) that ``newer`` writes to a lane which it was not written to before
        is due there, with its current update: who reads only that lane has never seen one. In a lane that it has no
        more nothing of it is due any longer but a tombstone, so that whoever reads it from the start does not find it.

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
            has = self._homes[endpoint] = self._lanes_of(endpoint)
            # What is dropped here holds the cursor back there, also where it was only to be sent again.
            left = [home for home in had if home not in has]
            touched.update(left)
            owed = min((self.lanes[home].bury(endpoint) for home in left), default=ANY)
            for home in has:
                if home not in had:
                    self.lanes[home].owe_first(endpoint)
                    touched.add(home)
                self.lanes[home].owe_if_owed(endpoint, owed)
        return touched

    @property
    def cursor(self) -> int:
        """The sequence up to which the log has everything, or something later."""
        return min(self.read, *(lane.owed_from() - 1 for lane in self.lanes))


class LogReplaced(DiemError):
    """A topic is another one than before, has more partitions, or is gone: what it lacks is found out anew."""


class LeaderMoved(DiemError):
    """Requests are under way to a broker that no longer leads, and does not answer."""

    retriable = True


@dataclass(slots=True)
class PublisherState:
    """How far one log is; it outlives the connections to it."""

    source: str
    map: str | None
    """The topic that the map was read from; None if it is to be read before anything is published."""
    backlog: Backlog
    repeat: bool
    """Whether everything is to be sent again, spread over a minute: another process published here before."""
    stranger: bool
    """Whether the store has never published here, so that the log ought to be empty."""
    published: int = 0
    """Records written and acknowledged."""
    foreign: int = 0
    """Partitions that were sent again because of records that are not ours."""
