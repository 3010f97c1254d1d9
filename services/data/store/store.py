"""The store as the rest of the service sees it: open it, write through the writer, read what is committed."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self, TypeVar

from sqlalchemy import insert, select
from sqlalchemy.ext.asyncio import AsyncConnection

from diem.fanout.change_map import ChangeMap
from diem.process.clock import Clock, SystemClock
from services.data.errors import DataError, StoreInUse, StoreUnavailable
from services.data.store.database import ERRORS, Database, database_at, reason
from services.data.store.index import StoreIndex
from services.data.store.reader import Reader
from services.data.store.retention import Retention, count_old
from services.data.store.rollback_guard import MarkFile, RollbackGuard
from services.data.store.tables import STORE, Cursor, read_cursor, upgrade
from services.data.store.transaction import changed_since
from services.data.store.writer import RETRY_AFTER_S, Writer, WriterLimits


@dataclass(frozen=True, slots=True)
class Loaded:
    """State of a store when it was opened."""

    store: str
    """Its id."""
    index: StoreIndex
    cursor: Cursor | None
    old_versions: Mapping[str, int]
    """Their number by endpoint."""


async def load(database: Database) -> Loaded:
    """Claim a database, make or migrate its tables, and read every endpoint's head. The caller closes it.

    Raises:
        StoreInUse: another process has it open.
        StoreUnavailable: its disk is full or it is locked.
        DataError: it cannot be used.
    """
    index = StoreIndex()
    try:
        await database.lock()
        async with database.writing(long_running=True) as connection:
            await connection.run_sync(upgrade)
            store = (await connection.execute(select(STORE.c.store_id))).scalar_one_or_none()
            if store is None:
                store = str(uuid.uuid4())
                await connection.execute(insert(STORE), {"id": 1, "store_id": store, "sequence": 0})
            index.apply(await changed_since(connection, 0))
            cursor = await read_cursor(connection)
            old_versions = await count_old(connection)
            await connection.commit()
    except ERRORS as error:
        raise StoreUnavailable(f"the store {database.display_name} cannot be opened: {reason(error)}") from error
    return Loaded(store, index, cursor, old_versions)


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class StoreLimits:
    """How long a commit may wait for a lock, how much is cached, and the writer's bounds."""

    busy_timeout_s: float = 5.0
    cache_bytes: int = 32 * 1024 * 1024
    writer: WriterLimits = field(default_factory=WriterLimits)


class Store:
    """Endpoints, their versions and data. Make one with :meth:`open` and use it within :meth:`serving`.

    :attr:`index` has what is in memory, :attr:`reads` and :attr:`writer` use the database. The store is what a feed is
    served from (``source``, ``changes``, ``went_back``; docs/protocol.md section 2) and what the publisher publishes.
    """

    def __init__(
        self, loaded: Loaded, *, database: Database, clock: Clock, limits: StoreLimits, mark: MarkFile | None = None
    ) -> None:
        self.id = loaded.store
        self.cursor = loaded.cursor
        """How far the publisher is, as last passed to :meth:`keep_cursor`."""
        self.index = loaded.index
        self._database = database
        history = limits.writer.history
        self.reads = Reader(database, self.index, clock, history=history, cache_bytes=limits.cache_bytes)
        retention = Retention(history, loaded.old_versions, limits.writer.max_keys)
        self.writer = Writer(database, self.index, clock, limits.writer, retention=retention, observers=[self.reads])
        self._writing: asyncio.Task[None] | None = None
        self._rollback_guard = RollbackGuard(mark, self.id, self.index)

    @classmethod
    async def open(
        cls, url: str, *, clock: Clock | None = None, limits: StoreLimits | None = None, mark: Path | None = None
    ) -> Self:
        """Open the database, make or migrate its tables, and read every endpoint's head.

        Args:
            url: of the database.
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
        """Accept writes while this is open; at the end, commit what is queued and close the database."""
        self._writing = writing = asyncio.create_task(self.writer.run())
        marking = asyncio.create_task(self._rollback_guard.run())
        try:
            yield self
        finally:
            self.writer.close()
            marking.cancel()
            try:
                await writing
            finally:
                self._rollback_guard.write()
                await self._database.close()

    async def lost(self) -> None:
        """Return when writing has ended in good order.

        Raises:
            StoreInUse: another process has the store now: it cannot be served from here any more.
        """
        if self._writing is not None:
            await asyncio.shield(self._writing)

    @property
    def source(self) -> str:
        """The store's id: positions in its feed belong to it."""
        return self.id

    @property
    def changes(self) -> ChangeMap:
        """The latest change of every endpoint, in commit order."""
        return self.index.changes

    def went_back(self, position: int) -> None:
        """Mark the store as an older copy of itself: a reader had read it up to ``position``."""
        self._rollback_guard.went_back(position)

    def keep_cursor(self, cursor: Cursor) -> None:
        """Store how far the publisher is, with one of the next commits; a lost one is made up by sending again."""
        self.cursor = cursor
        self.writer.keep_cursor(cursor)

    @property
    def failure(self) -> str | None:
        """Why the store cannot be used now; None when it can."""
        return self._rollback_guard.failure or self.writer.failure

    async def transact(self, work: Callable[[AsyncConnection], Awaitable[T]]) -> T:
        """Run and commit ``work``, which changes no endpoint, between the writer's transactions.

        Raises:
            StoreUnavailable: the store cannot commit now; whether it has is not known.
        """
        try:
            async with self._database.writing() as connection:
                result = await work(connection)
                await connection.commit()
                return result
        except StoreInUse as error:
            raise StoreUnavailable(str(error)) from error
        except ERRORS as error:
            raise StoreUnavailable(f"the store cannot commit now: {reason(error)}", RETRY_AFTER_S) from error
