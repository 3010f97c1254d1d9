"""In-memory index of the store: every endpoint's head, and the change log for the feed."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice, takewhile
from types import MappingProxyType
from typing import Any, NamedTuple

import structlog

from diem.fanout.change_map import ChangeMap
from diem.fanout.data_budget import DataBudget
from diem.protocol import update
from diem.protocol.update import Change
from services.data.datasets.form import body as json_body
from services.data.limits import InlineLimits

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
        """True if the endpoint was deleted."""
        return self.kind == update.GONE


class StoreIndex:
    """Heads and changes in commit order. Bounded by the store's limit of endpoints."""

    def __init__(self, inline: InlineLimits | None = None) -> None:
        self._inline = InlineLimits() if inline is None else inline
        self.heads: dict[str, EndpointHead] = {}
        self.gone: dict[str, EndpointHead] = {}
        """Those of deleted endpoints, in the order of sequence."""
        self.forgotten = 0
        """Endpoints whose deletion has a sequence up to this one were removed."""
        self.changes = ChangeMap(DataBudget(self._inline.retained_bytes))
        self.revision = 0
        """Incremented with every change of a head, even one that is no change for the feed."""
        self.version = 0
        """The greatest version that any endpoint has had, also of those that are not in the store."""
        self._names: list[str] = []
        self._listeners: list[Callable[[], Any]] = []

    @property
    def names(self) -> Sequence[str]:
        """Return all names, sorted; the returned list does not change."""
        if len(self._names) < len(self.heads):
            # New heads are last: sorting two sorted runs is cheap.
            self._names = sorted([*self._names, *islice(self.heads, len(self._names), None)])
        return self._names

    def subscribe(self, listener: Callable[[], Any]) -> Callable[[], None]:
        """Call ``listener()`` after changes are applied or removed; return a function to unsubscribe."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def apply(self, heads: Iterable[EndpointHead], contents: Mapping[str, bytes] = MappingProxyType({})) -> int:
        """Apply committed heads, in ascending order of sequence; return the number of changes for the feed.

        A head with an already applied sequence, as for a new title, is no change for the feed. ``contents`` has the
        canonical bytes of datasets, as far as known: the updates of those within the limits carry their data.
        """
        count = 0
        self.revision += 1
        for head in heads:
            self.heads[head.endpoint] = head
            self.gone.pop(head.endpoint, None)
            if head.gone:
                self.gone[head.endpoint] = head
            self.version = max(self.version, head.version)
            if head.sequence > self.changes.sequence:
                gone = head.kind == update.GONE
                data = None if gone else self._data(head, contents.get(head.endpoint))
                value = update.encode(head.endpoint, head.version, head.changed_ms, gone=gone, data=data)
                change = Change(head.sequence, head.endpoint.encode(), head.version, head.kind, value)
                self.changes.apply(change)
                count += 1
        if count:
            self._notify()
        return count

    def forget(self, upto: int) -> list[str]:
        """Remove the endpoints deleted at sequences up to ``upto``, as in the store; return their names."""
        if upto <= self.forgotten:
            return []
        self.forgotten = upto
        names = [head.endpoint for head in takewhile(lambda head: head.sequence <= upto, self.gone.values())]
        for name in names:
            del self.heads[name], self.gone[name]
        self._names = []
        self.revision += 1
        self.changes.remove(name.encode() for name in names)
        self.changes.advance(upto)
        self._notify()
        return names

    def _notify(self) -> None:
        for listener in tuple(self._listeners):
            try:
                listener()
            except Exception:
                # The write is committed, and must be confirmed even if a listener fails.
                _logger.exception("a listener to changes failed")

    def _data(self, head: EndpointHead, content: bytes | None) -> bytes | None:
        """Return the data to send with an update; None: readers fetch it."""
        limit = self._inline.limit(head.endpoint)
        if content is None or len(content) > limit:
            return None
        body = json_body(head.endpoint, head.version, head.changed_ms, content)
        return body if len(body) <= limit else None
