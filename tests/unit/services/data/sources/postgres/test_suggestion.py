"""The table of a database, by its catalog."""

from typing import Any

import pytest

from services.data.sources.postgres.suggestion import FoundServer, FoundTable, suggest

SERVER = FoundServer("diem", "logical", replicates=True, publications=["shop"])


def table(name: str, *keys: str, schema: str = "public", identity: str = "d", is_readable: bool = True) -> FoundTable:
    return FoundTable(schema, name, identity, is_readable, [*keys, "n"], keys)


@pytest.mark.parametrize(
    ("tables", "fields"),
    [
        ([table("a", "id"), table("b", "id")], {"endpoint": "/shop/{table}/{id}"}),
        (
            [table("a", "id"), table("b", "id", "nr")],
            {
                "endpoint": "/shop/{table}/{id}",
                "tables": {"a": {"endpoint": "/shop/a/{id}"}, "b": {"endpoint": "/shop/b/{id}/{nr}"}},
            },
        ),
        ([table("a", "id"), table("log")], {"endpoint": "/shop/{table}/{id}", "tables": {"a": {}}}),
        (
            [table("a", "id"), table("a", "id", schema="old")],
            {
                "endpoint": "/shop/{table}/{id}",
                "tables": {"a": {"endpoint": "/shop/public/a/{id}"}, "old.a": {"endpoint": "/shop/old/a/{id}"}},
            },
        ),
    ],
)
def test_endpoints_are_named_by_primary_keys(tables: list[FoundTable], fields: dict[str, Any]) -> None:
    made = suggest("shop", SERVER, tables, "shop", {})
    assert made.fields == {"publication": "shop", **fields}
    assert made.statements == []


def test_what_the_database_lacks_is_a_statement() -> None:
    server = FoundServer("di em", "replica", replicates=False, publications=[])
    tables = [table("a", "id", is_readable=False), table("b", "id", identity="n")]
    assert suggest("shop", server, tables, "diem", {}).statements == [
        "ALTER SYSTEM SET wal_level = logical;  -- and restart the database",
        'ALTER ROLE "di em" REPLICATION;',
        'GRANT SELECT ON "public"."a" TO "di em";',
        'ALTER TABLE "public"."b" REPLICA IDENTITY DEFAULT;',
        'CREATE PUBLICATION diem FOR TABLE "public"."a", "public"."b";',
    ]


@pytest.mark.parametrize(
    ("tables", "problem"),
    [
        ([], "there are no tables"),
        ([table("log")], "no table has a primary key"),
        ([table(f"t{n}", "id") for n in range(101)], "more than 100 tables"),
    ],
)
def test_without_tables_that_can_be_named_there_is_no_suggestion(tables: list[FoundTable], problem: str) -> None:
    assert problem in suggest("shop", SERVER, tables, "shop", {}).problem
