"""SQLite: connections, private files, and the lock file that gives one process the database."""

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
    """A database file, owned by the process that holds the lock file beside it."""

    def __init__(self, url: URL, timeout_s: float) -> None:
        self.path = Path(str(url.database))
        self.display_name = str(url.database)
        driver = url.set(drivername="sqlite+aiosqlite")
        self._writer = writer_engine(driver, timeout_s)
        self._reader = reader_engine(driver, timeout_s)
        self._lock: FileLock | None = None
        self._file: tuple[int, int] | None = None

    async def lock(self, *, wait: bool = True) -> None:  # noqa: ARG002  # the kernel releases the lock with a kill
        """Acquire the lock file, and make the database's files private."""
        self._lock = FileLock(self.path)
        _make_private(self.path)

    async def check(self) -> None:
        """Check that the path still names the open file."""
        try:
            status = self.path.stat()
            found = (status.st_dev, status.st_ino)
        except FileNotFoundError:
            found = None
        if self._file is not None and found != self._file:
            # Writes would go to an unlinked file.
            raise StoreReplaced(f"the file {self.display_name} is another one")
        self._file = found

    @asynccontextmanager
    async def writing(self, *, long_running: bool = False) -> AsyncIterator[AsyncConnection]:  # noqa: ARG002  # no limit
        """Return the writer's connection; its transaction holds the write lock from the first statement."""
        await self.check()
        async with self._writer.connect() as connection:
            try:
                yield connection
            except BaseException:
                # SQLite has left it in an unknown state.
                await connection.invalidate()
                raise

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[AsyncConnection]:
        """Return one of the readers' connections."""
        async with self._reader.connect() as connection:
            yield connection

    @asynccontextmanager
    async def snapshot(self) -> AsyncIterator[AsyncConnection]:
        """Return a reader's connection in a transaction: the write-ahead log keeps the state at its start."""
        if not self.path.exists():
            raise DataError(f"there is no file {self.display_name}")
        async with self._reader.connect() as connection:
            await connection.exec_driver_sql("BEGIN")
            try:
                yield connection
            finally:
                await connection.exec_driver_sql("ROLLBACK")

    async def close(self) -> None:
        """Close the connections, then release the lock."""
        await self._writer.dispose()
        await self._reader.dispose()
        if self._lock is not None:
            self._lock.release()
            self._lock = None


def writer_engine(url: URL, busy_timeout_s: float) -> AsyncEngine:
    """Make the engine of the only writer: a transaction holds the write lock from its first statement.

    Commits are durable on return (write-ahead log, synchronous FULL). A statement waits up to ``busy_timeout_s`` for
    another process's lock, in the connection's own thread.
    """
    engine = create_async_engine(url, connect_args={"timeout": busy_timeout_s}, pool_size=1, max_overflow=0)

    @event.listens_for(engine.sync_engine, "connect")
    def _connect(connection: Any, _record: object) -> None:  # noqa: ANN401  # the driver's adapted connection
        # The driver would begin transactions only on the first write; see ``_begin``.
        connection.isolation_level = None
        _pragmas(connection, "journal_mode=WAL", "synchronous=FULL", "journal_size_limit=67108864", "cache_size=-8192")

    @event.listens_for(engine.sync_engine, "begin")
    def _begin(connection: Connection) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    return engine


def reader_engine(url: URL, busy_timeout_s: float) -> AsyncEngine:
    """Make the engine of readers: single statements, each on the last committed state; writes never block them."""
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
    """Remove the rights of group and others, also from files of an earlier release.

    The database contains private data, and digests of keys. SQLite creates its other files with the database file's
    mode.
    """
    # Errors are ignored: SQLite will report them; other users' files stay unchanged.
    with suppress(OSError):
        database.touch(0o600, exist_ok=False)
    for path in (database, *(database.with_name(database.name + end) for end in ("-wal", "-shm"))):
        with suppress(OSError):
            if (rights := stat.S_IMODE(path.stat().st_mode)) & 0o077:
                path.chmod(rights & ~0o077)


class FileLock:
    """Exclusive lock of this process on a store; the kernel releases it when the process ends, even by a kill.

    Raises:
        StoreInUse: another process holds the lock.
        DataError: the directory cannot be created or written.
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
        """Release the lock."""
        os.close(self._descriptor)
