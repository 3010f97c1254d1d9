"""What is still to be written to a log, lane by lane, and how far the store's changes are safely there."""

from collections.abc import Collection, Iterable
from typing import Final

from diem.protocol.partition_map import HOT, PartitionMap
from diem.protocol.update import Change

ANY: Final = 1 << 63
"""In place of a sequence, for what is only sent again: it holds nothing back."""


class Lane:
    """One partition: the endpoints that are due, and those that are in the request under way.

    The value of each is the lowest sequence of it that the log may lack. There is at most one request under way, so an
    endpoint is never in two: what changes meanwhile is due after it.
    """

    __slots__ = ("due", "flying")

    def __init__(self) -> None:
        self.due: dict[bytes, int] = {}
        self.flying: dict[bytes, int] = {}

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
        return taken

    def landed(self) -> None:
        """The request under way was acknowledged."""
        self.flying = {}

    def failed(self, endpoints: Iterable[bytes] | None = None) -> None:
        """What was under way (or ``endpoints`` of it) is due again; a repetition sends what is current then."""
        for endpoint in list(self.flying if endpoints is None else endpoints):
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
        self.lanes = [Lane() for _ in range(partitions + 1)]
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
        hot = len(self.lanes) - 1
        return tuple([hot if place == HOT else place for place in self.map.written_to(endpoint)])

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
        more nothing of it is due any longer.

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
            owed = min((self.lanes[home].due.pop(endpoint, ANY) for home in had if home not in has), default=ANY)
            for home in has:
                if home not in had:
                    self.lanes[home].owe(endpoint, ANY)
                    touched.add(home)
                self.lanes[home].owe_if_owed(endpoint, owed)
        return touched

    @property
    def cursor(self) -> int:
        """The sequence up to which the log has everything, or something later."""
        return min(self.read, *(lane.owed_from() - 1 for lane in self.lanes))
