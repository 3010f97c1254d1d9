"""Everything that is particular to SQLite: how connections are opened, and that one process has the file."""

import fcntl
import os
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, event
from sqlalchemy.engine import URL
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from services.data.errors import DataError, StoreInUse, StoreReplaced

READERS = 4


class SqliteDatabase:
    """A file. The kernel knows which process has it, by a lock file beside it."""

    def __init__(self, url: URL, timeout_s: float) -> None:
        self.path = Path(str(url.database))
        self.display_name = str(url.database)
        driver = url.set(drivername="sqlite+aiosqlite")
        self._writer = writer_engine(driver, timeout_s)
        self._reader = reader_engine(driver, timeout_s)
        self._lock: FileLock | None = None
        self._file: tuple[int, int] | None = None

    async def lock(self) -> None:
        """Take the lock file, and the files of the database for this user alone."""
        self._lock = FileLock(self.path)
        _make_private(self.path)

    async def check(self) -> None:
        """See whether the file that is open is still the one with this name."""
        try:
            status = self.path.stat()
            found = (status.st_dev, status.st_ino)
        except FileNotFoundError:
            found = None
        if self._file is not None and found != self._file:
            # What is written now goes to a file that nobody will find.
            raise StoreReplaced(f"the file {self.display_name} is another one")
        self._file = found

    @asynccontextmanager
    async def writing(self, *, long_running: bool = False) -> AsyncIterator[AsyncConnection]:  # noqa: ARG002  # no limit
        """The writer's connection: its transaction has the write lock from the first statement."""
        await self.check()
        async with self._writer.connect() as connection:
            try:
                yield connection
            except BaseException:
                # Whatever state SQLite left it in.
                await connection.invalidate()
                raise

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[AsyncConnection]:
        """One of the readers' connections."""
        async with self._reader.connect() as connection:
            yield connection

    @asynccontextmanager
    async def snapshot(self) -> AsyncIterator[AsyncConnection]:
        """A reader's connection within a transaction: the write-ahead log keeps the state that it began with."""
        if not self.path.exists():
            raise DataError(f"there is no file {self.display_name}")
        async with self._reader.connect() as connection:
            await connection.exec_driver_sql("BEGIN")
            try:
                yield connection
            finally:
                await connection.exec_driver_sql("ROLLBACK")

    async def close(self) -> None:
        """Close the connections, then let go of the lock."""
        await self._writer.dispose()
        await self._reader.dispose()
        if self._lock is not None:
            self._lock.release()
            self._lock = None


def writer_engine(url: URL, busy_timeout_s: float) -> AsyncEngine:
    """The engine of the one writer: a transaction has the write lock from its first statement.

    A commit is on the disk when it returns (write-ahead log, synchronous FULL). A statement waits up to
    ``busy_timeout_s`` for a lock that another process holds, in the connection's own thread.
    """
    engine = create_async_engine(url, connect_args={"timeout": busy_timeout_s}, pool_size=1, max_overflow=0)

    @event.listens_for(engine.sync_engine, "connect")
    def _connect(connection: Any, _record: object) -> None:  # noqa: ANN401  # the driver's adapted connection
        # The driver's own transactions begin too late, at the first write; ours begin below.
        connection.isolation_level = None
        _pragmas(connection, "journal_mode=WAL", "synchronous=FULL", "journal_size_limit=67108864", "cache_size=-8192")

    @event.listens_for(engine.sync_engine, "begin")
    def _begin(connection: Connection) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    return engine


def reader_engine(url: URL, busy_timeout_s: float) -> AsyncEngine:
    """The engine of reads: single statements, each on the last committed state; writes never hold them up."""
    engine = create_async_engine(
        url,
        connect_args={"timeout": busy_timeout_s},
        isolation_level="AUTOCOMMIT",
        pool_size=READERS,
        max_overflow=0,
        pool_reset_on_return=None,
    )

    @event.listens_for(engine.sync_engine, "connect")
    def _connect(connection: Any, _record: object) -> None:  # noqa: ANN401
        _pragmas(connection, "query_only=ON", "cache_size=-4096")

    return engine


def _pragmas(connection: Any, *pragmas: str) -> None:  # noqa: ANN401
    cursor = connection.cursor()
    for pragma in pragmas:
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _make_private(database: Path) -> None:
    """Take the rights of others away, also from the files of an earlier release.

    It has data that not everybody may read, and digests of keys. SQLite gives its other files the rights of the first.
    """
    # What cannot be done here SQLite cannot do either, and then says why; files of another user stay as they are.
    with suppress(OSError):
        database.touch(0o600, exist_ok=False)
    for path in (database, *(database.with_name(database.name + end) for end in ("-wal", "-shm"))):
        with suppress(OSError):
            if (rights := stat.S_IMODE(path.stat().st_mode)) & 0o077:
                path.chmod(rights & ~0o077)


class FileLock:
    """Says that this process has the store; the kernel lets go of it when the process ends, however it ends.

    Raises:
        StoreInUse: another process has it.
        DataError: the directory cannot be made or written.
    """

    def __init__(self, database: Path) -> None:
        path = database.with_name(database.name + ".lock")
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise DataError(f"the store's directory {path.parent} cannot be used: {error.strerror}") from error
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._descriptor)
            raise StoreInUse(f"the store {database} is in use by another process") from None

    def release(self) -> None:
        """Let the next process have the store."""
        os.close(self._descriptor)
