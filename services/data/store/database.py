"""Interface of a database to the store. What differs is in ``sqlite`` and ``postgres``."""

from contextlib import AbstractAsyncContextManager
from typing import Final, Protocol

from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection

from services.data.errors import DataError

ERRORS: Final = (SQLAlchemyError, OSError)
"""How a database says that it cannot now."""
EXPECTED: Final = "sqlite:///path/to/file or postgresql://user:password@host:port/database"


class Database(Protocol):
    """One database. One process at a time writes to it; what is read is what was committed."""

    @property
    def display_name(self) -> str:
        """Where it is, for people: never with a password."""
        ...

    async def lock(self) -> None:
        """Have the database for this process alone, until :meth:`close` or the process's end, however it ends.

        Raises:
            StoreInUse: another process has it.
            DataError: it cannot be used at all.
        """
        ...

    def writing(self, *, long_running: bool = False) -> AbstractAsyncContextManager[AsyncConnection]:
        """The writer's connection, for one transaction, which the caller commits; it is on the disk then.

        A transaction waits no longer than the time-out that the database was opened with, unless it is one
        ``long_running``, such as a migration. After an error the next one begins on a new connection.

        Raises:
            StoreInUse: this process has lost the database: another one has it, or it was replaced.
            SQLAlchemyError, OSError: it cannot be written now.
        """
        ...

    def reading(self) -> AbstractAsyncContextManager[AsyncConnection]:
        """A connection for single statements, each on the last committed state; writes never hold them up."""
        ...

    async def check(self) -> None:
        """See whether the database is still there and this process's own. Raises as :meth:`writing` does."""
        ...

    def snapshot(self) -> AbstractAsyncContextManager[AsyncConnection]:
        """A connection on which every statement reads the same state: the one committed when the first was."""
        ...

    async def close(self) -> None:
        """Close all connections, and let the next process have the database."""
        ...


def database_at(text: str, timeout_s: float) -> Database:
    """The database that a URL names; nothing is connected yet.

    Args:
        text: the URL.
        timeout_s: how long a transaction may take and wait for locks.

    Raises:
        DataError: the URL is of no database that we have, or its driver is missing.
    """
    try:
        url = make_url(text)
        backend = url.get_backend_name()
    except ArgumentError:
        # Not from the error: its text may have the password.
        raise DataError(f"the database URL cannot be read: expected {EXPECTED}") from None
    # Each driver only where it is used: an import costs memory for ever.
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
        raise DataError("PostgreSQL needs the extra `postgres`: pip install 'diem[postgres]'") from None
    return PostgresDatabase(url, timeout_s)


def reason(error: Exception) -> str:
    """What is wrong, in one line without statements and parameters, which are neither for clients nor for logs."""
    if isinstance(error, DBAPIError):
        # SQLAlchemy puts the name of the driver's class before the driver's own text.
        text = str(error.orig.__cause__ or error.orig) if error.orig is not None else ""
    else:
        text = str(error) if isinstance(error, OSError) else ""
    return text.partition("\n")[0][:200] or type(error).__name__
