"""The tables, in SQL common to SQLite and PostgreSQL, when to migrate them, and the publisher's cursor."""

from typing import Final, NamedTuple

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    SmallInteger,
    String,
    Table,
    Text,
    insert,
    inspect,
    select,
    update,
)
from sqlalchemy.ext.asyncio import AsyncConnection

from services.data.errors import DataError

METADATA: Final = MetaData()
REVISION: Final = "0014"
"""The latest migration, which results in these tables."""
# Alembic's own table, not one of the store.
_ALEMBIC_VERSION: Final = Table("alembic_version", MetaData(), Column("version_num", String(32), primary_key=True))

STORE: Final = Table(
    "store",
    METADATA,
    Column("id", Integer, primary_key=True, autoincrement=False),
    # Constant: identifies the store of a feed reader's positions.
    Column("store_id", String(64), nullable=False),
    # The only counter of changes. Its row is locked until commit: numbers of a database sequence become visible out of
    # order, and a cursor would skip some (docs/internals.md section 0).
    Column("sequence", BigInteger, nullable=False),
    # Clients may hold versions up to this one of unknown endpoints: new ones begin above it.
    Column("version_floor", BigInteger, nullable=False),
    # Time of the retention clock at the last change; 0: take the latest change's.
    Column("retention_ms", BigInteger, nullable=False),
    # All endpoints deleted at sequences up to this one are gone.
    Column("forgotten", BigInteger, nullable=False),
)

ENDPOINTS: Final = Table(
    "endpoints",
    METADATA,
    Column("endpoint", String(256), primary_key=True),
    Column("sequence", BigInteger, nullable=False),
    Column("version", BigInteger, nullable=False),
    # UPDATE or GONE of diem.protocol.update; a deleted endpoint's row stays until its history has expired.
    Column("kind", SmallInteger, nullable=False),
    Column("changed_ms", BigInteger, nullable=False),
    Column("media_type", String(100), nullable=False),
    Column("title", String(200), nullable=False),
    # Source of the data; empty for the API.
    Column("source", String(64), nullable=False),
    # Of the catalogue: a JSON object of texts.
    Column("labels", Text, nullable=False),
    # By the steady clock; 0: never.
    Column("expires_ms", BigInteger, nullable=False),
    Column("digest", LargeBinary, nullable=False),
    # In canonical form; empty when the endpoint is deleted. Last, so that reads of other columns skip it.
    Column("content", LargeBinary, nullable=False),
    Index("ix_endpoints_sequence", "sequence", unique=True),
)

HISTORY: Final = Table(
    "history",
    METADATA,
    # Sequence of the change: rows are in order of acceptance. The rowid in SQLite, so that rows are appended.
    Column("sequence", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=False),
    Column("endpoint", String(256), nullable=False),
    Column("version", BigInteger, nullable=False),
    Column("kind", SmallInteger, nullable=False),
    Column("changed_ms", BigInteger, nullable=False),
    Column("media_type", String(100), nullable=False),
    Column("content", LargeBinary, nullable=False),
    Index("ix_history_endpoint_version", "endpoint", "version", unique=True),
)

PUBLISHER: Final = Table(
    "publisher",
    METADATA,
    Column("id", Integer, primary_key=True, autoincrement=False),
    # Log of the cursor: ids of cluster and topics.
    Column("source", String(255), nullable=False),
    Column("sequence", BigInteger, nullable=False),
    # The publisher's knowledge of each partition's log (services.data.publisher.offsets).
    Column("logs", Text, nullable=False, server_default=""),
)

REQUESTS: Final = Table(
    "requests",
    METADATA,
    Column("key", String(255), primary_key=True),
    # Id of the write key; empty: that of the key file.
    Column("writer", String(8), primary_key=True),
    Column("digest", LargeBinary, nullable=False),
    Column("answer", LargeBinary, nullable=False),
    # By the retention clock.
    Column("created_ms", BigInteger, nullable=False),
    Index("ix_requests_created_ms", "created_ms"),
    Index("ix_requests_writer_created_ms", "writer", "created_ms"),
)

