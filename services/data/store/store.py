"""The store's interface to the rest of the service: open it, write through its writer, read committed data."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Self, TypeVar

from sqlalchemy import insert, select
from sqlalchemy.ext.asyncio import AsyncConnection

from diem.fanout.change_map import ChangeMap
from diem.process.clock import Clock, SystemClock
from diem.protocol import feed
from services.data.errors import DataError, StoreInUse, StoreUnavailable
from services.data.limits import InlineLimits, StoreLimits
from services.data.store.database import ERRORS, Database, database_at, reason
from services.data.store.index import GREATEST, StoreIndex
from services.data.store.reader import Reader
from services.data.store.retention import Retention, count_old
from services.data.store.retention_clock import RetentionClock
from services.data.store.rollback_guard import MarkFile, RollbackGuard
from services.data.store.tables import STORE, Cursor, read_cursor, upgrade
from services.data.store.transaction import changed_since, latest_contents
from services.data.store.write_plan import LAST_VERSION
from services.data.store.writer import RETRY_AFTER_S, Writer


@dataclass(frozen=True, slots=True)
class Loaded:
    """Contents of a store at opening."""

    store: str
    """The store's id."""
    index: StoreIndex
    cursor: Cursor | None
    old_versions: Mapping[str, int]
    """Number of old versions by endpoint."""
    retention_ms: int
    """Time reached by the retention clock; 0 in a store without any change so far."""


async def load(
    database: Database, inline: InlineLimits | None = None, *, wait: bool = True, least_version: int = 0
) -> Loaded:
    """Lock a database, create or migrate its tables, and read every endpoint's head. The caller closes the database.

    ``wait``: as in :meth:`Store.open`. ``least_version``: endpoints of a new store begin above this.

    Raises:
        StoreInUse: another process has the store open.
        StoreUnavailable: the disk is full or the database is locked.
        DataError: the database cannot be used.
    """
    inline = inline or InlineLimits()
    index = StoreIndex(inline)
    try:
        await database.lock(wait=wait)
        async with database.writing(long_running=True) as connection:
            await connection.run_sync(upgrade)
            row = (
                await connection.execute(
                    select(STORE.c.store_id, STORE.c.version_floor, STORE.c.retention_ms, STORE.c.forgotten)
                )
            ).one_or_none()
            if row is None:
                store, index.version, retention_ms, forgotten = str(uuid.uuid4()), least_version, 0, 0
                created = {
                    "id": 1, "store_id": store, "sequence": 0, "version_floor": least_version, "retention_ms": 0,
                    "forgotten": 0,
                }  # fmt: skip
                await connection.execute(insert(STORE), created)
            else:
                store, index.version, retention_ms, forgotten = row
            index.floor = index.version
            contents = await latest_contents(connection, longest=inline.greatest, total=inline.retained_bytes)
            index.apply(await changed_since(connection, 0), contents)
            index.forget(forgotten)
            cursor = await read_cursor(connection)
            old_versions = await count_old(connection)
            await connection.commit()
    except ERRORS as error:
        raise StoreUnavailable(f"the store {database.display_name} cannot be opened: {reason(error)}") from error
    return Loaded(store, index, cursor, old_versions, retention_ms)


T = TypeVar("T")


