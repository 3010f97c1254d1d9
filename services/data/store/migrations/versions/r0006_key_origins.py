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
