"""Back up a store, which may be in use, to a file."""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from sqlalchemy import Connection, MetaData, Table, select
from sqlalchemy.ext.asyncio import AsyncConnection

from diem.protocol.update import iso
from services.data.backup.backup_file import ROWS_PER_BATCH, BackupWriter, Header
from services.data.backup.seal import BackupKey
from services.data.errors import DataError
from services.data.store.database import ERRORS, database_at, reason
from services.data.store.tables import METADATA, REVISION, check_known, revision_of

TIMEOUT_S: Final = 3600.0
"""Time-out of the single transaction; only the operator waits for it."""


async def backup(
    url: str, path: Path, now_ms: int, *, key: Callable[[], BackupKey], encrypt: bool = False
) -> tuple[Header, int]:
    """Write a consistent snapshot of the store, which may be in use; return its header and number of endpoints.

    The file gets its name once it is completely on the disk. Only its owner may read it: it contains digests of keys.

    Args:
        url: the store's database.
        path: the file.
        now_ms: the current time.
        key: returns the key that authenticates the backup; called once there is a store.
        encrypt: whether the backup is encrypted, too.

    Raises:
        ConfigurationError: from ``key``.
        DataError: there is no store, it cannot be read, or the file cannot be written.
    """
    database = database_at(url, TIMEOUT_S)
    part: Path | None = None
    try:
        async with database.snapshot() as connection:
            await connection.run_sync(check_known)
            tables = await connection.run_sync(tables_of)
            if "store" not in tables:
                raise DataError(f"there is no store in {database.display_name}")
            header = await _header(connection, tables, now_ms)
            secret = key()
            # A new file with a unique name: another backup to the same path may be under way.
            descriptor, name = tempfile.mkstemp(".part", f".{path.name}.", path.parent)
            part = Path(name)
            with BackupWriter(descriptor, header, secret, encrypt=encrypt) as file:
                await _write(file, connection, tables)
        part.replace(path)
    except ERRORS as error:
        raise DataError(f"the backup of {database.display_name} failed: {reason(error)}") from error
    finally:
        if part is not None:
            part.unlink(missing_ok=True)
        await database.close()
    return header, file.counts["endpoints"]


def tables_of(connection: Connection) -> dict[str, Table]:
    """Return the store's tables as found, possibly of an earlier release; foreign tables of the schema are left out."""
    if revision_of(connection) == REVISION:
        return {str(table.name): table for table in METADATA.sorted_tables}
    found = MetaData()
    found.reflect(connection, only=lambda name, _found: name in METADATA.tables)
    return {str(table.name): table for table in found.sorted_tables}


async def _header(connection: AsyncConnection, tables: dict[str, Table], now_ms: int) -> Header:
    row = (await connection.execute(select(tables["store"]))).one()
    revision = await connection.run_sync(revision_of)
    return Header(row.store_id, row.sequence, str(revision), iso(now_ms))


async def _write(file: BackupWriter, connection: AsyncConnection, tables: dict[str, Table]) -> None:
    for name, table in tables.items():
        file.table(name, [column.name for column in table.c])
        found = await connection.stream(
            select(table).order_by(*table.primary_key).execution_options(yield_per=ROWS_PER_BATCH)
        )
        async for row in found:
            file.row(list(row))
    file.finish()
