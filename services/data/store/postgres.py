"""PostgreSQL: timeouts, durability, and the advisory lock that gives one session the database.

The writer's session holds the lock for its lifetime, and every transaction runs on it: a process that has lost the
session, and with it the lock, cannot commit. Therefore the URL must name the server itself, or a pooler in session
mode.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any, ClassVar, Final

import asyncpg  # type: ignore[import-untyped]  # no type information is published for it
import structlog
from sqlalchemy import text
from sqlalchemy.dialects import postgresql
from sqlalchemy.engine import URL
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from diem.process.listeners import is_loopback
from services.data.errors import StoreInUse
from services.data.store.group import Counter, Group, StoredRows, check_counter
from services.data.store.index import EndpointHead
from services.data.store.retention import EXPIRED_PER_STATEMENT, Deletions
from services.data.store.tables import ENDPOINTS, HISTORY
from services.data.store.write_plan import IdempotentReply, WritePlan

READERS: Final = 4
LOCK_TIMEOUT_S: Final = 15.0
"""Time to wait for the lock of a killed process, until the server ends its session: a busy server takes seconds, and
one without an answer from the machine 11 s (:data:`_KEEPALIVE`)."""
LOG_WAIT_AFTER_S: Final = 0.5
"""Wait after which it is logged: most sessions end sooner."""
LONG_RUNNING_S: Final = 600.0
LOCK: Final = 0x4449454D
"""First half of the advisory lock's key; the second is the schema, so that a database may have several stores."""
_LOCK_SESSION: Final = text("SELECT pg_try_advisory_lock(:half, hashtext(current_schema())), pg_backend_pid()")
_HOLDER: Final = text(
    "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND granted AND objsubid = 2 AND classid = :half"
    " AND objid::bigint = hashtext(current_schema())::bigint & 4294967295"
    " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
)
_LONG_RUNNING: Final = text(f"SET LOCAL statement_timeout = {int(LONG_RUNNING_S * 1000)}")
_LOCKED: Final = "diem.locked"
_KEEPALIVE: Final = {
    "tcp_keepalives_idle": "5",
    "tcp_keepalives_interval": "2",
    "tcp_keepalives_count": "3",
    # The kernel retransmits an unacknowledged answer, usually for a quarter of an hour, instead of probing the peer.
    "tcp_user_timeout": "11000",
}
"""Keepalive that ends the session of a vanished machine, releasing the lock, within 11 s."""


_ENCRYPTED: Final = frozenset({"require", "verify-ca", "verify-full"})
"""Values of ``sslmode`` that require TLS."""
_logger = structlog.get_logger("data")


