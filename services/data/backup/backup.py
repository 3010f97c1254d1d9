"""Backs up a store, which may be in use."""

from collections.abc import AsyncIterator
from itertools import accumulate
from typing import Any, BinaryIO, Final

from sqlalchemy import LargeBinary, Row, Table, func, literal, select, true, tuple_
from sqlalchemy.ext.asyncio import AsyncConnection

from diem.protocol.endpoints import is_collection
from diem.protocol.update import iso
from services.data.backup.stream import BYTES_PER_BATCH, ROWS_PER_BATCH, BackupWriter, Header
from services.data.errors import DataError
from services.data.store.database import ERRORS, database_at, reason
from services.data.store.tables import METADATA, REVISION, STORE, check_known, revision_of

TIMEOUT_S: Final = 3600.0
"""Timeout of the single transaction; only the operator waits for it."""


async def backup(url: str, file: BinaryIO, now_ms: int) -> tuple[Header, int]:
    """Write a consistent snapshot of the store to a binary file; return its header, and how many endpoints it has.

    Memory is bounded by :data:`BYTES_PER_BATCH`, or by some copies of the largest content of an endpoint.

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
            if await connection.run_sync(revision_of) is None:
                raise DataError(f"there is no store in {database.display_name}")
            tables = {str(table.name): table for table in METADATA.sorted_tables}
            store = (await connection.execute(select(STORE))).one()
            header = Header(store.store_id, store.sequence, REVISION, iso(now_ms))
            writer = BackupWriter(file, header)
            counts, endpoints = dict.fromkeys(tables, 0), 0
            for name, table in tables.items():
                writer.write({"table": name, "columns": [column.name for column in table.c]})
                async for row in _rows_of(connection, table):
                    writer.write(list(row))
                    counts[name] += 1
                    endpoints += name == "endpoints" and not is_collection(row.endpoint)
            writer.finish(counts)
    except ERRORS as error:
        raise DataError(f"the backup of {database.display_name} failed: {reason(error)}") from error
    finally:
        await database.close()
    return header, endpoints


async def _rows_of(connection: AsyncConnection, table: Table) -> AsyncIterator[Row[Any]]:
    """Yield the rows in the order of their keys, some at a time: as many as fit, by the lengths of their bytes."""
    columns = list(table.primary_key)
    key, types = tuple_(*columns), [column.type for column in columns]
    contents = [func.length(column) for column in table.c if isinstance(column.type, LargeBinary)]
    sizes = select(*columns, sum(contents, literal(0)).label("bytes")).order_by(*columns).limit(ROWS_PER_BATCH)
    rows = select(table).order_by(*columns)
    after: tuple[Any, ...] | None = None
    while True:
        beyond = true() if after is None else key > tuple_(*after, types=types)
        found = (await connection.execute(sizes.where(beyond))).all()
        if not found:
            return
        totals = accumulate(row.bytes for row in found)
        count = sum(1 for total in totals if total <= BYTES_PER_BATCH) or 1
        after = tuple(found[count - 1][:-1])
        for row in await connection.execute(rows.where(beyond, key <= tuple_(*after, types=types))):
            yield row