# Progress of sources, stored with the changes up to there (services.data.store.write_plan.Checkpoint).
CHECKPOINTS: Final = Table(
    "checkpoints",
    METADATA,
    Column("source", String(64), primary_key=True),
    # Such as a partition of a topic.
    Column("part", String(255), primary_key=True),
    # In the source's own format.
    Column("position", Text, nullable=False),
)

# Of services.data.access: API keys and write keys, and the requests reserved for each and day.
API_KEYS: Final = Table(
    "api_keys",
    METADATA,
    Column("id", String(8), primary_key=True),
    Column("name", String(100), nullable=False),
    Column("plan", String(32), nullable=False),
    # SHA-256 of the secret, which is not stored.
    Column("digest", LargeBinary, nullable=False),
    Column("created_ms", BigInteger, nullable=False),
    Column("revoked_ms", BigInteger, nullable=True),
    Column("expires_ms", BigInteger, nullable=True),
    # To the minute, and written every ten minutes.
    Column("last_used_ms", BigInteger, nullable=True),
    # 1: a write key, which has no plan.
    Column("writes", SmallInteger, nullable=False),
    # Of a write key, a JSON list; empty: every endpoint.
    Column("prefixes", Text, nullable=False),
    # Changes of a write key within 60 seconds.
    Column("per_minute", Integer, nullable=True),
    # Of an API key, a JSON list; empty: pages of every origin.
    Column("origins", Text, nullable=False),
    # Limit of endpoints below a write key's prefixes for creating new ones; null: no limit.
    Column("max_endpoints", Integer, nullable=True),
)

KEY_DAYS: Final = Table(
    "key_days",
    METADATA,
    Column("key_id", String(8), primary_key=True),
    # Days since 1970 (UTC).
    Column("day", Integer, primary_key=True, autoincrement=False),
    # Reserved requests, never fewer than answered.
    Column("requests", BigInteger, nullable=False),
)


class Cursor(NamedTuple):
    """Position of the publisher: changes up to ``sequence`` are in the log with the id ``source``, and only there."""

    source: str
    sequence: int
    logs: str = ""
    """The publisher's knowledge of each partition's log, in its own format."""


async def read_cursor(connection: AsyncConnection) -> Cursor | None:
    """Return the publisher's cursor; None before the first publication."""
    row = (await connection.execute(select(PUBLISHER.c.source, PUBLISHER.c.sequence, PUBLISHER.c.logs))).one_or_none()
    return None if row is None else Cursor(*row)


async def write_cursor(connection: AsyncConnection, cursor: Cursor) -> None:
    """Store the publisher's cursor; the caller commits."""
    updated = await connection.execute(update(PUBLISHER).values(cursor._asdict()))
    if not updated.rowcount:
        await connection.execute(insert(PUBLISHER), {"id": 1, **cursor._asdict()})


def revision_of(connection: Connection) -> str | None:
    """Return the revision of the tables; None when there are none."""
    if not inspect(connection).has_table(_ALEMBIC_VERSION.name):
        return None
    return connection.execute(select(_ALEMBIC_VERSION.c.version_num)).scalar_one_or_none()


def check_known(connection: Connection) -> None:
    """Check that the tables are of this release, or none; raises DataError."""
    if (revision := revision_of(connection)) not in {None, REVISION}:
        raise DataError(f"the store has tables of another release (revision {revision}): this release cannot read them")


def upgrade(connection: Connection) -> None:
    """Run the outstanding migrations, within the transaction of ``connection``.

    An empty database gets the tables of this release at once.

    Raises:
        DataError: the database is of another release.
    """
    if (found := revision_of(connection)) == REVISION:
        return
    if not inspect(connection).get_table_names():
        METADATA.create_all(connection, checkfirst=False)
        _ALEMBIC_VERSION.create(connection)
        connection.execute(insert(_ALEMBIC_VERSION), {"version_num": REVISION})
        return
    from services.data.store import alembic_runs  # noqa: PLC0415  # see there

    if found not in alembic_runs.revisions() | {None}:
        check_known(connection)
    alembic_runs.upgrade(connection, REVISION)


def drop(connection: Connection) -> None:
    """Remove the tables of this release with their content, within the transaction of ``connection``."""
    METADATA.drop_all(connection)
    _ALEMBIC_VERSION.drop(connection)
