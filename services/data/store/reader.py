"""Reads committed data through a bounded cache: current datasets and retained versions."""

import asyncio
from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import CompoundSelect, Row, Select, bindparam, desc, func, select, union_all

from diem.protocol.endpoints import is_collection
from services.data.byte_lru import ByteLru
from services.data.errors import EndpointDeleted, StoreUnavailable, UnknownEndpoint, VersionNotKept
from services.data.kinds import COLLECTION
from services.data.limits import HistoryLimits
from services.data.store import undo
from services.data.store.database import ERRORS, Database
from services.data.store.index import StoredVersion, StoreIndex
from services.data.store.retention_clock import RetentionClock
from services.data.store.tables import CHECKPOINTS, ENDPOINTS, HISTORY
from services.data.store.write_plan import WritePlan


class Cache(ByteLru[str, StoredVersion]):
    """Contents by endpoint; evicts the least recently used beyond ``max_bytes`` of content."""

    def __init__(self, max_bytes: int) -> None:
        super().__init__(max_bytes, lambda stored: len(stored.content))

    def put(self, key: str, value: StoredVersion) -> None:
        """Cache a dataset unless the same or a later version is cached."""
        before = self.peek(key)
        if before is None or before.version < value.version:
            super().put(key, value)


_READ: Final = select(*(ENDPOINTS.c[name] for name in StoredVersion._fields))
_VERSIONS: Final = [
    select(*(table.c[name] for name in StoredVersion._fields)).where(table.c.endpoint == bindparam("name"))
    for table in (ENDPOINTS, HISTORY)
]


def _retained(current: Select[Any], old: Select[Any]) -> CompoundSelect[Any]:
    """Select the retained versions, newest first, without those overdue for deletion."""
    # One statement, so that a concurrent commit cannot hide a version.
    listed = union_all(current, old.where(HISTORY.c.changed_ms >= bindparam("oldest")))
    return listed.order_by(desc("version")).limit(bindparam("at_most"))


_POSITIONS: Final = select(CHECKPOINTS.c.part, CHECKPOINTS.c.position).where(CHECKPOINTS.c.source == bindparam("name"))
_HISTORY: Final = _retained(*_VERSIONS)
_LISTED: Final = _retained(*(each.with_only_columns(each.selected_columns.version) for each in _VERSIONS)).subquery()
_COUNT: Final = select(func.count()).select_from(_LISTED)
_VERSION: Final = union_all(
    _VERSIONS[0].where(ENDPOINTS.c.version == bindparam("wanted")),
    _VERSIONS[1].where(HISTORY.c.version == bindparam("wanted"), HISTORY.c.version.in_(select(_LISTED.c.version))),
)


def _complete(rows: Sequence[StoredVersion]) -> list[StoredVersion]:
    """Return the versions of rows, newest first, with whole contents."""
    found: list[StoredVersion] = []
    for row in rows:
        newer = undo.newer_of(row)
        if newer is None:
            found.append(row)
        elif found and found[-1].version == newer:
            found.append(undo.apply(row, found[-1]))
    return found


def _undo_all(stored: StoredVersion, undone: Sequence[StoredVersion]) -> StoredVersion:
    """Return the oldest version of rows, of which each is made of the next, and the last one of ``stored``."""
    for row in reversed(undone):
        stored = undo.apply(row, stored)
    return stored


