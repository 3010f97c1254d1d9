"""The store as the rest of the service sees it: open it, write through the writer, read what is committed."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

from sqlalchemy import insert, select
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine

from diem.fanout.changes import ChangeMap
from diem.process.clock import Clock, SystemClock
from services.data.datasets import Dataset
from services.data.errors import DataError, Gone, Unavailable, Unknown
from services.data.store import sqlite, transaction
from services.data.store.cache import Cache, Stored
from services.data.store.cursor import Cursor
from services.data.store.migrate import upgrade
from services.data.store.plan import Accepted, IdempotencyKey, Plan, Write
from services.data.store.state import Head, State
from services.data.store.tables import ENDPOINTS, STORE
from services.data.store.writer import Counts, Writer, WriterLimits

_READ: Final = select(ENDPOINTS.c.version, ENDPOINTS.c.changed_ms, ENDPOINTS.c.content, ENDPOINTS.c.kind)


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
        engines: tuple[AsyncEngine, AsyncEngine],
        lock: sqlite.FileLock,
        clock: Clock,
        limits: StoreLimits,
        cursor: Cursor | None = None,
    ) -> None:
        self.id = store_id
        self.cursor = cursor
        """How far the publisher is, as it was last told to :meth:`keep_cursor`."""
        self._state = state
        self._engines = engines
        self._lock = lock
        self._cache = Cache(limits.cache_bytes)
        self._writer = Writer(engines[0], state, clock, limits.writer, self._committed)
        self._older_than: int | None = None

    @classmethod
    async def open(cls, url: str, *, clock: Clock | None = None, limits: StoreLimits | None = None) -> Self:
        """Open the database, make or migrate its tables, and read every endpoint's head.

        Raises:
            StoreInUse: another process has it open.
            Unavailable: its disk is full or it is locked.
            DataError: the URL or the database cannot be used.
        """
        limits = limits or StoreLimits()
        where = _sqlite_url(url)
        lock = sqlite.FileLock(Path(str(where.database)))
        engines = (
            sqlite.writer_engine(where, limits.busy_timeout_s),
            sqlite.reader_engine(where, limits.busy_timeout_s),
        )
        state = State()
        try:
            async with engines[0].begin() as connection:
                await connection.run_sync(upgrade)
                store_id = (await connection.execute(select(STORE.c.store_id))).scalar_one_or_none()
                if store_id is None:
                    store_id = str(uuid.uuid4())
                    await connection.execute(insert(STORE), {"id": 1, "store_id": store_id, "sequence": 0})
                state.apply(await transaction.changed_since(connection, 0))
                cursor = await transaction.read_cursor(connection)
        except SQLAlchemyError as error:
            await _dispose(engines)
            lock.release()
            reason = str(getattr(error, "orig", None) or error).partition("\n")[0]
            raise Unavailable(f"the store {where.database} cannot be opened: {reason}") from error
        clock = clock or SystemClock()
        return cls(store_id, state=state, engines=engines, lock=lock, clock=clock, limits=limits, cursor=cursor)

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[Self]:
        """Take writes while this is open; at the end, commit what waits and close the database."""
        writing = asyncio.create_task(self._writer.run())
        try:
            yield self
        finally:
            self._writer.close()
            try:
                await writing
            finally:
                await _dispose(self._engines)
                self._lock.release()

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
            return f"the store was replaced by an older copy of itself (a reader has position {self._older_than})"
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
            async with self._engines[1].connect() as connection:
                found = await connection.execute(_READ.where(ENDPOINTS.c.endpoint == endpoint))
                version, changed_ms, content, kind = found.one()
        except SQLAlchemyError as error:
            raise Unavailable("the store cannot be read now") from error
        if kind:
            raise Gone(endpoint, version)
        stored = Stored(version, changed_ms, content)
        self._cache.put(endpoint, stored)
        return stored

    def _committed(self, planned: Plan) -> None:
        # Only what somebody reads: a cache of everything that is written would push out what is wanted.
        for endpoint, head in planned.heads.items():
            if endpoint not in self._cache:
                continue
            if head.gone:
                self._cache.drop(endpoint)
            else:
                self._cache.put(endpoint, Stored(head.version, head.changed_ms, planned.contents[endpoint]))


def _sqlite_url(text: str) -> URL:
    try:
        url = make_url(text)
    except ArgumentError:
        raise DataError("the database URL cannot be read: expected sqlite:///path/to/file") from None
    if url.get_backend_name() != "sqlite" or not url.database or url.database == ":memory:":
        raise DataError("the database URL must be sqlite:///path/to/file: this release has no other store")
    return url.set(drivername="sqlite+aiosqlite")


async def _dispose(engines: tuple[AsyncEngine, AsyncEngine]) -> None:
    for engine in engines:
        await engine.dispose()
