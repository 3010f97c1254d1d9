"""Restores a backup as a new store. API keys revoked in the replaced store stay revoked."""

import uuid
from typing import Any, BinaryIO, Final, NamedTuple

from sqlalchemy import Connection, bindparam, func, insert, inspect, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from diem.protocol.endpoints import is_collection
from diem.protocol.media_types import COLLECTION
from services.data.access.keys import Key
from services.data.access.records import key_of
from services.data.backup.backup import TIMEOUT_S
from services.data.backup.errors import NotEmpty, UnconfirmedKeys
from services.data.backup.stream import ROWS_PER_BATCH, BackupReader
from services.data.errors import DataError
from services.data.store.database import ERRORS, database_at, reason
from services.data.store.tables import (
    API_KEYS,
    ENDPOINTS,
    HISTORY,
    METADATA,
    PUBLISHER,
    REVISION,
    STORE,
    drop,
    revision_of,
    upgrade,
)
from services.data.store.write_plan import LAST_VERSION, check_time

_KEY_LIMITS: Final = (
    "name", "plan", "revoked_ms", "expires_ms", "writes", "prefixes", "per_minute", "origins", "max_endpoints"
)  # fmt: skip
"""Columns of a key that may have changed since the backup."""
_LIMIT_KEY: Final = (
    update(API_KEYS).where(API_KEYS.c.id == bindparam("of_key")).values({n: bindparam(n) for n in _KEY_LIMITS})
)
_OLD: Final = [column.name for column in HISTORY.c]
_KEEP_ALL: Final = insert(HISTORY).from_select(
    _OLD, select(*(ENDPOINTS.c[name] for name in _OLD)).where(ENDPOINTS.c.media_type != COLLECTION)
)
"""The current version of every endpoint becomes history; collections have none."""
_RENEW: Final = (
    update(ENDPOINTS)
    .where(ENDPOINTS.c.endpoint == bindparam("name"))
    .values({name: bindparam(name) for name in ("sequence", "version", "changed_ms")})
)


class Restored(NamedTuple):
    """Result of a restore."""

    store: str
    endpoints: int
    """Without collections."""
    version: int
    """The lowest version of an endpoint."""
    keys: tuple[Key, ...] = ()
    """API keys made valid; some may have been revoked since the backup."""
    created: str = ""
    """Time of the backup."""


async def restore(
    url: str,
    file: BinaryIO,
    now_ms: int,
    *,
    replace: bool = False,
    accept_keys: bool = False,
    least_version: int = 0,
) -> Restored:
    """Restore a backup in one transaction, as a new store: with a new id, and a new version of every endpoint.

    The backup is read once, and the transaction committed only if it was complete. API keys revoked in the replaced
    store stay revoked, and existing keys keep their names, plans and terms.

    Args:
        url: the store's database; no process may have it open.
        file: the backup, for example standard input; named in errors.
        now_ms: the current time.
        replace: whether existing data may be replaced.
        accept_keys: whether API keys missing in the replaced store may become valid.
        least_version: restored versions are greater than this, and than the replaced ones.

    Raises:
        BadBackup: the file is not a complete backup; nothing was changed.
        NotEmpty: there are endpoints or API keys, and ``replace`` is false.
        UnconfirmedKeys: API keys would become valid, and ``accept_keys`` is false.
        StoreInUse: a Data Service has the store open.
        WrongClock: the versions it makes would be unusable.
        DataError: the database cannot be used.
    """
    check_time(now_ms)
    reader = BackupReader(file)
    if reader.revision != REVISION:
        raise reader.error("it is of another release: restore it with that one, and upgrade then")
    database = database_at(url, TIMEOUT_S)
    try:
        await database.lock()
        async with database.writing(long_running=True) as connection:
            version, keys = await connection.run_sync(_replaced, database.display_name, replace)
            await connection.run_sync(_load, reader)
            valid = await connection.run_sync(_restore_keys, keys)
            if valid and not accept_keys:
                raise UnconfirmedKeys(valid)
            # Versions beyond the last one come from a wrong clock, and were never parsed by a reader.
            held = max(version, least_version if least_version < LAST_VERSION else 0)
            restored = await _renew(connection, held, now_ms)
            await connection.commit()
    except ERRORS as error:
        text = f"{database.display_name} cannot be restored: {reason(error)}; nothing was changed"
        raise DataError(text) from error
    except (TypeError, ValueError):
        raise reader.error("its rows are none of a store") from None
    finally:
        await database.close()
    return restored._replace(keys=valid, created=reader.created)