class PostgresDatabase:
    """A database of a PostgreSQL server, in the first schema of the user's search path."""

    backend: ClassVar[str] = "postgresql"

    def __init__(self, url: URL, timeout_s: float) -> None:
        # Named ``sslmode`` in URLs, as in libpq; asyncpg calls it ``ssl``.
        mode = url.query.get("sslmode")
        if url.host and not url.host.startswith("/") and not is_loopback(url.host) and mode not in _ENCRYPTED:
            _logger.warning(
                "the database on another machine may be used without TLS: add ?sslmode=verify-full to its URL",
                host=url.host,
            )
        url = url.difference_update_query(["sslmode"])
        if mode is not None:
            url = url.update_query_dict({"ssl": mode})
        where = URL.create("postgresql", url.username, None, url.host, url.port, url.database)
        self.display_name = where.render_as_string()
        self._timeout_s = timeout_s
        self._counter: Counter | None = None
        """As after the last group; None: not known, since another transaction may have changed it."""
        self._session: int | None = None
        """Process id, at the server, of the session that held the lock last."""
        self._url = driver = url.set(drivername="postgresql+asyncpg")
        self._writer = _engine(driver, timeout_s, {"synchronous_commit": "on", **_KEEPALIVE}, pool_size=1)
        self._reader = _engine(
            driver,
            timeout_s,
            {"default_transaction_read_only": "on"},
            pool_size=READERS,
            isolation_level="AUTOCOMMIT",
            pool_reset_on_return=None,
        )

    async def lock(self, *, wait: bool = True) -> None:
        """Open the writer's session and acquire the lock.

        With ``wait``, waits up to 15 s for the server to end the session of a killed process.
        """
        began, logged = time.monotonic(), False
        while True:
            try:
                return await self.check()
            except StoreInUse as error:
                waited_s = time.monotonic() - began
                if not wait or waited_s > LOCK_TIMEOUT_S:
                    raise
                if not logged and waited_s > LOG_WAIT_AFTER_S:
                    logged = True
                    _logger.warning(
                        "waiting for the store: if its last process was killed, the database soon ends that session",
                        reason=str(error),
                        at_most_s=LOCK_TIMEOUT_S,
                    )
            await asyncio.sleep(0.05)

    async def commit(self, group: Group) -> WritePlan:
        """Execute a group by one statement, if the counter is as after the last one and nothing is to be deleted.

        Reading idempotency keys and contents takes a statement more.
        """
        counter, self._counter = self._counter, None
        async with self._writer_session() as connection:
            raw = await connection.get_raw_connection()
            driver: Any = raw.driver_connection
            try:
                planned, self._counter = await _commit(driver, group, counter)
            except BaseException:
                if driver.is_closed():
                    # Only errors of its own statements tell the pool.
                    await connection.invalidate()
                raise
            return planned

    @asynccontextmanager
    async def writing(self, *, long_running: bool = False) -> AsyncIterator[AsyncConnection]:
        """Return the session that holds the lock; a new session acquires it first."""
        self._counter = None
        async with self._writer_session(long_running=long_running) as connection:
            yield connection

    @asynccontextmanager
    async def _writer_session(self, *, long_running: bool = False) -> AsyncIterator[AsyncConnection]:
        limit_s = max(LONG_RUNNING_S, self._timeout_s) if long_running else self._timeout_s
        with _driver_errors():
            try:
                async with asyncio.timeout(limit_s), self._writer.connect() as connection:
                    try:
                        await self._ensure_lock(connection)
                        if long_running:
                            await connection.execute(_LONG_RUNNING)
                        yield connection
                    except Exception:
                        await _rollback(connection)
                        raise
                    except BaseException:
                        # Cancelled during a statement: the state of the session is unknown.
                        await _terminate(connection)
                        raise
            except TimeoutError:
                raise TimeoutError(f"the database did not answer within {limit_s:g} s") from None

    async def _ensure_lock(self, connection: AsyncConnection) -> None:
        raw = await connection.get_raw_connection()
        if _LOCKED in raw.info:
            return
        is_acquired, session = (await connection.execute(_LOCK_SESSION, {"half": LOCK})).one()
        if not is_acquired:
            holder = (await connection.execute(_HOLDER, {"half": LOCK})).scalar_one_or_none()
            if self._session is not None and holder in {None, self._session}:
                # A hung server has not ended this process's old session; no other process has the lock.
                raise ConnectionError("the database has not ended the last session yet")
            raise StoreInUse(f"the store {self.display_name} is in use by another process")
        # The lock belongs to the session, not to the transaction.
        await connection.commit()
        raw.info[_LOCKED] = True
        self._session = session

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[AsyncConnection]:
        """Return one of the readers' connections."""
        with _driver_errors():
            async with asyncio.timeout(self._timeout_s), self._reader.connect() as connection:
                yield connection

    async def check(self) -> None:
        """Check the session and its lock; a new session acquires the lock again."""
        async with self.writing() as connection:
            await connection.execute(text("SELECT 1"))

    @asynccontextmanager
    async def snapshot(self) -> AsyncIterator[AsyncConnection]:
        """Return a new session in one transaction, reading the state committed at its start."""
        server_settings = {"default_transaction_read_only": "on"}
        engine = _engine(self._url, self._timeout_s, server_settings, pool_size=1, isolation_level="REPEATABLE READ")
        try:
            with _driver_errors():
                async with engine.connect() as connection:
                    yield connection
        finally:
            await engine.dispose()

    async def close(self) -> None:
        """Close the connections; the lock is released with the writer's session."""
        await self._writer.dispose()
        await self._reader.dispose()


