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
