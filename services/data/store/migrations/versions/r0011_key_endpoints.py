"""Endpoint limit of write keys."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column; existing keys have no bound of their own."""
    op.add_column("api_keys", sa.Column("max_endpoints", sa.Integer, nullable=True))
