"""Migrations make the tables of the code, on both databases."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, inspect, text

from services.data.errors import DataError
from services.data.store import alembic_runs, migrations
from services.data.store.database import database_at
from services.data.store.store import Store
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
        alembic_runs.upgrade(connection, REVISION)
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


async def test_a_store_of_another_release_is_refused(databases: Databases) -> None:
    def make(connection: Connection) -> None:
        upgrade(connection)
        connection.execute(text("UPDATE alembic_version SET version_num='9999'"))

    await run(databases.url(), make)
    with pytest.raises(DataError, match="of another release"):
        await Store.open(databases.url())
