"""The version above which endpoints begin."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column."""
    op.add_column("store", sa.Column("version_floor", sa.BigInteger, nullable=False, server_default="0"))
