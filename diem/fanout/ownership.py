"""Ownership of endpoints by one server of a group, and the resulting ``moved`` messages.

See docs/internals.md sections 2 to 5.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from diem.fanout.fanout import Registry
from diem.fanout.session import ClientTrace, DeliveryStats, Session
from diem.protocol import messages
from diem.protocol.feed import partition_of_stream
from diem.protocol.frames import text_frame
from diem.protocol.partition_map import HOT, PartitionMap, Role

MAX_CACHED: Final = 100_000
"""Limit of the cache of endpoints' partitions (the hash is slow in Python); a full cache is cleared."""


class Ownership:
    """The endpoints that this server serves. After a change, call :meth:`Reconciler.reconcile`."""

    def __init__(self) -> None:
        self.map: PartitionMap | None = None
        """None until the first map was read; nothing is served before."""
        self.owned: frozenset[int] = frozenset()
        self.leaving = False
        """Others own the partitions of this server, which is about to stop and delivers until its clients are there."""
        self._names: dict[int, str] = {}
        self._urls: dict[int, str] = {}
        self._places: dict[bytes, tuple[int, ...]] = {}

    @property
    def epoch(self) -> int | None:
        """Epoch of the map, None without one."""
        return None if self.map is None else self.map.head.epoch

    def set_names(self, names: Iterable[str]) -> None:
        """Set the streams of the feed."""
        numbers = {partition_of_stream(name): name for name in names}
        self._names = {number: name for number, name in numbers.items() if number is not None}
        before, self.owned = self.owned, frozenset(self._names)
        for number in before - self.owned:
            # Its URL predates this server's ownership.
            self._urls.pop(number, None)

    def set_map(self, map_: PartitionMap) -> None:
        """Set the partition map."""
        self.map = map_
        self._places.clear()

    def set_owners(self, owners: Mapping[str, str]) -> None:
        """Set the URL of the server that owns each stream of the group."""
        numbers = {partition_of_stream(name): url for name, url in owners.items()}
        self._urls = {number: url for number, url in numbers.items() if number is not None}

    def leave(self, owners: Mapping[str, str]) -> None:
        """Give up all partitions to these owners, and keep delivering to remaining subscribers.

        Hot endpoints stay: every server has them, so clients move with their other endpoints, or at the end.
        """
        self.set_owners(owners)
        self.leaving = True

    def role(self, endpoint: bytes) -> Role:
        """Return the role of this server for ``endpoint``."""
        if self.map is None:
            return Role.NOT_OWNED
        places = self._places.get(endpoint)
        if places is None:
            if len(self._places) >= MAX_CACHED:
                self._places.clear()
            places = self._places[endpoint] = self.map.written_to(endpoint)
        role = self.map.role(places, self.owned)
        return Role.DRAINING if self.leaving and role is Role.SERVING and HOT not in places else role

    def stream_of(self, endpoint: bytes) -> str | None:
        """Return the stream of the feed that carries the updates of ``endpoint``; None if none does."""
        written_to = () if self.map is None else self.map.written_to(endpoint)
        return next((self._names[place] for place in written_to if place in self._names), None)

    def owner(self, endpoint: bytes) -> str | None:
        """Return the URL of the server of ``endpoint``; None if unknown, or if it is this server."""
        if self.map is None:
            return None
        home = self.map.home(endpoint)
        return None if home in self.owned and not self.leaving else self._urls.get(home)


class Reconciler:
    """Sends ``moved`` to the subscribers of endpoints that this server no longer serves, and unsubscribes them."""

    def __init__(self, ownership: Ownership, registry: Registry[Session], stats: DeliveryStats) -> None:
        self._ownership = ownership
        self._registry = registry
        self._stats = stats
        self._announced: set[bytes] = set()
        """Draining endpoints whose subscribers were sent ``moved``."""

    def reconcile(self) -> set[Session]:
        """Reconcile after a map or ownership change: send ``moved`` for endpoints this server no longer serves.

        Each subscriber is sent it once and unsubscribed, except from draining endpoints, which are still delivered.

        Returns:
            Sessions sent ``moved`` for a draining endpoint and still subscribed when its move ended: they miss all its
                further updates.
        """
        ownership, announced = self._ownership, self._announced
        stayed: set[Session] = set()
        leaving: dict[tuple[Session, str | None], list[bytes]] = {}
        lost: dict[ClientTrace, list[bytes]] = {}
        for endpoint in self._registry:
            role = ownership.role(endpoint)
            if role is Role.SERVING or (role is Role.DRAINING and endpoint in announced):
                continue
            owner = ownership.owner(endpoint)
            for session in tuple(self._registry.subscribers(endpoint)):
                leaving.setdefault((session, owner), []).append(endpoint)
                if role is Role.NOT_OWNED:
                    if endpoint in announced:
                        stayed.add(session)
                    self._unsubscribe(session, endpoint, lost)
            if role is Role.DRAINING:
                announced.add(endpoint)
        self._announced = {e for e in announced if ownership.role(e) is Role.DRAINING}
        for trace, endpoints in lost.items():
            trace.unsubscribed(endpoints)
        self._send_moved(leaving)
        return stayed

    def _unsubscribe(self, session: Session, endpoint: bytes, lost: dict[ClientTrace, list[bytes]]) -> None:
        session.endpoints.pop(endpoint, None)
        self._registry.discard(endpoint, session)
        session.forget(endpoint)
        if session.trace is not None:
            lost.setdefault(session.trace, []).append(endpoint)

    def _send_moved(self, leaving: Mapping[tuple[Session, str | None], Sequence[bytes]]) -> None:
        for (session, owner), endpoints in leaving.items():
            start = 0
            while start < len(endpoints):
                # One by one to a blocked session (the last frame may have blocked it): combined, a later frame of the
                # first endpoint would conflate them all.
                size = 1 if session.blocked else messages.MAX_NAMES
                part = [endpoint.decode() for endpoint in endpoints[start : start + size]]
                start += size
                self._stats.offered += 1
                session.send(text_frame(messages.moved(part, owner)))
