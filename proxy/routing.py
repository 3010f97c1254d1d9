"""Routing of endpoints to servers by the latest snapshot of the metadata service and the allow-list. Pure."""

from collections import Counter
from collections.abc import Collection
from typing import Final

from diem.process.allow_list import AllowList
from diem.protocol.assignment import UNKNOWN, Clone, Owner, Snapshot
from diem.protocol.partition_map import HOT

MAX_CACHED: Final = 100_000
"""Endpoints with a cached partition (the hash is slow in Python); a full cache is cleared."""


class Router:
    """Routes endpoints to internal URLs. Without new snapshots the latest stays in force: routing fails static.

    Args:
        clone: the group of servers to route to.
        allowed: the servers that may be dialled; all others are ignored. Host names are checked when dialled.
    """

    def __init__(self, clone: int, allowed: AllowList) -> None:
        self._clone = clone
        self._allowed = allowed
        self._partitions: dict[str, int] = {}
        """Endpoint -> partition or :data:`HOT`, a cache."""
        self._owners: dict[int, str] = {}
        """Partition -> internal URL."""
        self._hints: dict[str, str] = {}
        """Public or internal URL -> internal URL."""
        self.snapshot: Snapshot | None = None
        self.members: dict[str, Owner] = {}
        """Internal URL -> server, for the allowed ones."""
        self.refused: frozenset[str] = frozenset()
        """Internal URLs of servers in the latest snapshot that are not on the allow-list."""

    def apply(self, snapshot: Snapshot) -> None:
        """Route by ``snapshot`` from now on; a group missing in it stays unchanged."""
        group = snapshot.clones.get(self._clone)
        if self.snapshot is None or self.snapshot.map != snapshot.map:
            self._partitions.clear()
        self.snapshot = snapshot
        if group is not None and (group.state != UNKNOWN or group.members):
            self._apply_group(group)

    def _apply_group(self, group: Clone) -> None:
        urls = {
            name: owner.internal for name, owner in group.members.items() if self._allowed.may_admit(owner.internal)
        }
        self.refused = frozenset(owner.internal for owner in group.members.values()) - set(urls.values())
        self.members = {url: group.members[name] for name, url in urls.items()}
        self._owners = {number: urls[name] for number, name in group.owners.items() if name in urls}
        # A public URL shared by several members (a composite's) identifies none of them.
        count = Counter(owner.public for owner in group.members.values())
        public = {owner.public: url for url, owner in self.members.items() if count[owner.public] == 1}
        self._hints = public | {url: url for url in self.members}

    def owner(
        self,
        name: str,
        *,
        current: str | None = None,
        used: Counter[str] | None = None,
        dead: Collection[str] = (),
    ) -> str | None:
        """Return the server at which to subscribe to an endpoint; None without a snapshot or an owner.

        A hot endpoint stays at its ``current`` server, else goes to the one with the fewest endpoints of this proxy
        among those that it has ``used``, else to any; to a ``dead`` one only if there is no other.
        """
        if self.snapshot is None:
            return None
        partition = self._partitions.get(name)
        if partition is None:
            if len(self._partitions) >= MAX_CACHED:
                self._partitions.clear()
            partition = self._partitions[name] = self.snapshot.map.home(name.encode())
        if partition != HOT:
            return self._owners.get(partition)
        live = [url for url in self.members if url not in dead] or list(self.members)
        if current in live:
            return current
        load = Counter[str]() if used is None else used
        return min([url for url in live if url in load] or live, key=load.__getitem__, default=None)

    def resolve_hint(self, url: str | None) -> str | None:
        """Resolve a public or internal URL to the one member it identifies, else None."""
        return self._hints.get(url) if url is not None else None

    def is_hot(self, name: str) -> bool:
        """Return whether every server has this endpoint. Not cached: intended for few endpoints."""
        return self.snapshot is not None and self.snapshot.is_hot(name.encode())
