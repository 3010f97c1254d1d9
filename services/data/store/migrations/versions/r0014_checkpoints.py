"""The table of the sources' checkpoints."""

from alembic import op

from services.data.store.tables import CHECKPOINTS

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the table."""
    CHECKPOINTS.create(op.get_bind())
