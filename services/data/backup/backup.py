"""Backs up a store, which may be in use."""

from typing import BinaryIO, Final

from sqlalchemy import Connection, MetaData, Table, select

from diem.protocol.update import iso
from services.data.backup.stream import ROWS_PER_BATCH, BackupWriter, Header
from services.data.errors import DataError
from services.data.store.database import ERRORS, database_at, reason
from services.data.store.tables import METADATA, REVISION, check_known, revision_of

TIMEOUT_S: Final = 3600.0
"""Timeout of the single transaction; only the operator waits for it."""


async def backup(url: str, file: BinaryIO, now_ms: int) -> tuple[Header, int]:
    """Write a consistent snapshot of the store to a binary file; return its header and number of endpoints.

    Args:
        url: the store's database.
        file: destination, for example standard output. It stays open.
        now_ms: the current time.

    Raises:
        DataError: there is no store, it cannot be read, or the file cannot be written.
    """
    database = database_at(url, TIMEOUT_S)
    try:
        async with database.snapshot() as connection:
            await connection.run_sync(check_known)
            tables = await connection.run_sync(tables_of)
            if "store" not in tables:
                raise DataError(f"there is no store in {database.display_name}")
            store = (await connection.execute(select(tables["store"]))).one()
            revision = await connection.run_sync(revision_of)
            header = Header(store.store_id, store.sequence, str(revision), iso(now_ms))
            writer = BackupWriter(file, header)
            counts = dict.fromkeys(tables, 0)
            for name, table in tables.items():
                writer.write({"table": name, "columns": [column.name for column in table.c]})
                rows = select(table).order_by(*table.primary_key).execution_options(yield_per=ROWS_PER_BATCH)
                async for row in await connection.stream(rows):
                    writer.write(list(row))
                    counts[name] += 1
            writer.finish(counts)
    except ERRORS as error:
        raise DataError(f"the backup of {database.display_name} failed: {reason(error)}") from error
    finally:
        await database.close()
    return header, counts["endpoints"]


def tables_of(connection: Connection) -> dict[str, Table]:
    """Return the store's tables as found, possibly of an earlier release, without foreign tables in the schema."""
    if revision_of(connection) == REVISION:
        return {str(table.name): table for table in METADATA.sorted_tables}
    found = MetaData()
    found.reflect(connection, only=lambda name, _found: name in METADATA.tables)
    return {str(table.name): table for table in found.sorted_tables}
