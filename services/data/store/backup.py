"""Backup and restore: all tables in one file, which either database can write and either can read.

A file is gzip of lines of JSON: what it is (:class:`Header`), then each table's name and columns followed by its rows,
and at the end the number of rows with a digest of all that is before. Bytes are ``{"b64": "..."}``.
"""

import base64
import gzip
import os
import tempfile
import uuid
import zlib
from collections.abc import Callable, Iterator
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple

import orjson
from sqlalchemy import Connection, MetaData, Table, func, insert, inspect, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from diem import __version__
from diem.protocol.versions import iso
from services.data.errors import DataError
from services.data.store import transaction
from services.data.store.database import ERRORS, database_at, reason
from services.data.store.migrate import check_known, downgrade, revision_of, upgrade
from services.data.store.tables import API_KEYS, ENDPOINTS, METADATA, PUBLISHER, STORE

FORMAT: Final = "diem.backup/1"
TIMEOUT_S: Final = 3600.0
"""Of the one transaction; nobody waits for it but who has asked for it."""
ROWS: Final = 200
"""Rows in memory at a time: with the largest datasets, 13 MB."""


class Header(NamedTuple):
    """What a backup is of."""

    store: str
    sequence: int
    revision: str
    """Of the tables."""
    created: str


class Restored(NamedTuple):
    """What a restore has made."""

    store: str
    endpoints: int
    version: int
    """The least that an endpoint has now."""


class BadBackup(DataError):
    """A file that is no backup, or not all of one."""

    code = "bad_backup"

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(f"{path} is no complete backup: {why}")


class NotEmpty(DataError):
    """A restore would replace data or API keys."""

    code = "store_not_empty"


# Writing


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
            tables = await connection.run_sync(_tables)
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


def _tables(connection: Connection) -> dict[str, Table]:
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
    digest = blake2b(digest_size=16)
    counts: dict[str, int] = {}
    with open(descriptor, "wb") as raw, gzip.GzipFile(fileobj=raw, mode="wb", compresslevel=6) as file:  # noqa: ASYNC230  # a command's own file

        def say(what: object) -> None:
            line = orjson.dumps(what, default=_bytes) + b"\n"
            digest.update(line)
            file.write(line)

        say({"format": FORMAT, "diem": __version__, **header._asdict()})
        for name, table in tables.items():
            counts[name] = 0
            say({"table": name, "columns": [column.name for column in table.c]})
            found = await connection.stream(
                select(table).order_by(*table.primary_key).execution_options(yield_per=ROWS)
            )
            async for row in found:
                say(list(row))
                counts[name] += 1
        say({"rows": counts, "digest": digest.hexdigest()})
        file.close()
        raw.flush()
        os.fsync(raw.fileno())
    return counts


def _bytes(value: object) -> dict[str, str]:
    if isinstance(value, bytes):
        return {"b64": base64.b64encode(value).decode()}
    raise TypeError


# Reading


def check(path: Path) -> Header:
    """What a backup is of, once all of it was read.

    Raises:
        BadBackup: it is none, or some of it is missing or changed.
    """
    counts: dict[str, int] = {}
    table = ""
    lines = _lines(path)
    header = _read_header(path, next(lines, {}))
    last: Any = None
    for last in lines:
        if isinstance(last, dict) and "table" in last:
            table = str(last["table"])
            counts[table] = 0
        elif isinstance(last, list):
            counts[table] = counts.get(table, 0) + 1
    if not isinstance(last, dict) or last.get("rows") != counts:
        raise BadBackup(path, "its end is missing")
    return header


def _read_header(path: Path, first: Any) -> Header:  # noqa: ANN401  # whatever the file has
    if not isinstance(first, dict) or first.get("format") != FORMAT:
        raise BadBackup(path, f"it does not begin with {FORMAT}")
    if not first.keys() >= set(Header._fields):
        raise BadBackup(path, "it does not say what it is of")
    return Header(*(first[name] for name in Header._fields))


def _lines(path: Path) -> Iterator[Any]:
    """The lines as values; the digest of the last one is compared."""
    digest = blake2b(digest_size=16)
    try:
        with gzip.open(path, "rb") as file:
            for line in file:
                value = orjson.loads(line)
                if isinstance(value, dict) and value.get("digest", digest.hexdigest()) != digest.hexdigest():
                    raise BadBackup(path, "its digest is wrong")
                digest.update(line)
                yield value
    except FileNotFoundError:
        raise BadBackup(path, "there is no such file") from None
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise BadBackup(path, str(error).partition("\n")[0]) from None


