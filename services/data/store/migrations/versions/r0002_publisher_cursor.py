"""The cursor of the publisher."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the table publisher."""
    op.create_table(
        "publisher",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("source", sa.String(255), nullable=False),
        sa.Column("sequence", sa.BigInteger, nullable=False),
    )
