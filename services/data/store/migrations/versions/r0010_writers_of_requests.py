"""Idempotency keys belong to the write key that used them."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column; existing keys are those of the key file."""
    # A new table: SQLite cannot change the primary key of an existing one.
    op.create_table(
        "requests_new",
        sa.Column("key", sa.String(255), primary_key=True),
        sa.Column("writer", sa.String(8), primary_key=True),
        sa.Column("digest", sa.LargeBinary, nullable=False),
        sa.Column("answer", sa.LargeBinary, nullable=False),
        sa.Column("created_ms", sa.BigInteger, nullable=False),
    )
    op.execute("INSERT INTO requests_new SELECT key, '', digest, answer, created_ms FROM requests")
    op.drop_table("requests")
    op.rename_table("requests_new", "requests")
    op.create_index("ix_requests_created_ms", "requests", ["created_ms"])
    op.create_index("ix_requests_writer_created_ms", "requests", ["writer", "created_ms"])
