"""Back up a store to a file, and restore it as a new store. API keys revoked in the replaced store stay revoked."""

import tempfile
import uuid
from pathlib import Path
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection, MetaData, Table, bindparam, func, insert, inspect, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from diem.protocol.update import iso
from services.data.errors import DataError
from services.data.store.backup_file import ROWS_PER_BATCH, BackupWriter, Header, check, rows
from services.data.store.database import ERRORS, database_at, reason
from services.data.store.tables import (
    API_KEYS,
    ENDPOINTS,
    HISTORY,
    METADATA,
    PUBLISHER,
    STORE,
    check_known,
    downgrade,
    revision_of,
    upgrade,
)

TIMEOUT_S: Final = 3600.0
"""Time-out of the single transaction; only the operator waits for it."""


async def backup(url: str, path: Path, now_ms: int) -> tuple[Header, int]:
    """Write a consistent snapshot of the store, which may be in use; return its header and number of endpoints.

    The file gets its name once it is completely on the disk. Only its owner may read it: it contains digests of keys.

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
                raise DataError(f"there is no store in {database.display_name}")
            header = await _header(connection, tables, now_ms)
            # A new file with a unique name: another backup to the same path may be under way.
            descriptor, name = tempfile.mkstemp(".part", f".{path.name}.", path.parent)
            part = Path(name)
            counts = await _write(descriptor, connection, header, tables)
        part.replace(path)
    except ERRORS as error:
        raise DataError(f"the backup of {database.display_name} failed: {reason(error)}") from error
    finally:
        if part is not None:
            part.unlink(missing_ok=True)
        await database.close()
    return header, counts["endpoints"]


def tables_of(connection: Connection) -> dict[str, Table]:
    """Return the store's tables as found, possibly of an earlier release; foreign tables of the schema are left out."""
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
                select(table).order_by(*table.primary_key).execution_options(yield_per=ROWS_PER_BATCH)
            )
            async for row in found:
                file.row(list(row))
        file.finish()
    return file.counts


_KEY_LIMITS: Final = ("name", "plan", "revoked_ms")
"""Columns of a key that may have changed since the backup."""
_LIMIT_KEY: Final = (
    update(API_KEYS).where(API_KEYS.c.id == bindparam("of_key")).values({n: bindparam(n) for n in _KEY_LIMITS})
)
_OLD: Final = [column.name for column in HISTORY.c]
_KEEP_ALL: Final = insert(HISTORY).from_select(_OLD, select(*(ENDPOINTS.c[name] for name in _OLD)))
"""The current version of every endpoint becomes history."""
_RENEW: Final = (
    update(ENDPOINTS)
    .where(ENDPOINTS.c.endpoint == bindparam("name"))
    .values({name: bindparam(name) for name in ("sequence", "version", "changed_ms")})
)


class Restored(NamedTuple):
    """Result of a restore."""

    store: str
    endpoints: int
    version: int
    """The lowest version of an endpoint."""
    keys: int = 0
    """Valid API keys that the replaced store did not have: some may have been revoked since the backup."""
    created: str = ""
    """Time of the backup."""


class NotEmpty(DataError):
    """A restore would replace existing data or API keys."""

    code = "store_not_empty"


class _ReplacedStore(NamedTuple):
    """The part of the replaced store that the new one depends on."""

    version: int = 0
    """The greatest version of an endpoint."""
    keys: tuple[dict[str, Any], ...] = ()
    """Rows of API keys."""


