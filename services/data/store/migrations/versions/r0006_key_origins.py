"""Origins whose pages may use an API key."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column; existing keys are for pages of every origin."""
    op.add_column("api_keys", sa.Column("origins", sa.Text, nullable=False, server_default=""))


def downgrade() -> None:
    """Remove it, and the keys restricted by it."""
    op.execute("DELETE FROM key_days WHERE key_id IN (SELECT id FROM api_keys WHERE origins <> '')")
    op.execute("DELETE FROM api_keys WHERE origins <> ''")
    with op.batch_alter_table("api_keys") as table:
        table.drop_column("origins")
