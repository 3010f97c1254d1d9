"""Area and quantity of endpoints, and the history of versions."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

COLUMNS = (("area", 64), ("quantity", 32))


def upgrade() -> None:
    """Add the columns area and quantity, and make the table history."""
    added = [sa.Column(name, sa.String(length), nullable=False, server_default="") for name, length in COLUMNS]
    if op.get_bind().dialect.name == "sqlite":
        # Before the content: SQLite must read through it to reach later columns.
        with op.batch_alter_table("endpoints", recreate="always") as table:
            for column in added:
                table.add_column(column, insert_before="digest")
    else:
        for column in added:
            op.add_column("endpoints", column)
    op.create_table(
        "history",
        sa.Column(
            "sequence", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True, autoincrement=False
        ),
        sa.Column("endpoint", sa.String(256), nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("kind", sa.SmallInteger, nullable=False),
        sa.Column("changed_ms", sa.BigInteger, nullable=False),
        sa.Column("content", sa.LargeBinary, nullable=False),
    )
    op.create_index("ix_history_endpoint_version", "history", ["endpoint", "version"], unique=True)
