"""Run the migrations with Alembic, which takes a tenth of a second to import: import this only to run them."""

import logging
from pathlib import Path
from typing import Final

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Connection

_MIGRATIONS: Final = Path(__file__).parent / "migrations"


def revisions() -> set[str]:
    """Return the revisions that this release knows."""
    return {script.revision for script in ScriptDirectory.from_config(_config()).walk_revisions()}


def upgrade(connection: Connection, revision: str) -> None:
    """Run the outstanding migrations up to ``revision``, within the transaction of ``connection``."""
    command.upgrade(_config(connection), revision)


def _config(connection: Connection | None = None) -> Config:
    logging.getLogger("alembic").setLevel(logging.WARNING)
    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    config.attributes["connection"] = connection
    return config
