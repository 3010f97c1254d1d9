"""The store as the rest of the service sees it: open it, write through the writer, read what is committed."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeVar

from sqlalchemy import insert, select
from sqlalchemy.ext.asyncio import AsyncConnection

from diem.fanout.change_map import ChangeMap
from diem.process.clock import Clock, SystemClock
from services.data.datasets import Dataset
from services.data.errors import DataError, StoreInUse, StoreUnavailable
from services.data.store.database import ERRORS, Database, database_at, reason
from services.data.store.index import EndpointHead, StoreIndex
from services.data.store.reader import Reader, Stored
from services.data.store.retention import Retention, StoredVersion, count_old
from services.data.store.rollback_guard import MarkFile, RollbackGuard
from services.data.store.tables import STORE, Cursor, read_cursor, upgrade
from services.data.store.transaction import changed_since
from services.data.store.write_plan import Accepted, IdempotencyKey, Write
from services.data.store.writer import RETRY_AFTER_S, Writer, WriterCounts, WriterLimits


class Loaded(NamedTuple):
    """What a store had when it was opened."""

    store: str
    """Its id."""
    state: StoreIndex
    cursor: Cursor | None
    old_versions: Mapping[str, int]
    """How many each endpoint has."""


async def load(database: Database) -> Loaded:
    """Claim a database, make or migrate its tables, and read every endpoint's head. The caller closes it.

    Raises:
        StoreInUse: another process has it open.
        StoreUnavailable: its disk is full or it is locked.
        DataError: it cannot be used.
    """
    state = StoreIndex()
    try:
        await database.claim()
        async with database.writing(at_leisure=True) as connection:
            await connection.run_sync(upgrade)
            store = (await connection.execute(select(STORE.c.store_id))).scalar_one_or_none()
            if store is None:
                store = str(uuid.uuid4())
                await connection.execute(insert(STORE), {"id": 1, "store_id": store, "sequence": 0})
            state.apply(await changed_since(connection, 0))
            cursor = await read_cursor(connection)
            old_versions = await count_old(connection)
            await connection.commit()
    except ERRORS as error:
        raise StoreUnavailable(f"the store {database.shown} cannot be opened: {reason(error)}") from error
    return Loaded(store, state, cursor, old_versions)


T = TypeVar("T")


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
        self, loaded: Loaded, *, database: Database, clock: Clock, limits: StoreLimits, mark: MarkFile | None = None
    ) -> None:
        self.id = loaded.store
        self.cursor = loaded.cursor
        """How far the publisher is, as it was last told to :meth:`keep_cursor`."""
        self._state = state = loaded.state
        self._database = database
        history = limits.writer.history
        self._reads = Reader(database, state, clock, history=history, cache_bytes=limits.cache_bytes)
        retention = Retention(history, loaded.old_versions)
        self._writer = Writer(database, state, clock, limits.writer, self._reads.committed, retention)
        self._writing: asyncio.Task[None] | None = None
        self._mark = RollbackGuard(mark, self.id, state)

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
            StoreUnavailable: its disk is full or it is locked.
            DataError: the URL or the database cannot be used.
        """
        limits = limits or StoreLimits()
        database = database_at(url, limits.busy_timeout_s)
        try:
            loaded = await load(database)
        except DataError:
            await database.close()
            raise
        file = None if mark is None else MarkFile(mark)
        return cls(loaded, database=database, clock=clock or SystemClock(), limits=limits, mark=file)

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[Self]:
        """Take writes while this is open; at the end, commit what waits and close the database."""
        self._writing = writing = asyncio.create_task(self._writer.run())
        marking = asyncio.create_task(self._mark.run())
        try:
            yield self
        finally:
            self._writer.close()
            marking.cancel()
            try:
                await writing
            finally:
                self._mark.write()
                await self._database.close()

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
        self._mark.went_back(position)

    # The publisher's side

    def keep_cursor(self, cursor: Cursor) -> None:
        """Remember how far the publisher is, with one of the next commits; a lost one is made up by sending again."""
        self.cursor = cursor
        self._writer.keep_cursor(cursor)

    # State

    @property
    def failure(self) -> str | None:
        """Why the store is of no use now; None when it is."""
        return self._mark.failure or self._writer.failure

    @property
    def counts(self) -> WriterCounts:
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
            WrongUnit, IdempotencyKeyReused, TooManyEndpoints: refused.
            StoreUnavailable: the store cannot commit now; nothing was stored.
        """
        return await self._writer.submit(Write(datasets=datasets, source=source, key=key))

    async def delete(self, endpoint: str, *, key: IdempotencyKey | None = None) -> Accepted:
        """Delete an endpoint; the deletion is a change with a version of its own.

        Raises:
            UnknownEndpoint, EndpointDeleted: there is nothing to delete.
            IdempotencyKeyReused, StoreUnavailable: as :meth:`put`.
        """
        (accepted,) = await self._writer.submit(Write(delete=endpoint, key=key))
        return accepted

    async def transact(self, work: Callable[[AsyncConnection], Awaitable[T]]) -> T:
        """Do what is no change of an endpoint, between the writer's transactions, and commit it.

        Raises:
            StoreUnavailable: the store cannot commit now; whether it has is not known.
        """
        try:
            async with self._database.writing() as connection:
                done = await work(connection)
                await connection.commit()
                return done
        except StoreInUse as error:
            raise StoreUnavailable(str(error)) from error
        except ERRORS as error:
            raise StoreUnavailable(f"the store cannot commit now: {reason(error)}", RETRY_AFTER_S) from error

    # Reads

    def head(self, endpoint: str) -> EndpointHead | None:
        """Everything about an endpoint but its data; None when it never existed."""
        return self._state.heads.get(endpoint)

    def heads(self) -> list[EndpointHead]:
        """All heads in the order of the endpoints' names, gone ones included."""
        return [self._state.heads[name] for name in self._state.names]

    @property
    def names(self) -> Sequence[str]:
        """The names of all heads in their order; the list that is returned does not change."""
        return self._state.names

    async def read(self, endpoint: str) -> Stored:
        """The dataset of an endpoint: at least the version that :meth:`head` has said.

        Raises:
            UnknownEndpoint, EndpointDeleted: there is none.
            StoreUnavailable: the database cannot be read.
        """
        return await self._reads.current(endpoint)

    async def versions(self, endpoint: str) -> list[StoredVersion]:
        """The current version of an endpoint and the old ones that are kept, newest first; deletions are versions too.

        Raises:
            UnknownEndpoint: there never was such an endpoint.
            StoreUnavailable: the database cannot be read.
        """
        return await self._reads.versions(endpoint)

    async def count_versions(self, endpoint: str) -> int:
        """Return how many :meth:`versions` there are: fewer with time. Raises StoreUnavailable: no database answers."""
        return await self._reads.count(endpoint)

    async def read_version(self, endpoint: str, version: int) -> Stored:
        """One version of an endpoint's dataset: the current one, or an old one that :meth:`versions` has.

        Raises:
            UnknownEndpoint, VersionNotKept: there is no such endpoint, or not this version of it.
            EndpointDeleted: this version is a deletion.
            StoreUnavailable: the database cannot be read.
        """
        return await self._reads.version(endpoint, version)
