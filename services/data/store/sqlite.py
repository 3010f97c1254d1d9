"""SQLite: connections, private files, and the lock file that gives one process the database."""

import asyncio
import fcntl
import os
import sqlite3
import stat
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import lru_cache, partial
from itertools import chain
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any, ClassVar, Final

from sqlalchemy import Connection, event
from sqlalchemy.engine import URL
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from services.data.errors import DataError, StoreInUse, StoreReplaced
from services.data.store.group import Counter, Group, StoredRows, check_counter
from services.data.store.index import EndpointHead
from services.data.store.retention import EXPIRED_PER_STATEMENT, Deletions
from services.data.store.tables import HISTORY
from services.data.store.write_plan import IdempotentReply, WritePlan

READERS = 4
WRITER_PRAGMAS: Final = (
    "journal_mode=WAL", "synchronous=FULL", "journal_size_limit=67108864", "cache_size=-8192"
)  # fmt: skip


class SqliteDatabase:
    """A database file, owned by the process that holds the lock file beside it."""

    backend: ClassVar[str] = "sqlite"

    def __init__(self, url: URL, timeout_s: float) -> None:
        self.path = Path(str(url.database))
        self.display_name = str(url.database)
        driver = url.set(drivername="sqlite+aiosqlite")
        self._writer = writer_engine(driver, timeout_s)
        self._reader = reader_engine(driver, timeout_s)
        self._groups = _GroupWriter(self.path, timeout_s)
        self._turn = asyncio.Lock()
        """Held by the only transaction that writes."""
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

    async def commit(self, group: Group) -> WritePlan:
        """Execute a group in the writer's thread, as a whole."""
        await self.check()
        async with self._turn:
            return await self._groups.commit(group)

    @asynccontextmanager
    async def writing(self, *, long_running: bool = False) -> AsyncIterator[AsyncConnection]:  # noqa: ARG002  # no limit
        """Return the writer's connection; its transaction holds the write lock from the first statement."""
        await self.check()
        async with self._turn, self._writer.connect() as connection:
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
        await self._groups.close()
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
        _pragmas(connection, *WRITER_PRAGMAS)

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
    """Remove the rights of group and others.

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


_HEAD: Final = ", ".join(EndpointHead._fields)
_OLD: Final = [column.name for column in HISTORY.c]
_COUNTER: Final = "SELECT sequence, version_floor, forgotten FROM store"
_CHANGED_SINCE: Final = f"SELECT {_HEAD} FROM endpoints WHERE sequence > ? ORDER BY sequence"
_REPLIES: Final = "SELECT key, writer, digest, answer FROM requests WHERE key = ?"
_CONTENT: Final = "SELECT content FROM endpoints WHERE endpoint = ?"
_SUPERSEDED: Final = f"INSERT INTO history ({', '.join(_OLD)}) VALUES ({', '.join('?' * len(_OLD))})"
MANY: Final = 64
"""Maximum number of rows in one statement: each step of SQLite releases the interpreter, and waits for it again."""


@lru_cache
def _replaced(rows: int) -> str:
    # Copied within the database, which has the replaced rows.
    columns = ", ".join(_OLD)
    return f"INSERT INTO history ({columns}) SELECT {columns} FROM endpoints WHERE endpoint IN ({_marks(rows)})"


@lru_cache
def _changed(rows: int) -> str:
    row = f"({_marks(len(EndpointHead._fields) + 1)})"
    return (
        f"INSERT INTO endpoints ({_HEAD}, content) VALUES {', '.join([row] * rows)}"
        f" ON CONFLICT (endpoint) DO UPDATE SET {', '.join(f'{n} = excluded.{n}' for n in EndpointHead._fields[1:])}"
        ", content = excluded.content"
    )


def _marks(count: int) -> str:
    return ", ".join("?" * count)


def _execute_many(
    connection: sqlite3.Connection, statement: Callable[[int], str], rows: Sequence[Sequence[object]]
) -> None:
    """Execute statements for many rows each, as few as there are: their numbers of rows are powers of two."""
    at = 0
    while at < len(rows):
        count = min(MANY, 1 << ((len(rows) - at).bit_length() - 1))
        connection.execute(statement(count), [*chain.from_iterable(rows[at : at + count])])
        at += count


_REPLY: Final = "INSERT INTO requests (key, writer, digest, answer, created_ms) VALUES (?, ?, ?, ?, ?)"
_POSITIONS: Final = "SELECT part, position FROM checkpoints WHERE source = ?"
_CHECKPOINT: Final = (
    "INSERT INTO checkpoints (source, part, position) VALUES (?, ?, ?)"
    " ON CONFLICT (source, part) DO UPDATE SET position = excluded.position"
)
_CURSOR: Final = (
    "INSERT INTO publisher (id, source, sequence, logs) VALUES (1, ?, ?, ?) ON CONFLICT (id) DO UPDATE"
    " SET source = excluded.source, sequence = excluded.sequence, logs = excluded.logs"
)


@lru_cache
def _prune(endpoints: int) -> str:
    aged = "row_number() OVER (PARTITION BY endpoint ORDER BY version DESC) AS age"
    return (
        "DELETE FROM history WHERE sequence IN (SELECT sequence FROM"
        f" (SELECT sequence, {aged} FROM history WHERE endpoint IN ({_marks(endpoints)})) WHERE age > ?)"
    )


# The oldest by sequence, so that no other rows are read.
_EXPIRE: Final = (
    "DELETE FROM history WHERE sequence IN (SELECT sequence FROM"
    " (SELECT sequence, changed_ms FROM history ORDER BY sequence LIMIT ?) WHERE changed_ms < ?)"
)
_FORGET: Final = "DELETE FROM requests WHERE created_ms < ?"
_FORGET_EXCESS: Final = (
    "DELETE FROM requests WHERE writer = ?1 AND created_ms <="
    " (SELECT created_ms FROM requests WHERE writer = ?1 ORDER BY created_ms DESC LIMIT 1 OFFSET ?2)"
)
_COUNT: Final = "UPDATE store SET sequence = ?, retention_ms = ?"


class _GroupWriter:
    """Commits groups on a connection of its own, each in one visit of its thread.

    The thread has a queue instead of an executor, whose two futures for each visit cost a tenth of a single write.
    """

    def __init__(self, path: Path, timeout_s: float) -> None:
        self._path = path
        self._timeout_s = timeout_s
        self._connection: sqlite3.Connection | None = None
        self._work = SimpleQueue[tuple[Callable[[], Any], asyncio.Future[Any]] | None]()
        self._thread: Thread | None = None

    async def commit(self, group: Group) -> WritePlan:
        """Execute and commit a group. Raises as :meth:`Database.commit`."""
        planned: WritePlan = await self._submit(partial(self._commit, group))
        return planned

    async def close(self) -> None:
        """Wait for the thread, and close the connection."""
        if self._thread is not None:
            await self._submit(self._drop)
            self._work.put(None)
            self._thread.join()

    def _submit(self, work: Callable[[], Any]) -> asyncio.Future[Any]:
        if self._thread is None:
            self._thread = Thread(target=self._run, name="writer", daemon=True)
            self._thread.start()
        done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._work.put((work, done))
        return done

    def _run(self) -> None:
        while (each := self._work.get()) is not None:
            work, done = each
            outcome: Any
            try:
                settle, outcome = done.set_result, work()
            except BaseException as error:  # noqa: BLE001  # who waits raises it
                settle, outcome = done.set_exception, error
            # A loop that has ended waits for nothing.
            with suppress(RuntimeError):
                done.get_loop().call_soon_threadsafe(_settle, done, settle, outcome)
            del each, work, done, settle, outcome

    def _commit(self, group: Group) -> WritePlan:
        try:
            connection = self._connection = self._connection or self._connect()
            connection.execute("BEGIN IMMEDIATE")
            planned = group.decide(_state(connection, group))
            if planned.has_rows:
                _write(connection, planned, group)
                connection.execute("COMMIT")
            else:
                connection.execute("ROLLBACK")
        except sqlite3.Error as error:
            self._drop()
            raise OSError(str(error)) from error
        except BaseException:
            # SQLite has left it in an unknown state.
            self._drop()
            raise
        return planned

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self._path, timeout=self._timeout_s, isolation_level=None, cached_statements=64, check_same_thread=False
        )
        _pragmas(connection, *WRITER_PRAGMAS)
        return connection

    def _drop(self) -> None:
        if self._connection is not None:
            with suppress(sqlite3.Error):
                self._connection.close()
            self._connection = None


def _settle(done: asyncio.Future[Any], settle: Callable[[Any], None], outcome: Any) -> None:  # noqa: ANN401
    if not done.done():
        settle(outcome)


def _state(connection: sqlite3.Connection, group: Group) -> StoredRows:
    counter = check_counter(Counter(*connection.execute(_COUNTER).fetchone()), group.known)
    missed: Sequence[EndpointHead] = ()
    if counter.sequence > group.known:
        missed = [EndpointHead(*row) for row in connection.execute(_CHANGED_SINCE, (group.known,))]
    replies = {
        (key, writer): IdempotentReply(digest, answer)
        for each in group.keys
        for key, writer, digest, answer in connection.execute(_REPLIES, (each,))
    }
    contents = {name: row[0] for name in group.patched for row in connection.execute(_CONTENT, (name,))}
    checkpoints = {
        (source, part): position
        for source in group.sources
        for part, position in connection.execute(_POSITIONS, (source,))
    }
    return StoredRows(counter, missed, replies, contents, checkpoints)


def _write(connection: sqlite3.Connection, planned: WritePlan, group: Group) -> None:
    if group.history:
        _execute_many(connection, _replaced, [(name,) for name in planned.replaced])
        if planned.superseded:
            superseded = [{**head._asdict(), "content": content} for head, content in planned.superseded]
            connection.executemany(_SUPERSEDED, [[row[name] for name in _OLD] for row in superseded])
    rows = [(*head, planned.contents[name]) for name, head in planned.heads.items()]
    _execute_many(connection, _changed, rows)
    if planned.requests:
        replies = planned.requests.items()
        connection.executemany(_REPLY, [(*owned, *reply, group.retention_ms) for owned, reply in replies])
    if planned.checkpoints:
        connection.executemany(_CHECKPOINT, [(*part, position) for part, position in planned.checkpoints.items()])
    if group.cursor is not None:
        connection.execute(_CURSOR, group.cursor)
    if planned.sequence > planned.began:
        connection.execute(_COUNT, (planned.sequence, group.retention_ms))
    _delete(connection, group.deletions)


def _delete(connection: sqlite3.Connection, due: Deletions) -> None:
    for at in range(0, len(due.pruned), MANY):
        names = due.pruned[at : at + MANY]
        connection.execute(_prune(len(names)), [*names, due.keep])
    if due.expired_ms is not None:
        connection.execute(_EXPIRE, (EXPIRED_PER_STATEMENT, due.expired_ms))
    if due.replies_ms is not None:
        connection.execute(_FORGET, (due.replies_ms,))
        connection.executemany(_FORGET_EXCESS, [(writer, due.max_replies) for writer in due.writers])


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
