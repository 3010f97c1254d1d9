"""Idempotency keys belong to the write key that used them."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def _rebuild(*key: str, columns: str) -> None:
    """Replace the table with one of another primary key: SQLite cannot change an existing one."""
    op.create_table(
        "requests_new",
        sa.Column("key", sa.String(255), primary_key="key" in key),
        *([sa.Column("writer", sa.String(8), primary_key=True)] if "writer" in key else []),
        sa.Column("digest", sa.LargeBinary, nullable=False),
        sa.Column("answer", sa.LargeBinary, nullable=False),
        sa.Column("created_ms", sa.BigInteger, nullable=False),
    )
    op.execute(f"INSERT INTO requests_new SELECT {columns} FROM requests")  # noqa: S608  # constants
    op.drop_table("requests")
    op.rename_table("requests_new", "requests")
    op.create_index("ix_requests_created_ms", "requests", ["created_ms"])


def upgrade() -> None:
    """Add the column; existing keys are those of the key file."""
    _rebuild("key", "writer", columns="key, '', digest, answer, created_ms")
    op.create_index("ix_requests_writer_created_ms", "requests", ["writer", "created_ms"])


def downgrade() -> None:
    """Remove it, and the keys of write keys, which earlier releases would share."""
    op.execute("DELETE FROM requests WHERE writer <> ''")
    _rebuild("key", columns="key, digest, answer, created_ms")
