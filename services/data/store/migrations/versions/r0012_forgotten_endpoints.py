"""Sequence up to which deleted endpoints are forgotten."""

import uuid

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column; none is forgotten yet."""
    op.add_column("store", sa.Column("forgotten", sa.BigInteger, nullable=False, server_default="0"))


def downgrade() -> None:
    """Remove it; a store that has forgotten endpoints gets a new id, so that readers holding them start over."""
    op.execute(sa.text("UPDATE store SET store_id = :id WHERE forgotten > 0").bindparams(id=str(uuid.uuid4())))
    with op.batch_alter_table("store") as table:
        table.drop_column("forgotten")
