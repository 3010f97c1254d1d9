"""Datasets that were read lately, so that many readers of one change cost one read of the database."""

from collections import OrderedDict
from typing import NamedTuple


class Stored(NamedTuple):
    """An endpoint's dataset as stored: ``content`` is its canonical JSON."""

    version: int
    changed_ms: int
    content: bytes


class Cache:
    """The least recently used go when the contents have more than ``max_bytes`` in all."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._items: OrderedDict[str, Stored] = OrderedDict()

    def __contains__(self, endpoint: str) -> bool:
        return endpoint in self._items

    def __len__(self) -> int:
        return len(self._items)

    def get(self, endpoint: str) -> Stored | None:
        """What is cached for an endpoint."""
        found = self._items.get(endpoint)
        if found is not None:
            self._items.move_to_end(endpoint)
        return found

    def put(self, endpoint: str, stored: Stored) -> None:
        """Keep a dataset, unless a later one is there."""
        before = self._items.get(endpoint)
        if before is not None:
            if before.version >= stored.version:
                return
            self._bytes -= len(before.content)
        self._items[endpoint] = stored
        self._items.move_to_end(endpoint)
        self._bytes += len(stored.content)
        while self._bytes > self._max_bytes:
            _, evicted = self._items.popitem(last=False)
            self._bytes -= len(evicted.content)

    def drop(self, endpoint: str) -> None:
        """Forget an endpoint."""
        dropped = self._items.pop(endpoint, None)
        if dropped is not None:
            self._bytes -= len(dropped.content)
