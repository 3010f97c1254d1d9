"""The publisher's knowledge of each partition's log."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column; without it, everything is published again at the next start."""
    op.add_column("publisher", sa.Column("logs", sa.Text, nullable=False, server_default=""))
