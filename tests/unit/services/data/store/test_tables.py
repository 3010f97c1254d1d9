"""Migrations with data, on both databases; they make the tables of the code."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, inspect, text

from services.data.errors import DataError
from services.data.kinds.series import Point, build
from services.data.store import EndpointHead, Store, migrations
from services.data.store.database import database_at
from services.data.store.tables import REVISION, upgrade
from tests.support.databases import Databases
from tests.support.earlier_store import RELEASED, VERSION, make_earlier
from tests.support.patience import PATIENCE_S


async def run(url: str, work: Callable[[Connection], Any]) -> Any:
    database = database_at(url, PATIENCE_S)
    await database.lock()
    try:
        async with database.writing() as connection:
            done = await connection.run_sync(work)
            await connection.commit()
            return done
    finally:
        await database.close()


def describe(connection: Connection) -> dict[str, object]:
    found = inspect(connection)
    # PostgreSQL adds columns at the end, wherever they are wanted; there it does not matter.
    order: Callable[[Any], Any] = list if connection.dialect.name == "sqlite" else sorted
    return {
        table: (
            order((c["name"], str(c["type"]), c["nullable"]) for c in found.get_columns(table)),
            found.get_pk_constraint(table)["constrained_columns"],
            sorted((i["name"] or "", tuple(i["column_names"]), i["unique"]) for i in found.get_indexes(table)),
        )
        for table in sorted(found.get_table_names())
    }


def revision(connection: Connection) -> object:
    return connection.execute(text("SELECT version_num FROM alembic_version")).scalar_one_or_none()


async def test_migrations_and_table_definitions_agree(databases: Databases) -> None:
    def migrate(connection: Connection) -> dict[str, object]:
        upgrade(connection, "0001")
        upgrade(connection)
        upgrade(connection)  # a second start finds nothing to do
        assert revision(connection) == REVISION
        return describe(connection)

    def create(connection: Connection) -> dict[str, object]:
        upgrade(connection)  # an empty database: no migration runs
        assert revision(connection) == REVISION
        return describe(connection)

    assert await run(databases.url("migrated"), migrate) == await run(databases.url("created"), create)


def test_tables_are_those_of_the_last_migration() -> None:
    assert ScriptDirectory(str(Path(migrations.__file__).parent)).get_current_head() == REVISION


async def fill(url: str) -> tuple[str, list[EndpointHead], bytes]:
    """Make a store with a change, a deletion and a title; return its expected contents."""
    store = await Store.open(url)
    async with store.serving():
        for value in (1, 2, 3):
            await store.writer.put(
                [build("/a", "MW", "PT1H", [Point(0, value)], "A title"), build("/b", "°C", "PT12H", [Point(0, value)])]
            )
        await store.writer.delete("/b")
        return (
            store.id,
            sorted(store.index.heads.values()),
            (await store.reader.current("/a")).content,
        )


@pytest.mark.parametrize("release", [RELEASED, "0012"])
async def test_data_of_an_earlier_release_survives_the_upgrade(databases: Databases, release: str) -> None:
    url = databases.url()
    await run(url, lambda connection: make_earlier(connection, release, {"/a": ("MW", ""), "/b": ("°C", "GR")}))
    store = await Store.open(url)
    async with store.serving():
        heads = store.index.heads
        assert {name: (heads[name].labels, heads[name].title, heads[name].sequence) for name in ("/a", "/b")} == {
            "/a": ('{"resolution":"PT1H","unit":"MW"}', "A title", 3),
            "/b": ('{"area":"GR","resolution":"PT1H","unit":"°C"}', "A title", 4),
        }
        assert store.id == "earlier"
        assert b'"value":2' in (await store.reader.current("/a")).content
        assert [b'"value":1' in each.content for each in await store.reader.versions("/a")] == [False, True]
        (same,) = await store.writer.put([build("/a", "MW", "PT1H", [Point(1767225600, 2)])])
        assert (same.version, same.changed) == (VERSION + 2, False)
        (accepted,) = await store.writer.put([build("/a", "MW", "PT1H", [Point(1767225600, 9)])])
        assert accepted.version > VERSION + 2


async def test_a_store_of_a_later_release_is_refused(databases: Databases) -> None:
    await fill(databases.url())
    await run(
        databases.url(), lambda connection: connection.execute(text("UPDATE alembic_version SET version_num='9999'"))
    )
    with pytest.raises(DataError, match="of a later release"):
        await Store.open(databases.url())
