"""What is still to be written to a log, partition by partition, and how far the store's changes are safely there."""

from collections.abc import Iterable
from typing import Final

from diem.protocol.partitions import partition_of
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
    """The changes of a store that a log of ``partitions`` partitions may lack.

    It holds each endpoint at most twice (due, and under way with an older update), however long the log is away.

    Args:
        partitions: of the log.
        cursor: the sequence up to which the log is known to have everything.
    """

    def __init__(self, partitions: int, cursor: int) -> None:
        self.lanes = [Lane() for _ in range(partitions)]
        self.read = cursor
        """Changes up to this sequence were taken in."""
        self._homes: dict[bytes, int] = {}

    def __len__(self) -> int:
        """Endpoints that are to be written, or are under way."""
        return sum(len(lane.due) + len(lane.flying) for lane in self.lanes)

    def home(self, endpoint: bytes) -> int:
        """The partition of an endpoint; remembered, because the hash is slow in Python."""
        home = self._homes.get(endpoint)
        if home is None:
            home = self._homes[endpoint] = partition_of(endpoint, len(self.lanes))
        return home

    def take_in(self, changes: Iterable[Change]) -> set[int]:
        """Changes in the order of the store, beyond :attr:`read`; returns the partitions that have work now."""
        touched = set()
        for change in changes:
            home = self.home(change.endpoint)
            self.lanes[home].owe(change.endpoint, change.sequence)
            touched.add(home)
            self.read = change.sequence
        return touched

    def again(self, endpoints: Iterable[bytes]) -> set[int]:
        """Write endpoints once more, in case the log has something older last; returns the partitions with work."""
        touched = set()
        for endpoint in endpoints:
            home = self.home(endpoint)
            self.lanes[home].owe(endpoint, ANY)
            touched.add(home)
        return touched

    @property
    def cursor(self) -> int:
        """The sequence up to which the log has everything, or something later."""
        return min(self.read, *(lane.owed_from() - 1 for lane in self.lanes))
