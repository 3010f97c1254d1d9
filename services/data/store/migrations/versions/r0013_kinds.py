"""Media types, labels and expiry: an endpoint may hold other kinds of data than series."""

from collections.abc import Callable, Sequence
from typing import Any

import orjson
import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

_SERIES = "application/vnd.diem.series+json"
_LABELS = ("unit", "resolution", "area", "quantity")
_BATCH = 1000


def _columns(name: str) -> Sequence[tuple[str, Any]]:
    """Return names and types of a table's columns in this revision or the one before, all of them not null."""
    change: list[tuple[str, Any]] = [
        ("version", sa.BigInteger()),
        ("kind", sa.SmallInteger()),
        ("changed_ms", sa.BigInteger()),
    ]
    media_type, content = ("media_type", sa.String(100)), ("content", sa.LargeBinary())
    text = [("title", sa.String(200)), ("source", sa.String(64))]
    number = sa.BigInteger().with_variant(sa.Integer, "sqlite")
    # Content is last, so that reads of other columns skip it.
    return {
        "endpoints": [
            ("endpoint", sa.String(256)), ("sequence", sa.BigInteger()), *change, media_type, *text,
            ("labels", sa.Text()), ("expires_ms", sa.BigInteger()), ("digest", sa.LargeBinary()), content,
        ],
        "endpoints before": [
            ("endpoint", sa.String(256)), ("sequence", sa.BigInteger()), *change,
            ("unit", sa.String(16)), ("resolution", sa.String(8)), *text,
            ("area", sa.String(64)), ("quantity", sa.String(32)), ("digest", sa.LargeBinary()), content,
        ],
        "history": [("sequence", number), ("endpoint", sa.String(256)), *change, media_type, content],
        "history before": [("sequence", number), ("endpoint", sa.String(256)), *change, content],
    }[name]  # fmt: skip


def _replace(table: str, key: str, columns: str, values: dict[str, Any]) -> None:
    """Replace a table by one with other columns; ``values`` has the expressions of new ones."""
    index = {
        "endpoints": ("ix_endpoints_sequence", ["sequence"]),
        "history": ("ix_history_endpoint_version", ["endpoint", "version"]),
    }[table]
    op.drop_index(index[0], table)
    op.rename_table(table, f"{table}_before")
    described = _columns(columns)
    made = op.create_table(
        table,
        *(
            sa.Column(name, type_, primary_key=name == key, autoincrement=False, nullable=False)
            for name, type_ in described
        ),
    )
    before = sa.table(f"{table}_before", *(sa.column(name) for name, _ in described if name not in values))
    copied = sa.select(*(values[name].label(name) if name in values else before.c[name] for name, _ in described))
    order = before.c["endpoint" if table == "endpoints" else "sequence"]
    op.execute(sa.insert(made).from_select([name for name, _ in described], copied.select_from(before).order_by(order)))
    op.drop_table(f"{table}_before")
    op.create_index(index[0], table, index[1], unique=True)


def _fill(read: Sequence[str], written: Sequence[str], fill: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Set columns of every endpoint by others."""
    endpoints = sa.table("endpoints", sa.column("endpoint"), *map(sa.column, {*read, *written}))
    columns, connection, after = endpoints.c, op.get_bind(), ""
    update = sa.update(endpoints).where(columns.endpoint == sa.bindparam("name"))
    update = update.values({name: sa.bindparam(name) for name in written})
    while True:
        found = sa.select(columns.endpoint, *(columns[name] for name in read)).where(columns.endpoint > after)
        rows = [dict(row) for row in connection.execute(found.order_by(columns.endpoint).limit(_BATCH)).mappings()]
        if not rows:
            return
        connection.execute(update, [{"name": row["endpoint"], **fill(row)} for row in rows])
        after = rows[-1]["endpoint"]


def _text_of(row: dict[str, Any]) -> dict[str, str]:
    given = {name: row[name] for name in _LABELS if row[name]}
    return {"labels": orjson.dumps(given, option=orjson.OPT_SORT_KEYS).decode()}


def _labels_of(row: dict[str, Any]) -> dict[str, str]:
    labels = orjson.loads(row["labels"])
    return {name: labels.get(name, "") for name in _LABELS}


def upgrade() -> None:
    """Describe all endpoints as series, with their units and areas as labels."""
    series = sa.literal(_SERIES, sa.String(100))
    op.add_column("endpoints", sa.Column("labels", sa.Text, nullable=False, server_default="{}"))
    _fill(_LABELS, ["labels"], _text_of)
    nothing = sa.literal(0, sa.BigInteger())
    _replace("endpoints", "endpoint", "endpoints", {"media_type": series, "expires_ms": nothing})
    _replace("history", "sequence", "history", {"media_type": series})


def downgrade() -> None:
    """Remove everything but series that the earlier revision can hold, and restore the columns of these."""
    for table in ("history", "endpoints"):
        op.execute(sa.text(f"DELETE FROM {table} WHERE media_type <> :series").bindparams(series=_SERIES))  # noqa: S608
    for name in _LABELS:
        op.add_column("endpoints", sa.Column(name, sa.String(64), nullable=False, server_default=""))
    _fill(["labels"], _LABELS, _labels_of)
    # Later units and resolutions, for which the columns are too short.
    op.execute("DELETE FROM endpoints WHERE length(unit) > 16 OR length(resolution) > 8")
    op.execute("DELETE FROM history WHERE endpoint NOT IN (SELECT endpoint FROM endpoints)")
    _replace("endpoints", "endpoint", "endpoints before", {})
    _replace("history", "sequence", "history before", {})
