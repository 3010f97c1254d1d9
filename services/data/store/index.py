"""In-memory index of the store: every endpoint's head, and the change log that the feed serves."""

from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Any, NamedTuple

import structlog

from diem.fanout.change_map import ChangeMap
from diem.protocol import update
from diem.protocol.update import Change

_logger = structlog.get_logger(__name__)


class EndpointHead(NamedTuple):
    """An endpoint without its data: the columns of table ``endpoints``, by name."""

    endpoint: str
    sequence: int
    version: int
    kind: int
    changed_ms: int
    unit: str
    resolution: str
    title: str
    source: str
    digest: bytes
    area: str = ""
    quantity: str = ""

    @property
    def gone(self) -> bool:
        """Whether the endpoint was deleted."""
        return self.kind == update.GONE


class StoreIndex:
    """Heads and changes in commit order. Bounded by the number of endpoints that the store may hold."""

    def __init__(self) -> None:
        self.heads: dict[str, EndpointHead] = {}
        self.changes = ChangeMap()
        self.revision = 0
        """Incremented with every change of a head, even one that is no change for the feed."""
        self.version = 0
        """The greatest version of all endpoints."""
        self._names: list[str] = []
        self._listeners: list[Callable[[], Any]] = []

    @property
    def names(self) -> Sequence[str]:
        """Return all names, sorted; the returned list does not change."""
        if len(self._names) < len(self.heads):
            # Heads are never removed, so new ones are last: sorting two sorted runs is cheap.
            self._names = sorted([*self._names, *islice(self.heads, len(self._names), None)])
        return self._names

    def subscribe(self, listener: Callable[[], Any]) -> Callable[[], None]:
        """Call ``listener()`` after changes were applied; return a function that unsubscribes."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def apply(self, heads: Iterable[EndpointHead]) -> int:
        """Apply committed heads, in ascending order of sequence; return the number of changes for the feed.

        A head whose sequence was applied before, as with a new title only, is no change for the feed.
        """
        count = 0
        self.revision += 1
        for head in heads:
            self.heads[head.endpoint] = head
            self.version = max(self.version, head.version)
            if head.sequence > self.changes.sequence:
                gone = head.kind == update.GONE
                value = update.encode(head.endpoint, head.version, head.changed_ms, gone=gone)
                change = Change(head.sequence, head.endpoint.encode(), head.version, head.kind, value)
                self.changes.apply(change)
                count += 1
        if count:
            for listener in tuple(self._listeners):
                try:
                    listener()
                except Exception:
                    # The write is committed and must be answered so, even if a listener fails.
                    _logger.exception("a listener to changes failed")
        return count
