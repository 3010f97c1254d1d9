"""Migrations up and down, with data, on both databases; they make the tables of the code."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, inspect, text

from services.data.access import records
from services.data.access.keys import WriteTerms, new_key
from services.data.errors import DataError
from services.data.kinds.series import Point, build
from services.data.store import EndpointHead, Store, migrations
from services.data.store.alembic_runs import downgrade
from services.data.store.database import database_at
from services.data.store.tables import REVISION, upgrade
from tests.support.databases import Databases
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


@pytest.mark.parametrize("back_to", ["0002", "0003"])
async def test_data_survives_a_downgrade_and_upgrade(databases: Databases, back_to: str) -> None:
    url = databases.url()
    before = await fill(url)

    def down(connection: Connection) -> list[str]:
        downgrade(connection, back_to)
        assert revision(connection) == back_to
        return sorted(inspect(connection).get_table_names())

    tables = await run(url, down)
    assert {"store", "endpoints", "requests", "publisher"} <= set(tables)
    assert ("history" in tables) == (back_to == "0003")
    store = await Store.open(url)
    async with store.serving():
        assert (
            store.id,
            sorted(store.index.heads.values()),
            (await store.reader.current("/a")).content,
        ) == before
        assert len(await store.reader.versions("/a")) == (3 if back_to == "0003" else 1), (
            "history is lost on the way, or not"
        )
        (accepted,) = await store.writer.put([build("/a", "MW", "PT1H", [Point(0, 9)])])
        assert accepted.version > before[1][0].version
        assert store.changes.sequence == 8


async def test_a_downgrade_keeps_the_series_that_the_earlier_revision_can_hold(databases: Databases) -> None:
    url = databases.url()
    store = await Store.open(url)
    async with store.serving():
        for value in (1, 2):
            made = {"/a": ("GBP/MWh", "P1M"), "/b": ("MW", "irregular"), "/c": ("goals of the home team", "PT1H")}
            await store.writer.put([build(name, *each, [Point(0, value)]) for name, each in made.items()])
    await run(url, partial(downgrade, revision="0012"))
    store = await Store.open(url)
    async with store.serving():
        heads = store.index.heads.values()
        assert [(head.endpoint, head.labels) for head in heads] == [("/a", '{"resolution":"P1M","unit":"GBP/MWh"}')]
        assert len(await store.reader.versions("/a")) == 2
    count = text("SELECT count(*) FROM history")
    assert await run(url, lambda connection: connection.execute(count).scalar_one()) == 1


async def test_a_downgrade_to_base_removes_everything_and_can_be_undone(databases: Databases) -> None:
    await fill(databases.url())

    def down(connection: Connection) -> list[str]:
        downgrade(connection, "base")
        return inspect(connection).get_table_names()

    assert await run(databases.url(), down) == ["alembic_version"]
    store = await Store.open(databases.url())
    async with store.serving():
        assert sorted(store.index.heads.values()) == []


@pytest.mark.parametrize("forgotten", [0, 2])
async def test_a_downgrade_of_a_store_that_has_forgotten_endpoints_makes_it_another_one(
    databases: Databases, forgotten: int
) -> None:
    before = (await fill(databases.url()))[0]

    def down(connection: Connection) -> None:
        connection.execute(text(f"UPDATE store SET forgotten = {forgotten}"))
        downgrade(connection, "0011")

    await run(databases.url(), down)
    store = await Store.open(databases.url())
    async with store.serving():
        assert (store.id == before) == (not forgotten)
        assert store.source == store.id


async def test_a_store_of_a_later_release_is_refused(databases: Databases) -> None:
    await fill(databases.url())
    await run(
        databases.url(), lambda connection: connection.execute(text("UPDATE alembic_version SET version_num='9999'"))
    )
    with pytest.raises(DataError, match="of a later release"):
        await Store.open(databases.url())


async def test_a_downgrade_removes_keys_that_an_earlier_release_would_take_for_unlimited_ones(
    databases: Databases,
) -> None:
    made = {
        "plain": new_key("plain", "free", 1)[0],
        "expires": new_key("expires", "free", 1, expires_ms=10)[0],
        "writes": new_key("writes", "", 1, writes=WriteTerms(("/dam", "/load"), 60))[0],
        "pages": new_key("pages", "free", 1, origins=("https://app.example", "http://localhost:3000"))[0],
    }
    store = await Store.open(databases.url())
    async with store.serving():
        for key in made.values():
            await store.transact(partial(records.add_key, key=key))
        assert {key.name: key for key in await store.transact(records.read_keys)} == made

    await run(databases.url(), lambda connection: downgrade(connection, "0004"))
    store = await Store.open(databases.url())
    async with store.serving():
        assert await store.transact(records.read_keys) == [made["plain"]]
