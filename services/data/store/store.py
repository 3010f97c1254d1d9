"""The store as the rest of the service sees it: open it, write through the writer, read what is committed."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self, TypeVar

from sqlalchemy import CompoundSelect, Row, bindparam, desc, insert, select, union_all
from sqlalchemy.ext.asyncio import AsyncConnection

from diem.fanout.changes import ChangeMap
from diem.process.clock import Clock, SystemClock
from services.data.datasets import Dataset
from services.data.errors import DataError, Gone, NotKept, StoreInUse, Unavailable, Unknown
from services.data.store import transaction
from services.data.store.cache import Cache, Stored
from services.data.store.cursor import Cursor
from services.data.store.database import ERRORS, Database, database_at, reason
from services.data.store.history import Kept, Retention
from services.data.store.mark import Mark, MarkFile
from services.data.store.migrate import upgrade
from services.data.store.plan import Accepted, IdempotencyKey, Plan, Write
from services.data.store.state import Head, State
from services.data.store.tables import ENDPOINTS, HISTORY, STORE
from services.data.store.writer import RETRY_AFTER_S, Counts, Writer, WriterLimits

T = TypeVar("T")

MARK_EVERY_S: Final = 1.0

_READ: Final = select(ENDPOINTS.c.version, ENDPOINTS.c.changed_ms, ENDPOINTS.c.content, ENDPOINTS.c.kind)
_VERSIONS: Final = [
    select(*(table.c[name] for name in Kept._fields)).where(table.c.endpoint == bindparam("name"))
    for table in (ENDPOINTS, HISTORY)
]
# One statement, so that a change meanwhile makes no version be missed.
_HISTORY: Final = (
    union_all(_VERSIONS[0], _VERSIONS[1].where(HISTORY.c.changed_ms >= bindparam("oldest")))
    .order_by(desc("version"))
    .limit(bindparam("at_most"))
)
_VERSION: Final = union_all(
    _VERSIONS[0].where(ENDPOINTS.c.version == bindparam("wanted")),
    _VERSIONS[1].where(HISTORY.c.version == bindparam("wanted")),
)


@dataclass(frozen=True, slots=True)
class StoreLimits:
    """How long a commit may wait for a lock, how much is cached, and the writer's bounds."""

    busy_timeout_s: float = 5.0
    cache_bytes: int = 32 * 1024 * 1024
    writer: WriterLimits = field(default_factory=WriterLimits)