class Store:
    """Endpoints, their versions and data. Open one with :meth:`open` and use it within :meth:`serving`.

    :attr:`index` is in memory, :attr:`reader` and :attr:`writer` use the database. The store is a ``FeedSource``
    (``source``, ``changes``, ``went_back``; docs/internals.md section 2) and the ``PublishedStore`` of the publisher.
    """

    def __init__(
        self, loaded: Loaded, *, database: Database, clock: Clock, limits: StoreLimits, mark: MarkFile | None = None
    ) -> None:
        self.id = loaded.store
        self.cursor = loaded.cursor
        """The publisher's cursor, as last passed to :meth:`keep_cursor`."""
        self.index = loaded.index
        self._database = database
        history = limits.writer.history
        ages = RetentionClock(clock, loaded.retention_ms)
        self.reader = Reader(database, self.index, ages, history=history, cache_bytes=limits.cache_bytes)
        # In a log, deletions must have tombstones before: see release_deleted().
        released = GREATEST if not limits.writer.published and loaded.cursor is None else 0
        self._retention = Retention(history, loaded.old_versions, limits.writer.max_keys, released=released)
        self._ages = ages
        self.writer = Writer(
            database, self.index, clock, limits.writer, ages=ages, retention=self._retention, observers=[self.reader]
        )
        self._writing: asyncio.Task[None] | None = None
        self._rollback_guard = RollbackGuard(mark, self.id, self.index, database.backend)

    @classmethod
    async def open(
        cls,
        url: str,
        *,
        clock: Clock | None = None,
        limits: StoreLimits | None = None,
        mark: Path | None = None,
        wait: bool = True,
    ) -> Self:
        """Open the database, create or migrate its tables, and read every endpoint's head.

        Args:
            url: of the database.
            clock: the source of versions.
            limits: the store's limits.
            mark: file of the high-water mark, not beside the database, to detect an older copy.
            wait: for the lock of a process just killed.

        Raises:
            StoreInUse: another process has the store open.
            StoreUnavailable: the disk is full or the database is locked.
            DataError: the URL or the database cannot be used.
        """
        limits, clock = limits or StoreLimits(), clock or SystemClock()
        database = database_at(url, limits.busy_timeout_s)
        file = None if mark is None else MarkFile(mark)
        try:
            # A missing store was lost: clients hold its versions, and a clock may have been ahead.
            known = None if file is None else file.read()
            least = 0 if known is None or known.version >= LAST_VERSION else known.version
            loaded = await load(database, limits.inline, wait=wait, least_version=least)
        except DataError:
            await database.close()
            raise
        return cls(loaded, database=database, clock=clock, limits=limits, mark=file)

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[Self]:
        """Accept writes in this context; at its end, commit queued ones and close the database."""
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

    async def wait_writer(self) -> None:
        """Wait until the writer has ended.

        Raises:
            StoreInUse: another process has the store now, or it was replaced: it can no longer be served from here.
        """
        if self._writing is not None:
            await asyncio.shield(self._writing)

    @property
    def source(self) -> str:
        """The source of the feed's positions: the store's id, with its forgotten sequence."""
        return feed.store_source(self.id, self.index.forgotten)

    @property
    def changes(self) -> ChangeMap:
        """The latest change of every endpoint, in commit order."""
        return self.index.changes

    def went_back(self, position: int) -> None:
        """Mark the store as an older copy: a reader has read up to ``position``."""
        self._rollback_guard.went_back(position)

    def log_is_ahead(self, endpoint: str, version: int) -> None:
        """Mark the store as an older copy: its log has ``version`` of ``endpoint``, beyond the store's.

        May be called for every such endpoint: the greatest version enters the high-water mark, above which a restore
        starts.
        """
        self._rollback_guard.log_is_ahead(endpoint, version)

    def keep_cursor(self, cursor: Cursor) -> None:
        """Store the publisher's cursor with one of the next commits; a lost cursor only causes a resend."""
        self.cursor = cursor
        self.writer.keep_cursor(cursor)

    @property
    def version_floor(self) -> int:
        """The greatest version that a forgotten endpoint may have had."""
        return self.index.floor

    @property
    def forgotten(self) -> int:
        """The sequence up to which deleted endpoints are forgotten; 0: none ever was."""
        return self.index.forgotten

    @property
    def expired(self) -> int:
        """The sequence up to which all deletions are old enough to be forgotten; 0 if none is left."""
        due = self._retention.expired(self.index.gone.values(), self._ages.now_ms())
        return max((head.sequence for head in due), default=0)

    def deleted(self, upto: int) -> list[bytes]:
        """Return the endpoints whose deletion has a sequence up to ``upto``."""
        return [
            head.endpoint.encode() for head in takewhile(lambda head: head.sequence <= upto, self.index.gone.values())
        ]

    def release_deleted(self, upto: int, cursor: Cursor) -> None:
        """Let the store forget deletions up to the sequence ``upto``: the log has tombstones of them.

        ``cursor`` is stored no later.
        """
        self._retention.released = max(self._retention.released, upto)
        self.keep_cursor(cursor)

    @property
    def failure(self) -> str | None:
        """Reason why the store cannot be used now; None if it can."""
        return self._rollback_guard.failure or self.writer.failure

    async def transact(self, work: Callable[[AsyncConnection], Awaitable[T]]) -> T:
        """Run and commit ``work``, which must not change endpoints, between the writer's transactions.

        Raises:
            StoreUnavailable: the store cannot commit now; ``work`` may or may not have been committed.
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