async def restore(url: str, path: Path, now_ms: int, *, replace: bool = False, least_version: int = 0) -> Restored:
    """Restore a backup in one transaction, as a new store: with another id, and a new version of every endpoint.

    An API key that is revoked in the replaced store stays revoked, and keeps its name and plan there.

    Args:
        url: the store's database; no process may have it open.
        path: the backup.
        now_ms: the current time.
        replace: whether existing data may be replaced.
        least_version: restored versions are greater than this, and than the replaced ones.

    Raises:
        BadBackup: the file is no complete backup; nothing was changed.
        NotEmpty: there are endpoints or API keys, and ``replace`` is false.
        StoreInUse: a Data Service has the store open.
        DataError: the database cannot be used.
    """
    header = check(path)
    database = database_at(url, TIMEOUT_S)
    try:
        await database.lock()
        async with database.writing(long_running=True) as connection:
            before = await connection.run_sync(_clear, database.display_name, replace)
            await connection.run_sync(_load, path, header.revision)
            keys = await connection.run_sync(_revoke, before.keys)
            floor = max(now_ms, least_version + 1, before.version + 1)
            restored = await _renew(connection, floor, now_ms)
            await connection.commit()
    except ERRORS as error:
        raise DataError(f"{database.display_name} cannot be restored: {reason(error)}; nothing was changed") from error
    finally:
        await database.close()
    return restored._replace(keys=keys, created=header.created)


def _clear(connection: Connection, name: str, replace: bool) -> _ReplacedStore:
    """Remove the existing store; return the part of it that the new one depends on."""
    if inspect(connection).has_table("endpoints") and not replace:
        count = connection.execute(select(func.count()).select_from(ENDPOINTS)).scalar_one()
        if count:
            raise NotEmpty(f"{name} has {count} endpoints: say --replace if the backup is to take their place")
    if inspect(connection).has_table("api_keys") and not replace:
        keys = connection.execute(select(func.count()).select_from(API_KEYS)).scalar_one()
        if keys:
            raise NotEmpty(f"{name} has {keys} API keys: say --replace if the backup is to take their place")
    if revision_of(connection) is None:
        return _ReplacedStore()
    upgrade(connection)
    greatest = connection.execute(select(func.max(ENDPOINTS.c.version))).scalar_one()
    found = connection.execute(select(API_KEYS)).mappings()
    before = _ReplacedStore(greatest or 0, tuple(dict(row) for row in found))
    downgrade(connection, "base")
    return before


def _load(connection: Connection, path: Path, revision: str) -> None:
    """Create the tables of the backup's revision, fill them, and migrate them to this release."""
    upgrade(connection, revision)
    tables = tables_of(connection)
    for name, some in rows(path):
        if name in tables:
            connection.execute(insert(tables[name]), some)
    upgrade(connection)


def _revoke(connection: Connection, before: tuple[dict[str, Any], ...]) -> int:
    """Apply plans and revocations of the replaced store; return the number of valid keys that it did not have.

    Revoked keys are kept even if this backup does not have them: a later restore of another one may.
    """
    restored = {key.id: key for key in connection.execute(select(API_KEYS))}
    for key in before:
        found = restored.pop(key["id"], None)
        if found is not None:
            revoked_ms = found.revoked_ms if key["revoked_ms"] is None else key["revoked_ms"]
            connection.execute(
                _LIMIT_KEY, {"of_key": key["id"], **{n: key[n] for n in _KEY_LIMITS}, "revoked_ms": revoked_ms}
            )
        elif key["revoked_ms"] is not None:
            connection.execute(insert(API_KEYS), key)
    return sum(key.revoked_ms is None for key in restored.values())


async def _renew(connection: AsyncConnection, floor: int, now_ms: int) -> Restored:
    """Make the database a new store (docs/protocol.md section 0): earlier positions, cursors and versions are void."""
    store = str(uuid.uuid4())
    await connection.execute(_KEEP_ALL)
    sequence = (await connection.execute(select(STORE.c.sequence))).scalar_one()
    found = await connection.execute(select(ENDPOINTS.c.endpoint, ENDPOINTS.c.version).order_by(ENDPOINTS.c.sequence))
    renewed = [
        {"name": name, "sequence": sequence + number, "version": max(version + 1, floor), "changed_ms": now_ms}
        for number, (name, version) in enumerate(found, 1)
    ]
    for start in range(0, len(renewed), ROWS_PER_BATCH):
        await connection.execute(_RENEW, renewed[start : start + ROWS_PER_BATCH])
    await connection.execute(PUBLISHER.delete())
    await connection.execute(update(STORE).values(store_id=store, sequence=sequence + len(renewed)))
    return Restored(store, len(renewed), floor)
