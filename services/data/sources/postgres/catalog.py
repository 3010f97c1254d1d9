"""What the database says of a publication, its tables and the slot; each fault is an error with its remedy."""

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from services.data.sources.postgres.pgoutput import Column
from services.data.sources.postgres.positions import lsn_of
from services.data.sources.postgres.rows import FULL, TableRows
from services.data.sources.postgres.session import failures
from services.data.sources.postgres.table import MIB, PostgresConfig
from services.data.sources.postgres.values import ColumnType
from services.data.sources.records.attempts import InputFailed

PLUGIN: Final = "pgoutput"
LEAST_VERSION: Final = 130_000
Session = Any
"""asyncpg's connection."""


class SlotState(NamedTuple):
    """A replication slot."""

    confirmed_lsn: int
    retained: int
    """Bytes of WAL that the server keeps for it."""
    is_lost: bool
    """Whether WAL that it needs is gone."""


class Published(NamedTuple):
    """A table of the publication."""

    oid: int
    schema: str
    table: str
    identity: str
    """As in ``pg_class.relreplident``."""
    columns: tuple[Column, ...]
    row_filter: str
    """SQL; empty: all rows."""
    publishes_changes: bool
    """Whether updates and deletions are published, beside new rows."""

    @property
    def name(self) -> str:
        """The name with its schema."""
        return f"{self.schema}.{self.table}"

    @property
    def sql_name(self) -> str:
        """The name in SQL."""
        return f"{quoted(self.schema)}.{quoted(self.table)}"

    def layout(self, rows: TableRows) -> str:
        """Return a digest: a copy with another one is not of this table, or not as diem.toml says now."""
        columns = [(column.name, column.type) for column in self.columns]
        text = repr((self.oid, columns, self.row_filter, sorted(rows.config.model_dump(exclude={"name"}).items())))
        return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def quoted(name: str) -> str:
    """Return a name in SQL."""
    return '"' + name.replace('"', '""') + '"'


async def check_server(session: Session, config: PostgresConfig) -> None:
    """Check what logical decoding needs; raises InputFailed."""
    with failures("the database cannot be read"):
        row = await session.fetchrow(
            "SELECT current_setting('server_version_num')::int AS version, current_setting('wal_level') AS level,"
            " pg_is_in_recovery() AS standby, current_user AS role,"
            " (SELECT rolreplication OR rolsuper FROM pg_roles WHERE rolname = current_user) AS replicates,"
            " EXISTS (SELECT FROM pg_publication WHERE pubname = $1) AS publication",
            config.publication,
        )
    role = quoted(row["role"])
    if row["version"] < LEAST_VERSION:
        raise InputFailed("the database is older than PostgreSQL 13")
    if row["standby"]:
        raise InputFailed(
            "this server is a standby: name the primary in url, or both with target_session_attrs=primary"
        )
    if row["level"] != "logical":
        raise InputFailed(
            f"wal_level is {row['level']}: ALTER SYSTEM SET wal_level = logical, and restart the database;"
            " without that, use an outbox"
        )
    if not row["replicates"]:
        raise InputFailed(f"the role may not replicate: ALTER ROLE {role} REPLICATION; without that, use an outbox")
    if not row["publication"]:
        raise InputFailed(
            f"there is no publication {config.publication} in this database: "
            f"CREATE PUBLICATION {quoted(str(config.publication))} FOR TABLE ..."
        )


_TABLES: Final = """
SELECT c.oid, p.schemaname AS schema, p.tablename AS table, c.relreplident::text AS identity, {own} AS row_filter,
  b.pubupdate OR b.pubdelete AS publishes_changes, a.columns
FROM pg_publication_tables p
JOIN pg_publication b ON b.pubname = p.pubname
JOIN pg_namespace n ON n.nspname = p.schemaname
JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = p.tablename
CROSS JOIN LATERAL (
  SELECT array_agg(ARRAY[a.attname::text, a.atttypid::text, (i.indrelid IS NOT NULL)::text]
    ORDER BY a.attnum) AS columns
  FROM pg_attribute a
  LEFT JOIN pg_index i ON i.indrelid = c.oid AND a.attnum = ANY (i.indkey)
    AND CASE c.relreplident WHEN 'd' THEN i.indisprimary WHEN 'i' THEN i.indisreplident ELSE false END
  WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = '' AND {listed}
) a
WHERE p.pubname = $1 ORDER BY 2, 3
"""


async def published_tables(session: Session, publication: str) -> list[Published]:
    """Return the tables of a publication, by name; raises InputFailed."""
    # Lists of columns and filters of rows are newer than PostgreSQL 14.
    newer = session.get_server_version().major >= 15
    own, listed = ("p.rowfilter", "a.attname = ANY (p.attnames)") if newer else ("NULL", "true")
    with failures("the publication cannot be read"):
        found = await session.fetch(_TABLES.format(own=own, listed=listed), publication)
    return [
        Published(
            row["oid"],
            row["schema"],
            row["table"],
            row["identity"],
            tuple(Column(name, int(type_), is_key == "true") for name, type_, is_key in row["columns"] or ()),
            row["row_filter"] or "",
            row["publishes_changes"],
        )
        for row in found
    ]