class Store:
    """Endpoints, their versions and data. Make one with :meth:`open` and use it within :meth:`serving`.

    It is what a feed is served from (``source``, ``changes``, ``went_back``; docs/protocol.md section 2).
    """

    def __init__(
        self,
        store_id: str,
        *,
        state: State,
        database: Database,
        clock: Clock,
        limits: StoreLimits,
        cursor: Cursor | None = None,
        old_versions: Mapping[str, int] | None = None,
        mark: MarkFile | None = None,
    ) -> None:
        self.id = store_id
        self.cursor = cursor
        """How far the publisher is, as it was last told to :meth:`keep_cursor`."""
        self._state = state
        self._database = database
        self._cache = Cache(limits.cache_bytes)
        self._clock = clock
        self._history = limits.writer.history
        retention = Retention(self._history, old_versions or {})
        self._writer = Writer(database, state, clock, limits.writer, self._committed, retention)
        self._writing: asyncio.Task[None] | None = None
        self._older_than: int | None = None
        self._mark = mark
        self._marked: int | None = None
        known = mark.read() if mark is not None else None
        if known is not None and known.store == store_id and known.sequence > state.changes.sequence:
            self.went_back(known.sequence)

    @classmethod
    async def open(
        cls, url: str, *, clock: Clock | None = None, limits: StoreLimits | None = None, mark: Path | None = None
    ) -> Self:
        """Open the database, make or migrate its tables, and read every endpoint's head.

        Args:
            url: where it is.
            clock: what versions are made from.
            limits: the store's bounds.
            mark: a file, not with the database, that tells an older copy of the database from the store itself.

        Raises:
            StoreInUse: another process has it open.
            Unavailable: its disk is full or it is locked.
            DataError: the URL or the database cannot be used.
        """
        limits = limits or StoreLimits()
        database = database_at(url, limits.busy_timeout_s)
        state = State()
        try:
            await database.claim()
            async with database.writing(at_leisure=True) as connection:
                await connection.run_sync(upgrade)
                store_id = (await connection.execute(select(STORE.c.store_id))).scalar_one_or_none()
                if store_id is None:
                    store_id = str(uuid.uuid4())
                    await connection.execute(insert(STORE), {"id": 1, "store_id": store_id, "sequence": 0})
                state.apply(await transaction.changed_since(connection, 0))
                cursor = await transaction.read_cursor(connection)
                old_versions = await transaction.count_old(connection)
                await connection.commit()
        except ERRORS as error:
            await database.close()
            raise Unavailable(f"the store {database.shown} cannot be opened: {reason(error)}") from error
        except DataError:
            await database.close()
            raise
        clock = clock or SystemClock()
        return cls(
            store_id,
            state=state,
            database=database,
            clock=clock,
            limits=limits,
            cursor=cursor,
            old_versions=old_versions,
            mark=None if mark is None else MarkFile(mark),
        )

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[Self]:
        """Take writes while this is open; at the end, commit what waits and close the database."""
        self._writing = writing = asyncio.create_task(self._writer.run())
        marking = asyncio.create_task(self._keep_mark())
        try:
            yield self
        finally:
            self._writer.close()
            marking.cancel()
            try:
                await writing
            finally:
                self._write_mark()
                await self._database.close()

    async def _keep_mark(self) -> None:
        while True:
            self._write_mark()
            await asyncio.sleep(MARK_EVERY_S)

    def _write_mark(self) -> None:
        # Not over one that is further: it is what proves that this is an older copy.
        sequence = self.changes.sequence
        if self._mark is not None and self._older_than is None and sequence != self._marked:
            self._mark.write(Mark(self.id, sequence, self._state.version))
            self._marked = sequence

    async def lost(self) -> None:
        """Return when writing has ended in good order.

        Raises:
            StoreInUse: another process has the store now: it cannot be served from here any more.
        """
        if self._writing is not None:
            await asyncio.shield(self._writing)

    # The feed's side

    @property
    def source(self) -> str:
        """The store's id: what positions in its feed belong to."""
        return self.id

    @property
    def changes(self) -> ChangeMap:
        """The latest change of every endpoint, in commit order."""
        return self._state.changes

    @property
    def revision(self) -> int:
        """Another number whenever :meth:`heads` says something else."""
        return self._state.revision

    def subscribe(self, listener: Callable[[], Any]) -> Callable[[], None]:
        """Call ``listener()`` after committed changes were applied to :attr:`changes`; returns what ends this."""
        return self._state.subscribe(listener)

    def went_back(self, position: int) -> None:
        """A reader has read this store up to ``position``, which it has not reached: it is an old copy of itself."""
        self._older_than = max(position, self._older_than or 0)

    # The publisher's side

    def keep_cursor(self, cursor: Cursor) -> None:
        """Remember how far the publisher is, with one of the next commits; a lost one is made up by sending again."""
        self.cursor = cursor
        self._writer.keep_cursor(cursor)

    # State

    @property
    def failure(self) -> str | None:
        """Why the store is of no use now; None when it is."""
        if self._older_than is not None:
            return (
                f"the store was replaced by an older copy of itself (it has been at position {self._older_than}): "
                "make it a new store with diem backup and diem restore"
            )
        return self._writer.failure

    @property
    def counts(self) -> Counts:
        """What was done so far."""
        return self._writer.counts

    @property
    def queued(self) -> int:
        """Writes that wait."""
        return len(self._writer)

    # Writes

    async def put(
        self, datasets: Sequence[Dataset], *, source: str = "", key: IdempotencyKey | None = None
    ) -> list[Accepted]:
        """Store datasets, all or none; returns, committed, one answer for each.

        An endpoint whose content is what it was keeps its version (``changed`` is false).

        Raises:
            WrongUnit, KeyReused, TooManyEndpoints: refused.
            Unavailable: the store cannot commit now; nothing was stored.
        """
        return await self._writer.submit(Write(datasets=datasets, source=source, key=key))

    async def delete(self, endpoint: str, *, key: IdempotencyKey | None = None) -> Accepted:
        """Delete an endpoint; the deletion is a change with a version of its own.

        Raises:
            Unknown, Gone: there is nothing to delete.
            KeyReused, Unavailable: as :meth:`put`.
        """
        (accepted,) = await self._writer.submit(Write(delete=endpoint, key=key))
        return accepted

    async def transact(self, work: Callable[[AsyncConnection], Awaitable[T]]) -> T:
        """Do what is no change of an endpoint, between the writer's transactions, and commit it.

        Raises:
            Unavailable: the store cannot commit now; whether it has is not known.
        """
        try:
            async with self._database.writing() as connection:
                done = await work(connection)
                await connection.commit()
                return done
        except StoreInUse as error:
            raise Unavailable(str(error)) from error
        except ERRORS as error:
            raise Unavailable(f"the store cannot commit now: {reason(error)}", RETRY_AFTER_S) from error

    # Reads

    def head(self, endpoint: str) -> Head | None:
        """Everything about an endpoint but its data; None when it never existed."""
        return self._state.heads.get(endpoint)

    def heads(self) -> list[Head]:
        """All heads in the order of the endpoints' names, gone ones included."""
        return sorted(self._state.heads.values())

    async def read(self, endpoint: str) -> Stored:
        """The dataset of an endpoint: at least the version that :meth:`head` has said.

        Raises:
            Unknown, Gone: there is none.
            Unavailable: the database cannot be read.
        """
        head = self.head(endpoint)
        if head is None:
            raise Unknown(endpoint)
        if head.gone:
            raise Gone(endpoint, head.version)
        cached = self._cache.get(endpoint)
        if cached is not None and cached.version >= head.version:
            return cached
        try:
            async with self._database.reading() as connection:
                found = await connection.execute(_READ.where(ENDPOINTS.c.endpoint == endpoint))
                version, changed_ms, content, kind = found.one()
        except ERRORS as error:
            raise Unavailable("the store cannot be read now") from error
        if kind:
            raise Gone(endpoint, version)
        stored = Stored(version, changed_ms, content)
        self._cache.put(endpoint, stored)
        return stored

    async def versions(self, endpoint: str) -> list[Kept]:
        """The current version of an endpoint and the old ones that are kept, newest first; deletions are versions too.

        Raises:
            Unknown: there never was such an endpoint.
            Unavailable: the database cannot be read.
        """
        if self.head(endpoint) is None:
            raise Unknown(endpoint)
        oldest = self._history.oldest_ms(self._clock.wall_ms())
        limits = {"name": endpoint, "oldest": oldest, "at_most": self._history.versions}
        return [Kept._make(row) for row in await self._rows(_HISTORY, limits)]

    async def read_version(self, endpoint: str, version: int) -> Stored:
        """One version of an endpoint's dataset, the current or an old one.

        Raises:
            Unknown, NotKept: there is no such endpoint, or not this version of it.
            Gone: this version is a deletion.
            Unavailable: the database cannot be read.
        """
        if self.head(endpoint) is None:
            raise Unknown(endpoint)
        rows = await self._rows(_VERSION, {"name": endpoint, "wanted": version})
        if not rows:
            raise NotKept(endpoint, version)
        kept = Kept._make(rows[0])
        if kept.kind:
            raise Gone(endpoint, version)
        return Stored(version, kept.changed_ms, kept.content)

    async def _rows(self, statement: CompoundSelect[Any], parameters: dict[str, Any]) -> list[Row[Any]]:
        try:
            async with self._database.reading() as connection:
                return list(await connection.execute(statement, parameters))
        except ERRORS as error:
            raise Unavailable("the store cannot be read now") from error

    def _committed(self, planned: Plan) -> None:
        # Only what somebody reads: a cache of everything that is written would push out what is wanted.
        for endpoint, head in planned.heads.items():
            if endpoint not in self._cache:
                continue
            if head.gone:
                self._cache.drop(endpoint)
            else:
                self._cache.put(endpoint, Stored(head.version, head.changed_ms, planned.contents[endpoint]))
