"""Executes a group of writes in one transaction: reads the affected rows, plans, writes."""

from collections.abc import Container, Sequence
from typing import Any, Final, NamedTuple

from sqlalchemy import bindparam, delete, func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from diem.protocol.update import UPDATE
from services.data.errors import StoreReplaced
from services.data.store.index import EndpointHead, StoreIndex
from services.data.store.tables import ENDPOINTS, HISTORY, REQUESTS, STORE
from services.data.store.write_plan import (
    EARLIEST_MS,
    LATEST_MS,
    Basis,
    IdempotentReply,
    Write,
    WritePlan,
    missing_collections,
    plan,
)

_HEADS: Final = [ENDPOINTS.c[name] for name in EndpointHead._fields]
# FOR UPDATE locks the counter in PostgreSQL; in SQLite the transaction holds the write lock from its start.
_COUNTER: Final = select(STORE.c.sequence, STORE.c.version_floor, STORE.c.forgotten).with_for_update()
_CONTENTS: Final = select(ENDPOINTS.c.endpoint, ENDPOINTS.c.content).where(
    ENDPOINTS.c.endpoint.in_(bindparam("names", expanding=True))
)
_CHANGED_SINCE: Final = (
    select(*_HEADS).where(ENDPOINTS.c.sequence > bindparam("position")).order_by(ENDPOINTS.c.sequence)
)
_LATEST_CONTENTS: Final = (
    select(ENDPOINTS.c.endpoint, ENDPOINTS.c.content)
    .where(ENDPOINTS.c.kind == UPDATE, func.length(ENDPOINTS.c.content) <= bindparam("longest"))
    .order_by(ENDPOINTS.c.sequence.desc())
)
_REPLIES: Final = select(REQUESTS.c.key, REQUESTS.c.writer, REQUESTS.c.digest, REQUESTS.c.answer).where(
    REQUESTS.c.key.in_(bindparam("keys", expanding=True))
)
_INSERT: Final = insert(ENDPOINTS)
_UPDATE: Final = (
    update(ENDPOINTS)
    .where(ENDPOINTS.c.endpoint == bindparam("name"))
    .values({column.name: bindparam(column.name) for column in ENDPOINTS.c if column.name != "endpoint"})
)
_OLD: Final = [column.name for column in HISTORY.c]
# Copied within the database, which already has the replaced rows.
_REPLACED: Final = insert(HISTORY).from_select(
    _OLD,
    select(*(ENDPOINTS.c[name] for name in _OLD)).where(ENDPOINTS.c.endpoint.in_(bindparam("names", expanding=True))),
)
_SUPERSEDED: Final = insert(HISTORY)
_INSERT_REPLIES: Final = insert(REQUESTS)
_COUNT: Final = update(STORE).values(sequence=bindparam("reached"), retention_ms=bindparam("time_ms"))
# Without those recreated by a commit with a lost answer.
_GONE: Final = (
    ENDPOINTS.c.endpoint.in_(bindparam("names", expanding=True)),
    ENDPOINTS.c.sequence <= bindparam("upto"),
)
_FORGET: Final = (
    delete(HISTORY).where(HISTORY.c.endpoint.in_(select(ENDPOINTS.c.endpoint).where(*_GONE))),
    delete(ENDPOINTS).where(*_GONE),
)


class _Counter(NamedTuple):
    sequence: int
    floor: int
    forgotten: int


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


async def execute(
    connection: AsyncConnection,
    writes: Sequence[Write],
    *,
    index: StoreIndex,
    max_endpoints: int,
    now_ms: int,
    steady_ms: int,
    retention_ms: int,
    history: bool = True,
) -> WritePlan:
    """Execute ``writes`` on a connection with an open transaction; the caller commits.

    Args:
        connection: the caller commits its transaction, or rolls it back as a whole.
        writes: the group; the plan has the outcome of each.
        index: of the store, up to the last commit with an answer.
        max_endpoints: the store's limit of endpoints.
        now_ms: the time of acceptance.
        steady_ms: the time by which endpoints expire.
        retention_ms: the time reached by the retention clock, to be stored.
        history: whether replaced versions are retained.

    Returns:
        The executed plan, with the effects of earlier commits with lost answers: heads beyond the index (``missed``),
            and ``forgotten`` endpoints.

    Raises:
        StoreReplaced: the store's sequence is below the index.
    """
    known = index.changes.sequence
    sequence, floor, forgotten = await _lock_counter(connection, known)
    missed = await changed_since(connection, known) if sequence > known else []
    heads, changes = index.with_changes(missed, forgotten)
    contents = await _contents(connection, [write.patch.endpoint for write in writes if write.patch is not None])
    keys = {write.key.key for write in writes if write.key is not None}
    replies: dict[tuple[str, str], IdempotentReply] = {}
    if keys:
        for key, writer, digest, answer in await connection.execute(_REPLIES, {"keys": sorted(keys)}):
            replies[key, writer] = IdempotentReply(digest, answer)
    basis = Basis(
        heads=heads,
        replies=replies,
        sequence=sequence,
        count=len(heads),
        max_endpoints=max_endpoints,
        now_ms=now_ms,
        steady_ms=steady_ms,
        contents=contents,
        count_of=lambda collection: index.count_of(collection) + changes[collection],
        floor=floor,
        names=index.names if any(write.bound is not None for write in writes) else (),
    )
    planned = plan(writes, basis)
    planned.missed, planned.forgotten = missed, forgotten
    if history:
        await _archive(connection, planned)
    await _write(connection, planned, heads, retention_ms)
    if planned.sequence > sequence:
        await connection.execute(_COUNT, {"reached": planned.sequence, "time_ms": retention_ms})
    return planned


