"""A backup: all that a store has at one moment, in a file that either database can be restored from."""

import tempfile
from pathlib import Path
from typing import Final

from sqlalchemy import Connection, MetaData, Table, select
from sqlalchemy.ext.asyncio import AsyncConnection

from diem.protocol.versions import iso
from services.data.errors import DataError
from services.data.store.backup_file import ROWS, BackupWriter, Header
from services.data.store.database import ERRORS, database_at, reason
from services.data.store.migrate import check_known, revision_of
from services.data.store.tables import METADATA

TIMEOUT_S: Final = 3600.0
"""Of the one transaction; nobody waits for it but who has asked for it."""


async def backup(url: str, path: Path, now_ms: int) -> tuple[Header, int]:
    """Write all that the store has at one moment, while it may be in use; returns what it is, and its endpoints.

    The file is there with its name once all of it is on the disk. Only its owner may read it: it has digests of keys.

    Raises:
        DataError: there is no store, it cannot be read, or the file cannot be written.
    """
    database = database_at(url, TIMEOUT_S)
    part: Path | None = None
    try:
        async with database.snapshot() as connection:
            await connection.run_sync(check_known)
            tables = await connection.run_sync(tables_of)
            if "store" not in tables:
                raise DataError(f"there is no store in {database.shown}")
            header = await _header(connection, tables, now_ms)
            # A name of its own and no file that is there: another backup to the same path may be on its way.
            descriptor, name = tempfile.mkstemp(".part", f".{path.name}.", path.parent)
            part = Path(name)
            counts = await _write(descriptor, connection, header, tables)
        part.replace(path)
    except ERRORS as error:
        raise DataError(f"the backup of {database.shown} failed: {reason(error)}") from error
    finally:
        if part is not None:
            part.unlink(missing_ok=True)
        await database.close()
    return header, counts["endpoints"]


def tables_of(connection: Connection) -> dict[str, Table]:
    """The store's tables as they are, which may be those of an earlier release; a schema may have tables of others."""
    found = MetaData()
    found.reflect(connection, only=lambda name, _found: name in METADATA.tables)
    return {str(table.name): table for table in found.sorted_tables}


async def _header(connection: AsyncConnection, tables: dict[str, Table], now_ms: int) -> Header:
    row = (await connection.execute(select(tables["store"]))).one()
    revision = await connection.run_sync(revision_of)
    return Header(row.store_id, row.sequence, str(revision), iso(now_ms))


async def _write(
    descriptor: int, connection: AsyncConnection, header: Header, tables: dict[str, Table]
) -> dict[str, int]:
    with BackupWriter(descriptor, header) as file:
        for name, table in tables.items():
            file.table(name, [column.name for column in table.c])
            found = await connection.stream(
                select(table).order_by(*table.primary_key).execution_options(yield_per=ROWS)
            )
            async for row in found:
                file.row(list(row))
        file.finish()
    return file.counts