_HEAD: Final = ", ".join(EndpointHead._fields)
_DIALECT: Final = postgresql.dialect()  # type: ignore[no-untyped-call]
_HEAD_TYPES: Final = [f"{ENDPOINTS.c[name].type.compile(_DIALECT)}[]" for name in EndpointHead._fields]
_OLD: Final = [column.name for column in HISTORY.c]
_OLD_TYPES: Final = [f"{column.type.compile(_DIALECT)}[]" for column in HISTORY.c]
_COUNTER: Final = "SELECT sequence, version_floor, forgotten FROM store FOR UPDATE"
_CHANGED_SINCE: Final = f"SELECT {_HEAD} FROM endpoints WHERE sequence > $1 ORDER BY sequence"
_REPLIES: Final = "SELECT key, writer, digest, answer FROM requests WHERE key = ANY($1::text[])"
_CONTENTS: Final = "SELECT endpoint, content FROM endpoints WHERE endpoint = ANY($1::text[])"
_POSITIONS: Final = "SELECT source, part, position FROM checkpoints WHERE source = ANY($1::text[])"
_PRUNE: Final = (
    "DELETE FROM history WHERE sequence IN (SELECT h.sequence FROM unnest($1::text[]) n(name), LATERAL"
    " (SELECT sequence FROM history WHERE endpoint = n.name ORDER BY version DESC OFFSET $2) h)"
)
# By a list of sequences: for "all up to a number" PostgreSQL plans for a third of the table.
_EXPIRE: Final = (
    "DELETE FROM history WHERE sequence IN (SELECT sequence FROM (SELECT sequence, changed_ms FROM history"
    f" ORDER BY sequence LIMIT {EXPIRED_PER_STATEMENT}) o WHERE changed_ms < $1)"
)
_FORGET: Final = "DELETE FROM requests WHERE created_ms < $1"
_FORGET_EXCESS: Final = (
    "DELETE FROM requests WHERE writer = $1 AND created_ms <="
    " (SELECT created_ms FROM requests WHERE writer = $1 ORDER BY created_ms DESC LIMIT 1 OFFSET $2)"
)


class _Parameters:
    """The parameters of a statement, by number."""

    def __init__(self) -> None:
        self.values: list[Any] = []

    def add(self, value: object, type_: str) -> str:
        """Add a value; return its placeholder."""
        self.values.append(value)
        return f"${len(self.values)}::{type_}"

    def table(self, columns: Sequence[Sequence[Any]], types: Sequence[str]) -> str:
        """Add columns; return a table of them."""
        placed = (self.add(column, type_) for column, type_ in zip(columns, types, strict=True))
        return f"unnest({', '.join(placed)})"


async def _commit(driver: Any, group: Group, known: Counter | None) -> tuple[WritePlan, Counter]:  # noqa: ANN401
    """Commit a group; return its plan, and the counter after it."""
    if known is not None and known.sequence == group.known and not group.deletions.any:
        planned = await _decide(group, await _state(driver, group, known))
        if not planned.has_rows or await _write(driver, planned, group, known):
            return planned, known._replace(sequence=planned.sequence)
    async with driver.transaction():
        counter = check_counter(Counter(*await driver.fetchrow(_COUNTER)), group.known)
        planned = await _decide(group, await _state(driver, group, counter))
        if planned.has_rows:
            await _write(driver, planned, group, counter)
            await _delete(driver, group.deletions)
    return planned, counter._replace(sequence=planned.sequence)


async def _decide(group: Group, state: StoredRows) -> WritePlan:
    # A patch of a large document takes a tenth of a second; meanwhile nothing else changes the index.
    return await asyncio.to_thread(group.decide, state) if group.patched else group.decide(state)


async def _state(driver: Any, group: Group, counter: Counter) -> StoredRows:  # noqa: ANN401  # the driver is untyped
    missed: Sequence[EndpointHead] = ()
    if counter.sequence > group.known:
        missed = [EndpointHead(*row) for row in await driver.fetch(_CHANGED_SINCE, group.known)]
    replies = await driver.fetch(_REPLIES, group.keys) if group.keys else ()
    contents = await driver.fetch(_CONTENTS, group.patched) if group.patched else ()
    positions = await driver.fetch(_POSITIONS, group.sources) if group.sources else ()
    return StoredRows(
        counter,
        missed,
        {(key, writer): IdempotentReply(digest, answer) for key, writer, digest, answer in replies},
        dict(contents),
        {(source, part): position for source, part, position in positions},
    )