class Reader:
    """Reads from the cache, else from the database; :meth:`committed` keeps the cache current."""

    def __init__(
        self, database: Database, index: StoreIndex, ages: RetentionClock, *, history: HistoryLimits, cache_bytes: int
    ) -> None:
        self._database = database
        self._index = index
        self._heads = index.heads
        self._ages = ages
        self._history = history
        self._cache = Cache(cache_bytes)

    def cached(self, endpoint: str) -> StoredVersion | None:
        """Return the current dataset of an endpoint if it is in the cache."""
        head, cached = self._heads.get(endpoint), self._cache.get(endpoint)
        if head is not None and head.media_type == COLLECTION:
            return None if head.gone else head.with_content(self._index.content_of(endpoint))
        return cached if head is not None and cached is not None and cached.version >= head.version else None

    async def positions(self, source: str) -> dict[str, str]:
        """Return the stored positions of a source, by part; raises StoreUnavailable."""
        try:
            async with self._database.reading() as connection:
                return {part: at for part, at in await connection.execute(_POSITIONS, {"name": source}) if at}
        except ERRORS as error:
            raise StoreUnavailable("the store cannot be read now") from error

    async def current(self, endpoint: str) -> StoredVersion:
        """Return the dataset of an endpoint: at least the version of its head.

        Raises:
            UnknownEndpoint, EndpointDeleted: there is none.
            StoreUnavailable: the database cannot be read.
        """
        head = self._heads.get(endpoint)
        if head is None:
            raise UnknownEndpoint(endpoint)
        if head.gone:
            raise EndpointDeleted(endpoint, head.version)
        cached = self.cached(endpoint)
        if cached is not None:
            return cached
        try:
            async with self._database.reading() as connection:
                found = await connection.execute(_READ.where(ENDPOINTS.c.endpoint == endpoint))
                stored = StoredVersion._make(found.one())
        except ERRORS as error:
            raise StoreUnavailable("the store cannot be read now") from error
        if stored.kind:
            raise EndpointDeleted(endpoint, stored.version)
        self._cache.put(endpoint, stored)
        return stored

    async def versions(self, endpoint: str) -> list[StoredVersion]:
        """Return the current and the retained old versions of an endpoint, newest first; deletions are versions too.

        Raises:
            UnknownEndpoint: there is no such endpoint, not even a deleted one.
            StoreUnavailable: the database cannot be read.
        """
        head = self._heads.get(endpoint)
        if head is None:
            raise UnknownEndpoint(endpoint)
        if head.media_type == COLLECTION:
            return [head.with_content(b"")]
        rows = await self._rows(_HISTORY, {"name": endpoint, **self._limits()})
        found = [StoredVersion._make(row) for row in rows]
        if any(undo.newer_of(each) is not None for each in found):
            found = await asyncio.to_thread(_complete, found)
        if not found:
            # Forgotten meanwhile.
            raise UnknownEndpoint(endpoint)
        return found

    async def count(self, endpoint: str) -> int:
        """Return the number of :meth:`versions`, which drops as versions expire.

        Raises:
            StoreUnavailable: the database cannot be read.
        """
        if is_collection(endpoint):
            return 1
        ((count,),) = await self._rows(_COUNT, {"name": endpoint, **self._limits()})
        return int(count)

    async def version(self, endpoint: str, version: int) -> StoredVersion:
        """Return one version of an endpoint's dataset: the current one, or one of :meth:`versions`.

        Raises:
            UnknownEndpoint, VersionNotKept: the endpoint does not exist, or this version is not retained.
            EndpointDeleted: this version is a deletion.
            StoreUnavailable: the database cannot be read.
        """
        head = self._heads.get(endpoint)
        if head is None:
            raise UnknownEndpoint(endpoint)
        if head.media_type == COLLECTION:
            # Its members are in memory only; the current version is in the cache.
            raise VersionNotKept(endpoint, version)
        stored = await self._complete_version(endpoint, version)
        if stored.kind:
            raise EndpointDeleted(endpoint, version)
        return stored

    async def _complete_version(self, endpoint: str, version: int) -> StoredVersion:
        undone: list[StoredVersion] = []
        wanted: int | None = version
        while wanted is not None:
            rows = await self._rows(_VERSION, {"name": endpoint, "wanted": wanted, **self._limits()})
            if not rows:
                raise VersionNotKept(endpoint, version)
            undone.append(StoredVersion._make(rows[0]))
            wanted = undo.newer_of(undone[-1])
        complete = undone.pop()
        return await asyncio.to_thread(_undo_all, complete, undone) if undone else complete

    def _limits(self) -> dict[str, int]:
        return {"oldest": self._history.oldest_ms(self._ages.now_ms()), "at_most": self._history.versions}

    async def _rows(self, statement: CompoundSelect[Any] | Select[Any], parameters: dict[str, Any]) -> list[Row[Any]]:
        try:
            async with self._database.reading() as connection:
                return list(await connection.execute(statement, parameters))
        except ERRORS as error:
            raise StoreUnavailable("the store cannot be read now") from error

    def committed(self, planned: WritePlan) -> None:
        """Update cached datasets with the committed ones."""
        # Only those: caching every write would evict datasets being read.
        for endpoint, head in planned.heads.items():
            if endpoint not in self._cache:
                continue
            if head.gone:
                self._cache.drop(endpoint)
            else:
                self._cache.put(endpoint, head.with_content(planned.contents[endpoint]))
