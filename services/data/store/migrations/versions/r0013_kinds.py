"""Media types, labels and expiry: an endpoint may hold other kinds of data than series."""

from collections.abc import Sequence
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


def _columns(table: str) -> Sequence[tuple[str, Any]]:
    """Return names and types of a table's columns in this revision, all of them not null."""
    change: list[tuple[str, Any]] = [
        ("version", sa.BigInteger()),
        ("kind", sa.SmallInteger()),
        ("changed_ms", sa.BigInteger()),
        ("media_type", sa.String(100)),
    ]
    content = ("content", sa.LargeBinary())
    # Content is last, so that reads of other columns skip it.
    if table == "endpoints":
        return [
            ("endpoint", sa.String(256)), ("sequence", sa.BigInteger()), *change, ("title", sa.String(200)),
            ("source", sa.String(64)), ("labels", sa.Text()), ("expires_ms", sa.BigInteger()),
            ("digest", sa.LargeBinary()), content,
        ]  # fmt: skip
    number = sa.BigInteger().with_variant(sa.Integer, "sqlite")
    return [("sequence", number), ("endpoint", sa.String(256)), *change, content]


def _replace(table: str, key: str, index: tuple[str, list[str]], values: dict[str, Any]) -> None:
    """Replace a table by one with other columns; ``values`` has the expressions of new ones."""
    op.drop_index(index[0], table)
    op.rename_table(table, f"{table}_before")
    described = _columns(table)
    made = op.create_table(
        table,
        *(
            sa.Column(name, type_, primary_key=name == key, autoincrement=False, nullable=False)
            for name, type_ in described
        ),
    )
    before = sa.table(f"{table}_before", *(sa.column(name) for name, _ in described if name not in values))
    copied = sa.select(*(values[name].label(name) if name in values else before.c[name] for name, _ in described))
    copied = copied.select_from(before).order_by(before.c[key])
    op.execute(sa.insert(made).from_select([name for name, _ in described], copied))
    op.drop_table(f"{table}_before")
    op.create_index(index[0], table, index[1], unique=True)


def _label() -> None:
    """Set the labels of every endpoint by its unit and area."""
    endpoints = sa.table("endpoints", sa.column("endpoint"), sa.column("labels"), *map(sa.column, _LABELS))
    columns, connection, after = endpoints.c, op.get_bind(), ""
    update = sa.update(endpoints).where(columns.endpoint == sa.bindparam("name")).values(labels=sa.bindparam("text"))
    while True:
        found = sa.select(columns.endpoint, *(columns[name] for name in _LABELS)).where(columns.endpoint > after)
        rows = connection.execute(found.order_by(columns.endpoint).limit(_BATCH)).mappings().all()
        if not rows:
            return
        connection.execute(update, [{"name": row["endpoint"], "text": _text_of(row)} for row in rows])
        after = rows[-1]["endpoint"]


def _text_of(row: sa.RowMapping) -> str:
    given = {name: row[name] for name in _LABELS if row[name]}
    return orjson.dumps(given, option=orjson.OPT_SORT_KEYS).decode()


def upgrade() -> None:
    """Describe all endpoints as series, with their units and areas as labels."""
    series, nothing = sa.literal(_SERIES, sa.String(100)), sa.literal(0, sa.BigInteger())
    op.add_column("endpoints", sa.Column("labels", sa.Text, nullable=False, server_default="{}"))
    _label()
    added = {"media_type": series, "expires_ms": nothing}
    _replace("endpoints", "endpoint", ("ix_endpoints_sequence", ["sequence"]), added)
    _replace("history", "sequence", ("ix_history_endpoint_version", ["endpoint", "version"]), {"media_type": series})
