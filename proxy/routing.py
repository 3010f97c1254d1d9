"""Routing of endpoints to servers, by the last snapshot of the metadata service and the allow-list. Pure."""

from collections import Counter
from collections.abc import Collection
from typing import Final

from diem.protocol.assignment import UNKNOWN, Clone, Owner, Snapshot
from diem.protocol.partition_map import HOT
from proxy.settings import Allowed

MAX_CACHED: Final = 100_000
"""Endpoints whose partition is cached, because the hash is slow in Python; the cache is cleared when it is full."""


class Router:
    """Routes by internal URLs. While no new snapshot arrives, the last one holds: routing fails static.

    Args:
        clone: the group whose servers are asked.
        allowed: what may be dialled; a server outside of it does not exist.
    """

    def __init__(self, clone: int, allowed: Allowed) -> None:
        self._clone = clone
        self._allowed = allowed
        self._homes: dict[str, int] = {}
        self._owners: dict[int, str] = {}
        self._hints: dict[str, str] = {}
        self.snapshot: Snapshot | None = None
        self.members: dict[str, Owner] = {}
        """Internal URL -> server, of all that are allowed."""
        self.refused = 0
        """Servers of the last snapshot that are not on the allow-list."""

    def apply(self, snapshot: Snapshot) -> None:
        """Route by ``snapshot`` from now on; a group that it does not know stays as it was."""
        group = snapshot.clones.get(self._clone)
        if self.snapshot is None or self.snapshot.map != snapshot.map:
            self._homes.clear()
        self.snapshot = snapshot
        if group is not None and (group.state != UNKNOWN or group.members):
            self._apply_group(group)

    def _apply_group(self, group: Clone) -> None:
        urls = {name: owner.internal for name, owner in group.members.items() if self._allowed.admits(owner.internal)}
        self.refused = len(group.members) - len(urls)
        self.members = {url: group.members[name] for name, url in urls.items()}
        self._owners = {number: urls[name] for number, name in group.owners.items() if name in urls}
        # A public URL that several members have (the one of a composite) means none of them.
        count = Counter(owner.public for owner in group.members.values())
        public = {owner.public: url for url, owner in self.members.items() if count[owner.public] == 1}
        self._hints = public | {url: url for url in self.members}

    def home(self, name: str) -> int | None:
        """Return the partition of an endpoint, or :data:`HOT`; None before the first snapshot."""
        home = self._homes.get(name)
        if home is None and self.snapshot is not None:
            if len(self._homes) >= MAX_CACHED:
                self._homes.clear()
            home = self._homes[name] = self.snapshot.map.home(name.encode())
        return home

    def owner(
        self,
        name: str,
        *,
        current: str | None = None,
        used: Collection[str] = (),
        dead: Collection[str] = (),
        load: Counter[str] | None = None,
    ) -> str | None:
        """Return the server to ask for an endpoint; None when nobody owns it now.

        A hot endpoint stays at its ``current`` server, else goes to one that is ``used`` already, else to the server
        with the least ``load`` by this proxy; to one that is ``dead`` only when there are no others.
        """
        home = self._homes.get(name)
        if home is None and (home := self.home(name)) is None:
            return None
        if home != HOT:
            return self._owners.get(home)
        living = [url for url in self.members if url not in dead] or list(self.members)
        if current in living:
            return current
        near = [url for url in living if url in used]
        busy = Counter[str]() if load is None else load
        return min(near or living, key=busy.__getitem__, default=None)

    def hinted(self, url: str | None) -> str | None:
        """Resolve a public or internal URL to the member it names; None unless it is exactly one."""
        return self._hints.get(url) if url is not None else None

    def is_hot(self, name: str) -> bool:
        """Return whether every server has this endpoint."""
        return self.home(name) == HOT
