"""The tables of the first release."""

from alembic import op

from services.data.store.tables import METADATA

revision = "0013"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the tables; a migration that changes them freezes them here."""
    METADATA.create_all(op.get_bind(), checkfirst=False)
