"""Transactions beside those of groups: read the store at its opening, forget deleted endpoints, probe."""

from collections.abc import Sequence
from typing import Final

from sqlalchemy import bindparam, delete, func, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from diem.protocol.update import UPDATE
from services.data.store.group import Counter, check_counter
from services.data.store.index import EndpointHead
from services.data.store.tables import ENDPOINTS, HISTORY, STORE

_HEADS: Final = [ENDPOINTS.c[name] for name in EndpointHead._fields]
# FOR UPDATE locks the counter in PostgreSQL; in SQLite the transaction holds the write lock from its start.
_COUNTER: Final = select(STORE.c.sequence, STORE.c.version_floor, STORE.c.forgotten).with_for_update()
_CHANGED_SINCE: Final = (
    select(*_HEADS).where(ENDPOINTS.c.sequence > bindparam("position")).order_by(ENDPOINTS.c.sequence)
)
_LATEST_CONTENTS: Final = (
    select(ENDPOINTS.c.endpoint, ENDPOINTS.c.content)
    .where(ENDPOINTS.c.kind == UPDATE, func.length(ENDPOINTS.c.content) <= bindparam("longest"))
    .order_by(ENDPOINTS.c.sequence.desc())
)
# Without those recreated by a commit with a lost answer.
_GONE: Final = (
    ENDPOINTS.c.endpoint.in_(bindparam("names", expanding=True)),
    ENDPOINTS.c.sequence <= bindparam("upto"),
)
_FORGET: Final = (
    delete(HISTORY).where(HISTORY.c.endpoint.in_(select(ENDPOINTS.c.endpoint).where(*_GONE))),
    delete(ENDPOINTS).where(*_GONE),
)


async def changed_since(connection: AsyncConnection, position: int) -> list[EndpointHead]:
    """Return the heads with a sequence greater than ``position``, in order."""
    return [EndpointHead(*row) for row in await connection.execute(_CHANGED_SINCE, {"position": position})]


async def latest_contents(connection: AsyncConnection, *, longest: int, total: int) -> dict[str, bytes]:
    """Return the contents of at most ``longest`` bytes each of the endpoints changed last, up to ``total`` bytes."""
    contents: dict[str, bytes] = {}
    if not longest or not total:
        return contents
    size = 0
    rows = await connection.stream(_LATEST_CONTENTS, {"longest": longest})
    async for endpoint, content in rows:
        size += len(content)
        if size > total:
            break
        contents[endpoint] = content
    await rows.close()
    return contents


async def forget(connection: AsyncConnection, heads: Sequence[EndpointHead], *, known: int) -> int:
    """Remove deleted endpoints with their history; return the sequence up to which all deleted ones are then removed.

    ``heads``: in order of sequence, without gaps. New endpoints begin above their versions from now on, as clients may
    hold those. ``known``: the sequence of the index; the caller commits.

    Raises:
        StoreReplaced: the store's sequence is below ``known``.
    """
    _, floor, forgotten = await _lock_counter(connection, known)
    upto = max(forgotten, heads[-1].sequence)
    for statement in _FORGET:
        await connection.execute(statement, {"names": [head.endpoint for head in heads], "upto": upto})
    floor = max(floor, *(head.version for head in heads))
    await connection.execute(update(STORE).values(forgotten=upto, version_floor=floor))
    return upto


async def _lock_counter(connection: AsyncConnection, known: int) -> Counter:
    """Lock and return the counter. Raises StoreReplaced when its sequence is below ``known``."""
    return check_counter(Counter._make((await connection.execute(_COUNTER)).one()), known)


async def probe(connection: AsyncConnection, position: int) -> tuple[list[EndpointHead], int]:
    """Write without changing anything, to test whether the store can commit.

    Returns:
        The heads beyond ``position``, and the sequence up to which deleted endpoints are forgotten.
    """
    counter = await _lock_counter(connection, position)
    await connection.execute(update(STORE).values(sequence=STORE.c.sequence))
    return await changed_since(connection, position), counter.forgotten