def _replaced(connection: Connection, name: str, replace: bool) -> tuple[int, list[dict[str, Any]]]:
    """Return the inheritance from the existing store: its greatest version, and its API key rows.

    Raises:
        NotEmpty: it has endpoints or API keys, and ``replace`` is false.
    """
    for table, what in ((ENDPOINTS, "endpoints"), (API_KEYS, "API keys")):
        if not replace and inspect(connection).has_table(table.name):
            count = connection.execute(select(func.count()).select_from(table)).scalar_one()
            if count:
                raise NotEmpty(f"{name} has {count} {what}: add --replace to overwrite them with the backup")
    if revision_of(connection) is None:
        return 0, []
    upgrade(connection)
    usable = ENDPOINTS.c.version < LAST_VERSION
    greatest = connection.execute(select(func.max(ENDPOINTS.c.version)).where(usable)).scalar_one()
    floor = connection.execute(select(STORE.c.version_floor)).scalar_one_or_none()
    return max(greatest or 0, floor or 0), [dict(row) for row in connection.execute(select(API_KEYS)).mappings()]


def _load(connection: Connection, reader: BackupReader) -> None:
    """Replace all tables, and fill them."""
    if revision_of(connection) is not None:
        drop(connection)
    upgrade(connection)
    tables = METADATA.tables
    for name, rows in reader.rows():
        if name not in tables or not rows[0].keys() <= set(tables[name].c.keys()):
            raise reader.error(f"the table {name!r:.40} is unknown, or has unknown columns")
        connection.execute(insert(tables[name]), rows)


def _restore_keys(connection: Connection, before: list[dict[str, Any]]) -> tuple[Key, ...]:
    """Apply plans and revocations of the replaced store; return the keys that it lacked, or had with another secret.

    Revoked keys are kept even if missing in this backup: a later restore of another one may contain them.
    """
    restored = {row["id"]: row for row in connection.execute(select(API_KEYS)).mappings()}
    known = {key["id"]: key["digest"] for key in before}
    for key in before:
        found = restored.get(key["id"])
        if found is not None:
            revoked_ms = found["revoked_ms"] if key["revoked_ms"] is None else key["revoked_ms"]
            connection.execute(
                _LIMIT_KEY, {"of_key": key["id"], **{n: key[n] for n in _KEY_LIMITS}, "revoked_ms": revoked_ms}
            )
        elif key["revoked_ms"] is not None:
            connection.execute(insert(API_KEYS), key)
    valid = connection.execute(select(API_KEYS).where(API_KEYS.c.revoked_ms.is_(None))).mappings()
    return tuple(key_of(dict(row)) for row in valid if known.get(row["id"]) != row["digest"])


async def _renew(connection: AsyncConnection, held: int, now_ms: int) -> Restored:
    """Make the database a new store (docs/internals.md section 0): earlier positions, cursors and versions are void.

    ``held``: the greatest version that clients may hold of any endpoint, in the backup or not.
    """
    store = str(uuid.uuid4())
    await connection.execute(_KEEP_ALL)
    await connection.execute(HISTORY.delete().where(HISTORY.c.version >= LAST_VERSION))
    sequence, own_floor = (await connection.execute(select(STORE.c.sequence, STORE.c.version_floor))).one()
    found = await connection.execute(select(ENDPOINTS.c.endpoint, ENDPOINTS.c.version).order_by(ENDPOINTS.c.sequence))
    first = max(now_ms, held + 1)
    renewed = [
        {
            "name": name,
            "sequence": sequence + number,
            "version": max(version + 1 if version < LAST_VERSION else 0, first),
            "changed_ms": now_ms,
        }
        for number, (name, version) in enumerate(found, 1)
    ]
    for start in range(0, len(renewed), ROWS_PER_BATCH):
        await connection.execute(_RENEW, renewed[start : start + ROWS_PER_BATCH])
    await connection.execute(PUBLISHER.delete())
    floor = max([held, own_floor, *(row["version"] for row in renewed)])
    await connection.execute(
        update(STORE).values(store_id=store, sequence=sequence + len(renewed), version_floor=floor, forgotten=0)
    )
    return Restored(store, sum(not is_collection(row["name"]) for row in renewed), first)
