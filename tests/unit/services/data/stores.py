"""Stores and datasets of tests of the store and its backups."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from sqlalchemy.exc import OperationalError
from sqlalchemy.ext.asyncio import AsyncConnection

from diem.process.clock import Clock, ManualClock
from services.data.kinds.series import Dataset, Point, build
from services.data.limits import StoreLimits, WriterLimits
from services.data.store import IdempotencyKey, transaction
from services.data.store.group import Group
from services.data.store.postgres import PostgresDatabase
from services.data.store.sqlite import SqliteDatabase
from services.data.store.store import Store
from services.data.store.tables import Cursor
from services.data.store.write_plan import WritePlan
from tests.support.databases import Databases

NOW = 1_700_000_000_000
LATER = NOW + 3_600_000


def dataset(endpoint: str, value: float = 1, unit: str = "°C") -> Dataset:
    return build(endpoint, unit, "PT1H", [Point(0, value)])


async def open_store(databases: Databases, clock: Clock | None = None, **limits: Any) -> Store:
    """Open a store that soon tries again to commit, with these limits of its writer."""
    found = StoreLimits(writer=WriterLimits(probe_every_s=0.01, **limits))
    return await Store.open(databases.url(), clock=clock or ManualClock(), limits=found)


Commit = Callable[[Any, Group], Awaitable[WritePlan]]


def replace_commit(patch: pytest.MonkeyPatch, wrapped: Callable[[Commit], Commit]) -> None:
    """Replace how databases commit groups."""
    for database in (SqliteDatabase, PostgresDatabase):
        patch.setattr(database, "commit", wrapped(database.commit))


def lose_answers_to_groups(patch: pytest.MonkeyPatch) -> None:
    """Have groups committed, and the answer to that lost."""

    def wrapped(real: Commit) -> Commit:
        async def commit_and_lose(database: Any, group: Group) -> WritePlan:  # either of two
            await real(database, group)
            raise OSError("connection lost")

        return commit_and_lose

    replace_commit(patch, wrapped)


def lose_answers(patch: pytest.MonkeyPatch, name: str) -> None:
    """Have transactions committed, and the answer to that lost."""
    real = getattr(transaction, name)

    async def commit_and_lose(connection: AsyncConnection, *args: object, **kwargs: object) -> None:
        await real(connection, *args, **kwargs)
        await connection.commit()
        raise OperationalError("COMMIT", {}, Exception("connection lost"))

    patch.setattr(transaction, name, commit_and_lose)


async def filled(url: str, clock: ManualClock | None = None) -> Store:
    """Make a store with everything that a backup must contain, and close it."""
    store = await Store.open(url, clock=clock or ManualClock(wall_ms=NOW))
    async with store.serving():
        await store.writer.put([dataset("/a", 1), dataset("/gone")])
        await store.writer.put([dataset("/b").described(title="Tität", area="GR", quantity="load")])
        await store.writer.put([dataset("/a", 2)], source="market", key=IdempotencyKey("k", b"\x00\xff"))
        await store.writer.delete("/gone")
        store.keep_cursor(Cursor("log", 3))
    return store
