"""Brings the database to the tables of this release; run at every start."""

import logging
from pathlib import Path
from typing import Final

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection

_MIGRATIONS: Final = Path(__file__).parent / "migrations"


def upgrade(connection: Connection) -> None:
    """Run the migrations that the database has not seen, within the transaction of ``connection``."""
    logging.getLogger("alembic").setLevel(logging.WARNING)
    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
