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


def downgrade() -> None:
    """Remove it."""
    with op.batch_alter_table("store") as table:
        table.drop_column("version_floor")
