"""Expiry and last use of keys, and write keys."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns; existing keys are for reading, and do not expire."""
    for column in (
        sa.Column("expires_ms", sa.BigInteger, nullable=True),
        sa.Column("last_used_ms", sa.BigInteger, nullable=True),
        sa.Column("writes", sa.SmallInteger, nullable=False, server_default="0"),
        sa.Column("prefixes", sa.Text, nullable=False, server_default=""),
        sa.Column("per_minute", sa.Integer, nullable=True),
    ):
        op.add_column("api_keys", column)


def downgrade() -> None:
    """Remove them, and the keys unlimited in earlier releases: write keys, expiring keys."""
    op.execute("DELETE FROM key_days WHERE key_id IN (SELECT id FROM api_keys WHERE expires_ms IS NOT NULL)")
    op.execute("DELETE FROM api_keys WHERE writes = 1 OR expires_ms IS NOT NULL")
    with op.batch_alter_table("api_keys") as table:
        for name in ("per_minute", "prefixes", "writes", "last_used_ms", "expires_ms"):
            table.drop_column(name)
