"""Finds the keys of ``[[source]]`` for the tables of a database, and the statements that it lacks."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from services.data.sources.postgres.catalog import Session, quoted
from services.data.sources.postgres.session import failures

MAX_TABLES: Final = 100
_TABLES: Final = """
SELECT n.nspname AS schema, c.relname AS table, c.relreplident::text AS identity,
  has_table_privilege(c.oid, 'SELECT') AS is_readable, a.columns, a.keys
FROM pg_class c
JOIN pg_namespace n ON n.oid = c.relnamespace
CROSS JOIN LATERAL (
  SELECT array_agg(a.attname::text ORDER BY a.attnum) AS columns,
    array_agg(a.attname::text ORDER BY a.attnum) FILTER (WHERE i.indrelid IS NOT NULL) AS keys
  FROM pg_attribute a
  LEFT JOIN pg_index i ON i.indrelid = c.oid AND a.attnum = ANY (i.indkey)
    AND CASE c.relreplident WHEN 'i' THEN i.indisreplident ELSE i.indisprimary END
  WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
) a
WHERE CASE WHEN $1::text IS NULL
  THEN c.relkind IN ('r', 'p') AND NOT c.relispartition AND n.nspname !~ '^(pg_|information_schema$)'
  ELSE EXISTS (SELECT FROM pg_publication_tables p
    WHERE p.pubname = $1 AND p.schemaname = n.nspname AND p.tablename = c.relname) END
ORDER BY 1, 2 LIMIT {limit}
"""


class FoundTable(NamedTuple):
    """A table of the database."""

    schema: str
    table: str
    identity: str
    """As in ``pg_class.relreplident``."""
    is_readable: bool
    columns: Sequence[str]
    keys: Sequence[str]
    """Columns of its primary key, or of its replica identity."""

    @property
    def name(self) -> str:
        """The name with its schema, where that is not ``public``."""
        return self.table if self.schema == "public" else f"{self.schema}.{self.table}"

    @property
    def sql_name(self) -> str:
        """The name in SQL."""
        return f"{quoted(self.schema)}.{quoted(self.table)}"


class FoundServer(NamedTuple):
    """What a database has for logical decoding."""

    role: str
    wal_level: str
    replicates: bool
    """Whether the role may."""
    publications: Sequence[str]


class TableSuggestion(NamedTuple):
    """What a database shows.

    Attributes:
        fields: of the source, without its name and its connection. statements: to be run in the database. unsure: what
        it does not show. problem: why there is no suggestion; empty if there is one.
    """

    fields: dict[str, Any]
    statements: Sequence[str] = ()
    unsure: Sequence[str] = ()
    problem: str = ""


async def find_server(session: Session) -> FoundServer:
    """Return what the server has; raises InputFailed."""
    with failures("the database cannot be read"):
        row = await session.fetchrow(
            "SELECT current_user, current_setting('wal_level'),"
            " (SELECT rolreplication OR rolsuper FROM pg_roles WHERE rolname = current_user),"
            " ARRAY(SELECT pubname::text FROM pg_publication ORDER BY 1)"
        )
    return FoundServer(*row)


async def find_tables(session: Session, publication: str | None) -> list[FoundTable]:
    """Return the tables of a publication, else of all schemas of users; raises InputFailed."""
    with failures("the tables cannot be read"):
        found = await session.fetch(_TABLES.format(limit=MAX_TABLES + 1), publication)
    return [FoundTable._make(() if each is None else each for each in row) for row in found]


def suggest(
    name: str, server: FoundServer, tables: Sequence[FoundTable], publication: str, known: Mapping[str, Any]
) -> TableSuggestion:
    """Return the fields for some tables; those ``known`` are taken as they are."""
    if not tables:
        return TableSuggestion({}, problem="there are no tables")
    if len(tables) > MAX_TABLES:
        return TableSuggestion({}, problem=f"there are more than {MAX_TABLES} tables: give --set publication=NAME")
    is_new = publication not in server.publications
    without = [each for each in tables if not each.keys]
    used = [each for each in tables if each.keys]
    unsure = [f"{each.name} has no primary key: it is left out; give it one" for each in without]
    if not used:
        return TableSuggestion({}, unsure=unsure, problem="no table has a primary key, which names its endpoints")
    fields: dict[str, Any] = {"publication": publication, "endpoint": f"/{name}/{{table}}/{{{used[0].keys[0]}}}"}
    same = {tuple(each.keys) for each in used} == {(used[0].keys[0],)}
    distinct = len({each.table for each in used}) == len(used)
    if not (same and distinct) or without:
        fields["tables"] = {each.name: {} if same and distinct else _own(name, each, distinct) for each in used}
    return TableSuggestion({**fields, **known}, [*_statements(server, used, publication, is_new=is_new)], unsure)


def _own(name: str, table: FoundTable, distinct: bool) -> dict[str, Any]:  # of all tables
    place = table.table if distinct else f"{table.schema}/{table.table}"
    return {"endpoint": "/".join([f"/{name}/{place}", *(f"{{{key}}}" for key in table.keys)])}


def _statements(server: FoundServer, tables: Sequence[FoundTable], publication: str, *, is_new: bool) -> Sequence[str]:
    found: list[str] = []
    role = quoted(server.role)
    if server.wal_level != "logical":
        found.append("ALTER SYSTEM SET wal_level = logical;  -- and restart the database")
    if not server.replicates:
        found.append(f"ALTER ROLE {role} REPLICATION;")
    if unreadable := [each.sql_name for each in tables if not each.is_readable]:
        found.append(f"GRANT SELECT ON {', '.join(unreadable)} TO {role};")
    found += [f"ALTER TABLE {each.sql_name} REPLICA IDENTITY DEFAULT;" for each in tables if each.identity == "n"]
    if is_new:
        found.append(f"CREATE PUBLICATION {publication} FOR TABLE {', '.join(each.sql_name for each in tables)};")
    return found
