"""The time by which ages are measured."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column; the first start takes the time of the latest change."""
    op.add_column("store", sa.Column("retention_ms", sa.BigInteger, nullable=False, server_default="0"))
