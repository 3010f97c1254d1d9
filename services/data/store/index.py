"""In-memory index of the store: every endpoint's head, and the change log for the feed."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from heapq import heapify, heappop, heappush
from itertools import islice, takewhile
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import orjson
import structlog

from diem.fanout.change_map import ChangeMap
from diem.fanout.data_budget import DataBudget
from diem.protocol import update
from diem.protocol.endpoints import collection_of, is_collection
from diem.protocol.update import Change
from services.data.kinds import COLLECTION, kind_of
from services.data.limits import InlineLimits

_logger = structlog.get_logger(__name__)


GREATEST: Final = 1 << 62
MIN_EXPIRIES: Final = 1024
"""Replaced entries of the heap of expiries that are not worth a new heap."""


class StoredVersion(NamedTuple):
    """One version of an endpoint, current or old. ``content`` is in canonical form, and empty for a deletion."""

    version: int
    changed_ms: int
    kind: int
    """UPDATE or GONE."""
    media_type: str
    content: bytes


class EndpointHead(NamedTuple):
    """An endpoint without its data: the columns of table ``endpoints``, by name."""

    endpoint: str
    sequence: int
    version: int
    kind: int
    """UPDATE or GONE."""
    changed_ms: int
    media_type: str
    title: str
    source: str
    labels: str
    digest: bytes
    expires_ms: int = 0

    @property
    def gone(self) -> bool:
        """True if the endpoint was deleted."""
        return self.kind == update.GONE

    def with_content(self, content: bytes) -> StoredVersion:
        """Return this version with its content."""
        return StoredVersion(self.version, self.changed_ms, self.kind, self.media_type, content)


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
        self.floor = 0
        """New endpoints begin above this version: forgotten ones had versions up to it."""
        self._members: dict[str, set[str]] = {}
        """Members of each collection, deleted ones excluded."""
        self._expiries: list[tuple[int, str]] = []
        """A heap of times and names: of each endpoint its earliest entry, and later ones once it is due. Entries that
        an earlier one has replaced are removed when they are the greater part."""
        self._expiring: dict[str, int] = {}
        """The earliest entry of each name."""
        self.collections = 0
        """Number of heads of collections, those of deleted ones included."""
        self._names: list[str] = []
        self._collection_names: list[str] = []
        self._listed = 0
        """Number of heads whose names are in these lists."""
        self._listeners: list[Callable[[], Any]] = []

    @property
    def names(self) -> Sequence[str]:
        """Return all names but those of collections, sorted; the returned list does not change."""
        self._list()
        return self._names

    @property
    def collection_names(self) -> Sequence[str]:
        """Return the names of all collections, sorted; the returned list does not change."""
        self._list()
        return self._collection_names

    def _list(self) -> None:
        if self._listed < len(self.heads):
            # New heads are last: sorting two sorted runs is cheap.
            new = [*islice(self.heads, self._listed, None)]
            self._names = sorted([*self._names, *(name for name in new if not is_collection(name))])
            self._collection_names = sorted([*self._collection_names, *filter(is_collection, new)])
            self._listed = len(self.heads)

    def below(self, prefix: str) -> list[str]:
        """Return the names of endpoints below a prefix, deleted ones excluded."""
        names = self.names
        first, end = (bisect_left(names, prefix + character) for character in "/0")  # the one after it
        return [name for name in names[first:end] if not self.heads[name].gone]

    def content_of(self, collection: str) -> bytes:
        """Return the canonical content of a collection: its members, sorted."""
        return orjson.dumps({"members": sorted(self._members.get(collection, ()))})

    def count_of(self, collection: str) -> int:
        """Return the number of members of a collection, deleted ones excluded."""
        return len(self._members.get(collection, ()))

    def with_changes(
        self, missed: Sequence[EndpointHead], forgotten: int
    ) -> tuple[Mapping[str, EndpointHead], Counter[str]]:
        """Return the heads after commits whose answers were lost, and how these change the numbers of members.

        Args:
            missed: the heads of these commits.
            forgotten: as of :meth:`forget`.
        """
        changes: Counter[str] = Counter()
        if not missed and forgotten <= self.forgotten:
            return self.heads, changes
        heads = dict(self.heads)
        for head in missed:
            if change := membership(heads.get(head.endpoint), head):
                changes[collection_of(head.endpoint)] += change
            heads[head.endpoint] = head
        for name, head in self.gone.items():
            if head.sequence <= forgotten and heads[name] is head:
                del heads[name]
        return heads, changes

    def due(self, now_ms: int, at_most: int) -> list[EndpointHead]:
        """Return heads that have expired, ``at_most`` so many; they stay due until a deletion is applied."""
        found: list[EndpointHead] = []
        while self._expiries and self._expiries[0][0] <= now_ms and len(found) < at_most:
            expires_ms, name = heappop(self._expiries)
            if self._expiring.get(name) != expires_ms:
                continue
            del self._expiring[name]
            head = self.heads.get(name)
            if head is None or head.gone or not head.expires_ms:
                continue
            if head.expires_ms <= now_ms:
                found.append(head)
            else:
                self._expire(head)
        for head in found:
            self._expire(head)
        return found

    def _expire(self, head: EndpointHead) -> None:
        if head.expires_ms < self._expiring.get(head.endpoint, GREATEST):
            self._expiring[head.endpoint] = head.expires_ms
            heappush(self._expiries, (head.expires_ms, head.endpoint))
            if len(self._expiries) > 2 * len(self._expiring) + MIN_EXPIRIES:
                self._expiries = [(expires_ms, name) for name, expires_ms in self._expiring.items()]
                heapify(self._expiries)

    @property
    def next_expiry_ms(self) -> int | None:
        """The earliest time at which an endpoint may expire; None without one."""
        return self._expiries[0][0] if self._expiries else None

    def subscribe(self, listener: Callable[[], Any]) -> Callable[[], None]:
        """Call ``listener()`` after changes are applied or removed; return a function to unsubscribe."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def apply(self, heads: Iterable[EndpointHead], contents: Mapping[str, bytes] = MappingProxyType({})) -> int:
        """Apply committed heads, in ascending order of sequence; return the number of changes for the feed.

        A head with an already applied sequence, as for a new title, is no change for the feed. ``contents`` has the
        contents, as far as known: the updates of those within the limits carry their data.
        """
        count, heads = 0, list(heads)
        self.revision += 1
        for head in heads:
            before = self.heads.get(head.endpoint)
            if joined := membership(before, head):
                self._join(joined, head.endpoint)
            self.gone.pop(head.endpoint, None)
            self.collections += before is None and is_collection(head.endpoint)
            self.heads[head.endpoint] = head
            if head.kind == update.GONE:
                self.gone[head.endpoint] = head
            elif head.expires_ms:
                self._expire(head)
            self.version = max(self.version, head.version)
        # Members may have changed after the collections that list them.
        for head in heads:
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
            self.floor = max(self.floor, self.gone[name].version)
            del self.heads[name], self.gone[name]
            self._expiring.pop(name, None)
            self.collections -= is_collection(name)
        self._names, self._collection_names, self._listed = [], [], 0
        self.revision += 1
        self.changes.remove(name.encode() for name in names)
        self.changes.advance(upto)
        self._notify()
        return names

    def _join(self, change: int, endpoint: str) -> None:
        """Enter a created endpoint into its collection, or remove a deleted one (``change`` as of `membership`)."""
        collection = collection_of(endpoint)
        if not collection:
            return
        if change > 0:
            self._members.setdefault(collection, set()).add(endpoint)
        else:
            members = self._members[collection]
            members.remove(endpoint)
            if not members:
                del self._members[collection]

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
        if head.media_type == COLLECTION and self.count_of(head.endpoint) * len(head.endpoint) <= limit:
            content = self.content_of(head.endpoint)
        if content is None or len(content) > limit:
            return None
        data = kind_of(head.media_type).inline(head.endpoint, head.with_content(content))
        return data if data is not None and len(data) <= limit else None


def membership(before: EndpointHead | None, after: EndpointHead) -> int:
    """Return 1 if a change makes an endpoint a member of its collection, -1 if it ends that, otherwise 0."""
    return (not after.gone) - (before is not None and not before.gone)