async def restore(url: str, path: Path, now_ms: int, *, replace: bool = False, least_version: int = 0) -> Restored:
    """Make a store of a backup, in one transaction. It is a new store: another id, and every endpoint a new version.

    Args:
        url: the store's; nobody may have it open.
        path: the backup.
        now_ms: the time.
        replace: whether what is there may be replaced.
        least_version: versions are greater than this, and than those that are replaced.

    Raises:
        BadBackup: nothing was changed.
        NotEmpty: there are endpoints or API keys, and they are not to be replaced.
        StoreInUse: a Data Service runs.
        DataError: the database cannot be used.
    """
    header = check(path)
    database = database_at(url, TIMEOUT_S)
    try:
        await database.claim()
        async with database.writing(at_leisure=True) as connection:
            floor = max(now_ms, least_version + 1, await connection.run_sync(_clear, database.shown, replace))
            await connection.run_sync(_load, path, header.revision)
            restored = await _renew(connection, floor, now_ms)
            await connection.commit()
    except ERRORS as error:
        raise DataError(f"{database.shown} cannot be restored: {reason(error)}; nothing was changed") from error
    finally:
        await database.close()
    return restored


def _clear(connection: Connection, shown: str, replace: bool) -> int:
    """Remove what is there; returns a version that is greater than all of it."""
    least = 0
    if inspect(connection).has_table("endpoints"):
        count, greatest = connection.execute(select(func.count(), func.max(ENDPOINTS.c.version))).one()
        if count and not replace:
            raise NotEmpty(f"{shown} has {count} endpoints: say --replace if the backup is to take their place")
        least = (greatest or 0) + 1
    if inspect(connection).has_table("api_keys") and not replace:
        keys = connection.execute(select(func.count()).select_from(API_KEYS)).scalar_one()
        if keys:
            raise NotEmpty(f"{shown} has {keys} API keys: say --replace if the backup is to take their place")
    if revision_of(connection) is not None:
        upgrade(connection)
        downgrade(connection, "base")
    return least


def _load(connection: Connection, path: Path, revision: str) -> None:
    """Make the tables of the backup, fill them, and bring them to this release."""
    upgrade(connection, revision)
    tables = _tables(connection)
    lines = _lines(path)
    next(lines)
    statement: Callable[[list[dict[str, Any]]], Any] | None = None
    columns: list[str] = []
    for line in _runs(lines):
        if isinstance(line, dict):
            table = tables.get(line.get("table", ""))
            columns = line.get("columns", [])
            statement = None if table is None else _inserter(connection, table)
        elif statement is not None:
            statement([dict(zip(columns, map(_value, row), strict=True)) for row in line])
    upgrade(connection)


def _inserter(connection: Connection, table: Table) -> Callable[[list[dict[str, Any]]], Any]:
    return lambda rows: connection.execute(insert(table), rows)


def _runs(lines: Iterator[Any]) -> Iterator[Any]:
    """Objects by themselves, rows in lists of up to :data:`ROWS`."""
    rows: list[Any] = []
    for line in lines:
        if isinstance(line, list):
            rows.append(line)
        if rows and (len(rows) == ROWS or not isinstance(line, list)):
            yield rows
            rows = []
        if not isinstance(line, list):
            yield line


def _value(value: Any) -> Any:  # noqa: ANN401  # any that a column may have
    return base64.b64decode(value["b64"]) if isinstance(value, dict) else value


async def _renew(connection: AsyncConnection, floor: int, now_ms: int) -> Restored:
    """Make it another store (docs/protocol.md section 0): positions, cursors and versions of before mean nothing."""
    store = str(uuid.uuid4())
    await transaction.keep_all(connection)
    sequence = (await connection.execute(select(STORE.c.sequence))).scalar_one()
    rows = await connection.execute(select(ENDPOINTS.c.endpoint, ENDPOINTS.c.version).order_by(ENDPOINTS.c.sequence))
    renewed = [
        {"name": name, "sequence": sequence + number, "version": max(version + 1, floor), "changed_ms": now_ms}
        for number, (name, version) in enumerate(rows, 1)
    ]
    for start in range(0, len(renewed), ROWS):
        await transaction.renew(connection, list(islice(renewed, start, start + ROWS)))
    await connection.execute(PUBLISHER.delete())
    await connection.execute(update(STORE).values(store_id=store, sequence=sequence + len(renewed)))
    return Restored(store, len(renewed), floor)