async def _write(driver: Any, planned: WritePlan, group: Group, counter: Counter) -> bool:  # noqa: ANN401
    """Write a plan by one statement; return False, having changed nothing, if the counter is another one.

    All parts of the statement see the state before it, so that the history gets the replaced rows.
    """
    given = _Parameters()
    sequence, forgotten = given.add(counter.sequence, "bigint"), given.add(counter.forgotten, "bigint")
    reached = given.add(planned.sequence, "bigint")
    time = f"CASE WHEN sequence = {reached} THEN retention_ms ELSE {given.add(group.retention_ms, 'bigint')} END"
    where = f"sequence = {sequence} AND forgotten = {forgotten}"
    parts = [f"counter AS (UPDATE store SET sequence = {reached}, retention_ms = {time} WHERE {where} RETURNING 1)"]
    if group.history and planned.replaced:
        names = given.add(planned.replaced, "text[]")
        parts.append(
            f"replaced AS (INSERT INTO history ({', '.join(_OLD)}) SELECT {', '.join(f'e.{name}' for name in _OLD)}"
            f" FROM endpoints e, counter WHERE e.endpoint = ANY({names}))"
        )
    if group.history and planned.superseded:
        rows = [{**head._asdict(), "content": content} for head, content in planned.superseded]
        table = given.table([[row[name] for row in rows] for name in _OLD], _OLD_TYPES)
        parts.append(f"superseded AS (INSERT INTO history ({', '.join(_OLD)}) SELECT t.* FROM {table} t, counter)")
    if planned.heads:
        heads = [*planned.heads.values()]
        columns = [*zip(*heads, strict=True), [planned.contents[head.endpoint] for head in heads]]
        table = given.table(columns, [*_HEAD_TYPES, "bytea[]"])
        changed = ", ".join(f"{name} = excluded.{name}" for name in (*EndpointHead._fields[1:], "content"))
        parts.append(
            f"changed AS (INSERT INTO endpoints ({_HEAD}, content) SELECT t.* FROM {table} t, counter"
            f" ON CONFLICT (endpoint) DO UPDATE SET {changed})"
        )
    if planned.requests:
        replies = [(*owned, *reply) for owned, reply in planned.requests.items()]
        table = given.table([*zip(*replies, strict=True)], ["text[]", "text[]", "bytea[]", "bytea[]"])
        created = given.add(group.retention_ms, "bigint")
        parts.append(
            "replies AS (INSERT INTO requests (key, writer, digest, answer, created_ms)"
            f" SELECT t.*, {created} FROM {table} t, counter)"
        )
    if planned.checkpoints:
        positions = [(*part, position) for part, position in planned.checkpoints.items()]
        table = given.table([*zip(*positions, strict=True)], ["text[]"] * 3)
        parts.append(
            f"checkpoints AS (INSERT INTO checkpoints (source, part, position) SELECT t.* FROM {table} t, counter"
            " ON CONFLICT (source, part) DO UPDATE SET position = excluded.position)"
        )
    if group.cursor is not None:
        source, position, logs = (
            given.add(*each) for each in zip(group.cursor, ("text", "bigint", "text"), strict=True)
        )
        parts.append(
            f"cursor AS (INSERT INTO publisher (id, source, sequence, logs) SELECT 1, {source}, {position}, {logs}"
            " FROM counter ON CONFLICT (id) DO UPDATE"
            " SET source = excluded.source, sequence = excluded.sequence, logs = excluded.logs)"
        )
    return bool(await driver.fetch(f"WITH {', '.join(parts)} SELECT 1 FROM counter", *given.values))


async def _delete(driver: Any, due: Deletions) -> None:  # noqa: ANN401
    if due.pruned:
        await driver.execute(_PRUNE, due.pruned, due.keep)
    if due.expired_ms is not None:
        await driver.execute(_EXPIRE, due.expired_ms)
    if due.replies_ms is not None:
        await driver.execute(_FORGET, due.replies_ms)
        await driver.executemany(_FORGET_EXCESS, [(writer, due.max_replies) for writer in due.writers])


def _engine(url: URL, timeout_s: float, server_settings: dict[str, str], **options: Any) -> AsyncEngine:  # noqa: ANN401
    # The server's timeout is shorter, so that its more specific error arrives before the client's.
    ms = str(max(1, int(timeout_s * 800)))
    settings = {"application_name": "diem", "statement_timeout": ms, "lock_timeout": ms, **server_settings}
    settings["idle_in_transaction_session_timeout"] = str(int(timeout_s * 2000))
    arguments = {"timeout": timeout_s, "server_settings": settings}
    return create_async_engine(url, connect_args=arguments, max_overflow=0, **options)


async def _rollback(connection: AsyncConnection) -> None:
    """Roll back, keeping the session with its lock: a failed statement must not let a stand-by take over."""
    if connection.invalidated or connection.closed:
        return
    try:
        await connection.rollback()
    except Exception:  # noqa: BLE001  # the session has ended meanwhile; report the first error
        await _terminate(connection)
    except BaseException:
        await _terminate(connection)
        raise


async def _terminate(connection: AsyncConnection) -> None:
    if connection.invalidated or connection.closed:
        return
    driver = (await connection.get_raw_connection()).driver_connection
    if isinstance(driver, asyncpg.Connection):
        # Terminated, not closed: closing would wait for an unresponsive server.
        driver.terminate()
    await connection.invalidate()


@contextmanager
def _driver_errors() -> Iterator[None]:
    """Translate the driver's connection errors, left alone by SQLAlchemy, to OSError."""
    try:
        yield
    except (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError) as error:
        raise OSError(str(error).partition("\n")[0]) from error
