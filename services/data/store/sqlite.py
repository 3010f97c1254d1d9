"""Everything that is particular to SQLite: how connections are opened, and that one process has the file."""

import fcntl
import os
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, event
from sqlalchemy.engine import URL
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from services.data.errors import DataError, StoreInUse

READERS = 4


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


class FileLock:
    """Says that this process has the store; the kernel lets go of it when the process ends, however it ends.

    Raises:
        StoreInUse: another process has it.
        DataError: the directory cannot be made or written.
    """

    def __init__(self, database: Path) -> None:
        path = database.with_name(database.name + ".lock")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
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
