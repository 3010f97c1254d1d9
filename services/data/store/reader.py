"""Read committed data, through a bounded cache: current datasets and retained versions."""

from collections import OrderedDict
from typing import Any, Final, NamedTuple

from sqlalchemy import CompoundSelect, Row, Select, bindparam, desc, func, select, union_all

from diem.process.clock import Clock
from services.data.errors import EndpointDeleted, StoreUnavailable, UnknownEndpoint, VersionNotKept
from services.data.store.database import ERRORS, Database
from services.data.store.index import StoreIndex
from services.data.store.retention import HistoryLimits, StoredVersion
from services.data.store.tables import ENDPOINTS, HISTORY
from services.data.store.write_plan import WritePlan


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


_READ: Final = select(ENDPOINTS.c.version, ENDPOINTS.c.changed_ms, ENDPOINTS.c.content, ENDPOINTS.c.kind)
_VERSIONS: Final = [
    select(*(table.c[name] for name in StoredVersion._fields)).where(table.c.endpoint == bindparam("name"))
    for table in (ENDPOINTS, HISTORY)
]


def _kept(current: Select[Any], old: Select[Any]) -> CompoundSelect[Any]:
    """The versions that are kept, newest first; what is deleted later than it may be is not among them."""
    # One statement, so that a change meanwhile makes no version be missed.
    listed = union_all(current, old.where(HISTORY.c.changed_ms >= bindparam("oldest")))
    return listed.order_by(desc("version")).limit(bindparam("at_most"))


_HISTORY: Final = _kept(*_VERSIONS)
_LISTED: Final = _kept(*(each.with_only_columns(each.selected_columns.version) for each in _VERSIONS)).subquery()
_COUNT: Final = select(func.count()).select_from(_LISTED)
_VERSION: Final = union_all(
    _VERSIONS[0].where(ENDPOINTS.c.version == bindparam("wanted")),
    _VERSIONS[1].where(HISTORY.c.version == bindparam("wanted"), HISTORY.c.version.in_(select(_LISTED.c.version))),
)


class Reader:
    """Reads from the database what is not in the cache, and keeps the cache as new as what was committed."""

    def __init__(
        self, database: Database, state: StoreIndex, clock: Clock, *, history: HistoryLimits, cache_bytes: int
    ) -> None:
        self._database = database
        self._heads = state.heads
        self._clock = clock
        self._history = history
        self._cache = Cache(cache_bytes)

    async def current(self, endpoint: str) -> Stored:
        """The dataset of an endpoint: at least the version that its head has.

        Raises:
            UnknownEndpoint, EndpointDeleted: there is none.
            StoreUnavailable: the database cannot be read.
        """
        head = self._heads.get(endpoint)
        if head is None:
            raise UnknownEndpoint(endpoint)
        if head.gone:
            raise EndpointDeleted(endpoint, head.version)
        cached = self._cache.get(endpoint)
        if cached is not None and cached.version >= head.version:
            return cached
        try:
            async with self._database.reading() as connection:
                found = await connection.execute(_READ.where(ENDPOINTS.c.endpoint == endpoint))
                version, changed_ms, content, kind = found.one()
        except ERRORS as error:
            raise StoreUnavailable("the store cannot be read now") from error
        if kind:
            raise EndpointDeleted(endpoint, version)
        stored = Stored(version, changed_ms, content)
        self._cache.put(endpoint, stored)
        return stored

    async def versions(self, endpoint: str) -> list[StoredVersion]:
        """The current version of an endpoint and the old ones that are kept, newest first; deletions are versions too.

        Raises:
            UnknownEndpoint: there never was such an endpoint.
            StoreUnavailable: the database cannot be read.
        """
        if self._heads.get(endpoint) is None:
            raise UnknownEndpoint(endpoint)
        return [StoredVersion._make(row) for row in await self._rows(_HISTORY, {"name": endpoint, **self._limits()})]

    async def count(self, endpoint: str) -> int:
        """How many versions of an endpoint :meth:`versions` has.

        Raises:
            StoreUnavailable: the database cannot be read.
        """
        ((count,),) = await self._rows(_COUNT, {"name": endpoint, **self._limits()})
        return int(count)

    async def version(self, endpoint: str, version: int) -> Stored:
        """One version of an endpoint's dataset: the current one, or an old one that :meth:`versions` has.

        Raises:
            UnknownEndpoint, VersionNotKept: there is no such endpoint, or not this version of it.
            EndpointDeleted: this version is a deletion.
            StoreUnavailable: the database cannot be read.
        """
        if self._heads.get(endpoint) is None:
            raise UnknownEndpoint(endpoint)
        rows = await self._rows(_VERSION, {"name": endpoint, "wanted": version, **self._limits()})
        if not rows:
            raise VersionNotKept(endpoint, version)
        kept = StoredVersion._make(rows[0])
        if kept.kind:
            raise EndpointDeleted(endpoint, version)
        return Stored(version, kept.changed_ms, kept.content)

    def _limits(self) -> dict[str, int]:
        return {"oldest": self._history.oldest_ms(self._clock.wall_ms()), "at_most": self._history.versions}

    async def _rows(self, statement: CompoundSelect[Any] | Select[Any], parameters: dict[str, Any]) -> list[Row[Any]]:
        try:
            async with self._database.reading() as connection:
                return list(await connection.execute(statement, parameters))
        except ERRORS as error:
            raise StoreUnavailable("the store cannot be read now") from error

    def committed(self, planned: WritePlan) -> None:
        """Take over what was committed."""
        # Only what somebody reads: a cache of everything that is written would push out what is wanted.
        for endpoint, head in planned.heads.items():
            if endpoint not in self._cache:
                continue
            if head.gone:
                self._cache.drop(endpoint)
            else:
                self._cache.put(endpoint, Stored(head.version, head.changed_ms, planned.contents[endpoint]))
