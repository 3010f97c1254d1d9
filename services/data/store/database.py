"""Interface of the store to its database; ``sqlite`` and ``postgres`` implement it."""

from contextlib import AbstractAsyncContextManager
from typing import ClassVar, Final, Protocol

from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection

from diem.errors import install_command
from services.data.errors import DataError
from services.data.store.group import Group
from services.data.store.write_plan import WritePlan

ERRORS: Final = (SQLAlchemyError, OSError)
"""Exceptions of a database that is temporarily unable to read or commit."""
EXPECTED: Final = "sqlite:///path/to/file or postgresql://user:password@host:port/database"


class Database(Protocol):
    """One database, written by one process at a time; reads see committed data only."""

    backend: ClassVar[str]
    """sqlite or postgresql."""

    @property
    def display_name(self) -> str:
        """Location for messages, without a password."""
        ...

    async def lock(self, *, wait: bool = True) -> None:
        """Acquire exclusive ownership for this process, until :meth:`close` or the process's end, even by a kill.

        With ``wait``, allow time for a database that detects a kill with a delay.

        Raises:
            StoreInUse: another process owns the database.
            DataError: the database cannot be used.
        """
        ...

    async def commit(self, group: Group) -> WritePlan:
        """Execute and commit a group of writes, on the disk at return; return its plan.

        Raises:
            StoreInUse: another process owns the database, or it was replaced (``StoreReplaced``).
            OSError: the database cannot be written now; the group may or may not have been committed.
        """
        ...

    def writing(self, *, long_running: bool = False) -> AbstractAsyncContextManager[AsyncConnection]:
        """Return a connection for one transaction beside those of groups. The caller commits; that is on the disk then.

        A transaction is bounded by the database's timeout, unless ``long_running``, such as a migration. After an
        error, the next transaction uses a new connection.

        Raises:
            StoreInUse: another process owns the database, or it was replaced.
            SQLAlchemyError, OSError: the database cannot be written now.
        """
        ...

    def reading(self) -> AbstractAsyncContextManager[AsyncConnection]:
        """Return a connection for single statements, each on the last committed state; writes never block them."""
        ...

    async def check(self) -> None:
        """Check that the database is reachable and still owned by this process. Raises as :meth:`writing` does."""
        ...

    def snapshot(self) -> AbstractAsyncContextManager[AsyncConnection]:
        """Return a connection whose statements all read the state committed at the first one."""
        ...

    async def close(self) -> None:
        """Close all connections and release the ownership."""
        ...


def database_at(text: str, timeout_s: float) -> Database:
    """Return the database of a URL, without connecting.

    Args:
        text: the URL.
        timeout_s: maximum time of a transaction, including waits for locks.

    Raises:
        DataError: the URL is invalid or of an unsupported database, or the driver is missing.
    """
    try:
        url = make_url(text)
        backend = url.get_backend_name()
    except ArgumentError:
        # Without the cause: its text may contain the password.
        raise DataError(f"the database URL cannot be read: expected {EXPECTED}") from None
    # Import only the driver in use, to save memory.
    if backend == "sqlite" and url.database and url.database != ":memory:":
        from services.data.store.sqlite import SqliteDatabase  # noqa: PLC0415

        return SqliteDatabase(url, timeout_s)
    if backend == "postgresql" and url.database:
        return _postgres(url, timeout_s)
    raise DataError(f"the database URL must be {EXPECTED}")


def _postgres(url: URL, timeout_s: float) -> Database:
    try:
        from services.data.store.postgres import PostgresDatabase  # noqa: PLC0415
    except ModuleNotFoundError as error:
        if error.name != "asyncpg":
            raise
        raise DataError(f"PostgreSQL needs the extra `postgres`: {install_command('postgres')}") from None
    return PostgresDatabase(url, timeout_s)


def reason(error: Exception) -> str:
    """Describe an error in one line, without statements and parameters, which neither clients nor logs may show."""
    if isinstance(error, DBAPIError):
        # The driver's own text: SQLAlchemy prefixes it with the name of the driver's class.
        text = str(error.orig.__cause__ or error.orig) if error.orig is not None else ""
    else:
        text = str(error) if isinstance(error, (OSError, DataError)) else ""
    return text.partition("\n")[0][:200] or type(error).__name__
