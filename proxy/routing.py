"""Pure: which server to ask for an endpoint, from the last snapshot of the metadata service and the allow-list."""

from collections import Counter
from collections.abc import Callable, Collection
from typing import Final

from diem.protocol.assignment import UNKNOWN, Clone, Owner, Snapshot
from diem.protocol.partition_map import HOT
from proxy.allowed import Allowed

MAX_KNOWN: Final = 100_000
"""Endpoints whose place in the map is remembered, because the hash is slow in Python; forgotten when there are more."""


class Router:
    """Servers are named by their internal URLs. Without news the last snapshot holds: routing fails static.

    Args:
        clone: the group whose servers are asked.
        allowed: what may be dialled; a server outside of it does not exist.
        load: how busy this proxy keeps a server; hot endpoints go to the least busy one.
    """

    def __init__(self, clone: int, allowed: Allowed, load: Callable[[str], int]) -> None:
        self._clone = clone
        self._allowed = allowed
        self._load = load
        self._homes: dict[str, int] = {}
        self._owners: dict[int, str] = {}
        self._hints: dict[str, str] = {}
        self.snapshot: Snapshot | None = None
        self.members: dict[str, Owner] = {}
        """Internal URL -> server, of all that may be dialled."""
        self.refused = 0
        """Servers of the last snapshot that are not on the allow-list."""

    def take(self, snapshot: Snapshot) -> None:
        """Route by this one from now on; a group that it knows nothing of stays as it was."""
        group = snapshot.clones.get(self._clone)
        if self.snapshot is None or self.snapshot.map != snapshot.map:
            self._homes.clear()
        self.snapshot = snapshot
        if group is not None and (group.state != UNKNOWN or group.members):
            self._take_group(group)

    def _take_group(self, group: Clone) -> None:
        urls = {name: owner.internal for name, owner in group.members.items() if self._allowed.admits(owner.internal)}
        self.refused = len(group.members) - len(urls)
        self.members = {url: group.members[name] for name, url in urls.items()}
        self._owners = {number: urls[name] for number, name in group.owners.items() if name in urls}
        # A public URL that several members have (the one of a composite) means none of them.
        count = Counter(owner.public for owner in group.members.values())
        public = {owner.public: url for url, owner in self.members.items() if count[owner.public] == 1}
        self._hints = public | {url: url for url in self.members}

    def home(self, name: str) -> int | None:
        """The partition of an endpoint, or :data:`HOT`; None before the first snapshot."""
        home = self._homes.get(name)
        if home is None and self.snapshot is not None:
            if len(self._homes) >= MAX_KNOWN:
                self._homes.clear()
            home = self._homes[name] = self.snapshot.map.home(name.encode())
        return home

    def owner(
        self, name: str, *, current: str | None = None, used: Collection[str] = (), dead: Collection[str] = ()
    ) -> str | None:
        """The server to ask for an endpoint; None when nobody owns it now.

        A hot endpoint stays where it is, else goes where this asker is already, else to the least busy server; only
        not to one that is ``dead``, while there are others.
        """
        home = self.home(name)
        if home is None:
            return None
        if home != HOT:
            return self._owners.get(home)
        living = [url for url in self.members if url not in dead] or list(self.members)
        if current in living:
            return current
        near = [url for url in living if url in used]
        return min(near or living, key=self._load, default=None)

    def hinted(self, url: str | None) -> str | None:
        """The server that a hint means, public or internal; None unless it is exactly one member of the snapshot."""
        return self._hints.get(url) if url is not None else None

    def is_hot(self, name: str) -> bool:
        """Whether every server has this endpoint."""
        return self.home(name) == HOT
