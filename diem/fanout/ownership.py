"""What one server of a group has: its partitions, the map, and where the rest is (docs/protocol.md sections 2 to 4)."""

from collections.abc import Iterable, Mapping
from typing import Final

from diem.protocol.feed_names import partition_of_name
from diem.protocol.partition_map import PartitionMap, Standing

MAX_KNOWN: Final = 100_000
"""Endpoints whose places are remembered, because the hash is slow in Python; forgotten when there are more."""


class Ownership:
    """Answers for every endpoint whether this server has it. Whoever changes something settles the hub after it."""

    def __init__(self) -> None:
        self.map: PartitionMap | None = None
        """None until the first was read: nothing is ours then."""
        self.owned: frozenset[int] = frozenset()
        self._names: dict[int, str] = {}
        self._urls: dict[int, str] = {}
        self._places: dict[bytes, tuple[int, ...]] = {}

    @property
    def epoch(self) -> int | None:
        """The epoch of the map, None while there is none."""
        return None if self.map is None else self.map.head.epoch

    def take_names(self, names: Iterable[str]) -> None:
        """The names that the feed serves now."""
        numbers = {partition_of_name(name): name for name in names}
        self._names = {number: name for number, name in numbers.items() if number is not None}
        before, self.owned = self.owned, frozenset(self._names)
        for number in before - self.owned:
            # Known from when it was ours.
            self._urls.pop(number, None)

    def take_map(self, map_: PartitionMap) -> None:
        """The map as it is now."""
        self.map = map_
        self._places.clear()

    def take_owners(self, owners: Mapping[str, str]) -> None:
        """The URL of the server that has each name of the group."""
        numbers = {partition_of_name(name): url for name, url in owners.items()}
        self._urls = {number: url for number, url in numbers.items() if number is not None}

    def standing(self, endpoint: bytes) -> Standing:
        """What this server is to ``endpoint``."""
        if self.map is None:
            return Standing.FOREIGN
        places = self._places.get(endpoint)
        if places is None:
            if len(self._places) >= MAX_KNOWN:
                self._places.clear()
            places = self._places[endpoint] = self.map.written_to(endpoint)
        return self.map.standing(places, self.owned)

    def name_of(self, endpoint: bytes) -> str | None:
        """A name of the feed that brings the updates of ``endpoint``; None if none does."""
        written_to = () if self.map is None else self.map.written_to(endpoint)
        return next((self._names[place] for place in written_to if place in self._names), None)

    def owner(self, endpoint: bytes) -> str | None:
        """The URL of the server that has ``endpoint``; None when it is this one, or not known."""
        if self.map is None:
            return None
        home = self.map.home(endpoint)
        return None if home in self.owned else self._urls.get(home)