async def create_collections(connection: AsyncConnection, index: StoreIndex, floor: int, now_ms: int) -> None:
    """Create and apply the collections that a store of an earlier release does not have; the caller commits.

    Args:
        connection: with an open transaction.
        index: of the store.
        floor: new collections begin above this version.
        now_ms: the time of acceptance.
    """
    sequence = index.changes.sequence
    planned = WritePlan(sequence, sequence)
    # A version has 13 digits; a wrong clock is reported at the first write.
    now_ms = now_ms if EARLIEST_MS <= now_ms < LATEST_MS else EARLIEST_MS
    basis = Basis(
        heads=index.heads, replies={}, sequence=sequence, count=0, max_endpoints=0, now_ms=now_ms, floor=floor
    )
    missing_collections(planned, (name for name, head in index.heads.items() if not head.gone), basis)
    if not planned.heads:
        return
    await _write(connection, planned, index.heads, now_ms)
    await connection.execute(update(STORE).values(sequence=planned.sequence))
    index.apply(planned.heads.values(), planned.contents)


async def _contents(connection: AsyncConnection, names: Sequence[str]) -> dict[str, bytes]:
    """Return the contents of some endpoints, without those not in the store."""
    if not names:
        return {}
    return {row[0]: row[1] for row in await connection.execute(_CONTENTS, {"names": sorted(set(names))})}


async def forget(connection: AsyncConnection, heads: Sequence[EndpointHead], *, known: int) -> int:
    """Remove deleted endpoints with their history; return the sequence up to which all deleted ones are then removed.

    ``heads``: in order of sequence, without gaps. New endpoints begin above their versions from now on, as clients may
    hold those. ``known``: as in :func:`execute`; the caller commits.

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


async def _lock_counter(connection: AsyncConnection, known: int) -> _Counter:
    """Lock and return the counter. Raises StoreReplaced when its sequence is below ``known``."""
    counter = _Counter._make((await connection.execute(_COUNTER)).one())
    if counter.sequence < known:
        raise StoreReplaced(f"the store was at {known} and is at {counter.sequence}")
    return counter


async def _archive(connection: AsyncConnection, planned: WritePlan) -> None:
    if planned.replaced:
        await connection.execute(_REPLACED, {"names": sorted(planned.replaced)})
    if planned.superseded:
        rows = [{**head._asdict(), "content": content} for head, content in planned.superseded]
        await connection.execute(_SUPERSEDED, [{name: row[name] for name in _OLD} for row in rows])


async def _write(connection: AsyncConnection, planned: WritePlan, existing: Container[str], retention_ms: int) -> None:
    inserted: list[dict[str, Any]] = []
    updated: list[dict[str, Any]] = []
    for endpoint, head in planned.heads.items():
        row = head._asdict()
        row["content"] = planned.contents[endpoint]
        if endpoint in existing:
            row["name"] = row.pop("endpoint")
            updated.append(row)
        else:
            inserted.append(row)
    if updated:
        await connection.execute(_UPDATE, updated)
    if inserted:
        await connection.execute(_INSERT, inserted)
    if planned.requests:
        await connection.execute(
            _INSERT_REPLIES,
            [
                {"key": key, "writer": writer, "digest": digest, "answer": answer, "created_ms": retention_ms}
                for (key, writer), (digest, answer) in planned.requests.items()
            ],
        )


async def probe(connection: AsyncConnection, position: int) -> tuple[list[EndpointHead], int]:
    """Write without changing anything, to test whether the store can commit.

    Returns:
        The heads beyond ``position``, and the sequence up to which deleted endpoints are forgotten.
    """
    counter = await _lock_counter(connection, position)
    await connection.execute(update(STORE).values(sequence=STORE.c.sequence))
    return await changed_since(connection, position), counter.forgotten
