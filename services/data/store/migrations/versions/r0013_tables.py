"""The tables of the first release."""

from alembic import op

from services.data.store.tables import CHECKPOINTS, METADATA

revision = "0013"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the tables; a migration that changes them freezes them here."""
    tables = [table for table in METADATA.sorted_tables if table is not CHECKPOINTS]
    METADATA.create_all(op.get_bind(), tables, checkfirst=False)