async def has_table(session: Session, schema: str, table: str) -> bool:
    """Return whether the database has a table; raises InputFailed."""
    query = "SELECT EXISTS (SELECT FROM pg_tables WHERE schemaname = $1 AND tablename = $2)"
    with failures("the tables cannot be read"):
        return bool(await session.fetchval(query, schema, table))


async def array_and_domain_types(session: Session) -> dict[int, ColumnType]:
    """Return the types that are made of others; raises InputFailed."""
    with failures("the types cannot be read"):
        found = await session.fetch(
            "SELECT oid, typbasetype, CASE WHEN typcategory = 'A' THEN typelem ELSE 0 END, typdelim::text"
            " FROM pg_type WHERE typtype = 'd' OR typcategory = 'A'"
        )
    return {row[0]: ColumnType(*row) for row in found}


def check_table(published: Published, rows: TableRows) -> None:
    """Check what the rows of a table need; raises InputFailed."""
    columns = {column.name for column in published.columns}
    if missing := rows.columns - columns:
        raise InputFailed(
            f"{published.name} has no column {min(missing)} (key: endpoint); it has {', '.join(sorted(columns))[:150]}:"
            " name the tables to be read in [source.tables], each with an endpoint if needed"
        )
    if not published.publishes_changes or rows.config.kind == "series" or published.identity == FULL:
        return
    keys = {column.name for column in published.columns if column.is_key}
    if outside := sorted(rows.columns - keys):
        raise InputFailed(
            f"{published.name}: the end of a row does not have {', '.join(outside)}, which endpoint needs: "
            f"ALTER TABLE {published.sql_name} REPLICA IDENTITY FULL"
        )


async def check_rights(session: Session, tables: Sequence[Published]) -> None:
    """Check that the tables can be copied; raises InputFailed."""
    with failures("the rights cannot be read"):
        for each in tables:
            if not await session.fetchval("SELECT has_table_privilege($1::oid, 'SELECT')", each.oid):
                role = quoted(await session.fetchval("SELECT current_user"))
                raise InputFailed(f"the role may not read {each.name}: GRANT SELECT ON {each.sql_name} TO {role}")


async def slot_state(session: Session, slot: str) -> SlotState | None:
    """Return the state of a slot; None if there is none; raises InputFailed."""
    with failures("the replication slot cannot be read"):
        row = await session.fetchrow(
            "SELECT plugin, database, current_database() AS own, wal_status, confirmed_flush_lsn::text AS confirmed,"
            " coalesce(pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn), 0)::bigint AS retained"
            " FROM pg_replication_slots WHERE slot_name = $1",
            slot,
        )
    if row is None:
        return None
    if row["plugin"] != PLUGIN or row["database"] != row["own"]:
        raise InputFailed(
            f"the slot {slot} is of another use ({row['plugin']}, database {row['database']}): name another (key: slot)"
        )
    lost = row["wal_status"] == "lost"
    if row["confirmed"] is None and not lost:
        raise InputFailed(f"the slot {slot} is being created, which waits for transactions that run (pg_stat_activity)")
    return SlotState(lsn_of(row["confirmed"] or "0/0"), row["retained"], lost)


async def create_slot(session: Session, slot: str) -> None:
    """Create a slot; waits for the transactions that run now; raises InputFailed."""
    with failures(
        f"the slot {slot} cannot be created, SELECT pg_create_logical_replication_slot('{slot}', '{PLUGIN}')"
    ):
        await session.execute(f"SELECT pg_create_logical_replication_slot('{slot}', '{PLUGIN}')")


async def drop_slot(session: Session, slot: str) -> None:
    """Drop a slot that has lost its WAL; raises InputFailed."""
    with failures(f"the slot {slot} is lost and cannot be dropped, SELECT pg_drop_replication_slot('{slot}')"):
        await session.execute(f"SELECT pg_drop_replication_slot('{slot}')")


def bound_fault(state: SlotState, config: PostgresConfig) -> str | None:
    """Return the fault of a slot that retains more WAL than its bound."""
    if state.retained <= config.slot_bound * MIB:
        return None
    return (
        f"the slot {config.slot_name} retains {state.retained // MIB} MiB of WAL (slot_bound = {config.slot_bound}): "
        "the source does not keep up, or a transaction is open for long (pg_stat_activity)"
    )


def check_apart(tables: Iterable[TableRows], config: PostgresConfig) -> None:
    """Check that endpoints of different tables differ; raises InputFailed."""
    found: dict[str, TableRows] = {}
    for each in sorted(tables, key=lambda rows: rows.prefix):
        for name, other in found.items():
            if each.prefix == name or (other.below and each.prefix.startswith(name + "/")):
                raise InputFailed(
                    f"{other.name} and {each.name} have the same endpoints, below {name}: have {{table}} in endpoint, "
                    "or a [source.tables] with an endpoint for each; for partitions: "
                    f"ALTER PUBLICATION {quoted(str(config.publication))} SET (publish_via_partition_root = true)"
                )
        found[each.prefix] = each
