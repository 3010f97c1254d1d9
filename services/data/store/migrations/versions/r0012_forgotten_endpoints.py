"""Sequence up to which deleted endpoints are forgotten."""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column; none is forgotten yet."""
    op.add_column("store", sa.Column("forgotten", sa.BigInteger, nullable=False, server_default="0"))
