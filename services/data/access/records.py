"""SQL of API keys and their daily counts, common to SQLite and PostgreSQL; the caller commits."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final, NamedTuple

import orjson
from sqlalchemy import bindparam, delete, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from services.data.access.keys import Key
from services.data.store.tables import API_KEYS, KEY_DAYS

KEEP_DAYS: Final = 32
"""Daily counts stored per key; older usage is in the reports made from access events."""
_LISTS: Final = ("prefixes", "origins")
"""Columns of keys with a JSON list, or nothing."""

_OF_DAY: Final = (KEY_DAYS.c.key_id == bindparam("of_key")) & (KEY_DAYS.c.day == bindparam("of_day"))
_ADD: Final = update(KEY_DAYS).where(_OF_DAY).values(requests=KEY_DAYS.c.requests + bindparam("units"))
_TOTAL: Final = select(KEY_DAYS.c.requests).where(_OF_DAY)
_USED: Final = update(API_KEYS).where(API_KEYS.c.id == bindparam("of_key")).values(last_used_ms=bindparam("used_ms"))
# By number, not by age: a clock temporarily ahead would delete today's count.
_FORGET: Final = delete(KEY_DAYS).where(
    KEY_DAYS.c.key_id == bindparam("of_key"),
    KEY_DAYS.c.day
    <= select(KEY_DAYS.c.day)
    .where(KEY_DAYS.c.key_id == bindparam("of_key"))
    .order_by(KEY_DAYS.c.day.desc())
    .limit(1)
    .offset(KEEP_DAYS)
    .scalar_subquery(),
)


class Units(NamedTuple):
    """Units to add to the count of a key on a day (days since 1970); negative ones are released."""

    key_id: str
    day: int
    units: int


async def read_keys(connection: AsyncConnection) -> list[Key]:
    """Return all keys."""
    columns = [API_KEYS.c[name] for name in Key.__dataclass_fields__]
    return [key_of(dict(row)) for row in (await connection.execute(select(*columns))).mappings()]


def key_of(row: Mapping[str, Any]) -> Key:
    """Return the key in a row."""
    found = {name: row[name] for name in Key.__dataclass_fields__}
    lists = {name: tuple(orjson.loads(found[name])) if found[name] else () for name in _LISTS}
    return Key(**{**found, **lists, "writes": bool(found["writes"])})


def _row(key: Key) -> dict[str, Any]:
    row = asdict(key)
    lists = {name: orjson.dumps(row[name]).decode() if row[name] else "" for name in _LISTS}
    return {**row, **lists, "writes": int(key.writes)}


async def add_key(connection: AsyncConnection, key: Key, instead_of: Key | None = None) -> None:
    """Store a key, replacing another one and its counts."""
    if instead_of is not None:
        await connection.execute(delete(API_KEYS).where(API_KEYS.c.id == instead_of.id))
        await connection.execute(delete(KEY_DAYS).where(KEY_DAYS.c.key_id == instead_of.id))
    await connection.execute(insert(API_KEYS), _row(key))


async def keep_revocation(connection: AsyncConnection, key: Key) -> None:
    """Store the time of a key's revocation."""
    await connection.execute(update(API_KEYS).where(API_KEYS.c.id == key.id).values(revoked_ms=key.revoked_ms))


async def keep_last_uses(connection: AsyncConnection, used_ms: Mapping[str, int]) -> None:
    """Store the times of the last use of keys, by id."""
    rows = [{"of_key": key_id, "used_ms": time_ms} for key_id, time_ms in sorted(used_ms.items())]
    if rows:
        await connection.execute(_USED, rows)


async def add_units(connection: AsyncConnection, wanted: Sequence[Units]) -> list[int]:
    """Add to the counts and return their totals."""
    totals: list[int] = []
    for key_id, day, units in wanted:
        of = {"of_key": key_id, "of_day": day}
        if units:
            added = await connection.execute(_ADD, {**of, "units": units})
            if not added.rowcount:
                await connection.execute(insert(KEY_DAYS), {"key_id": key_id, "day": day, "requests": units})
                await connection.execute(_FORGET, {"of_key": key_id})
        totals.append((await connection.execute(_TOTAL, of)).scalar_one_or_none() or 0)
    return totals
