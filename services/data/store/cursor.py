"""How far the publisher is: kept in the store, so that its next process goes on there."""

from typing import NamedTuple

from sqlalchemy import insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from services.data.store.tables import PUBLISHER


class Cursor(NamedTuple):
    """The changes up to ``sequence`` are in the log whose id is ``source``; another log may have none of them."""

    source: str
    sequence: int


async def read_cursor(connection: AsyncConnection) -> Cursor | None:
    """How far the publisher was, if there was one."""
    row = (await connection.execute(select(PUBLISHER.c.source, PUBLISHER.c.sequence))).one_or_none()
    return None if row is None else Cursor(*row)


async def keep_cursor(connection: AsyncConnection, cursor: Cursor) -> None:
    """Remember how far the publisher is; the caller commits."""
    kept = await connection.execute(update(PUBLISHER).values(cursor._asdict()))
    if not kept.rowcount:
        await connection.execute(insert(PUBLISHER), {"id": 1, **cursor._asdict()})
