"""Migrate the database to the tables of this release, at every start, or back to those of an earlier one."""

import logging
from pathlib import Path
from typing import Final

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection

from services.data.errors import DataError

_MIGRATIONS: Final = Path(__file__).parent / "migrations"


def revision_of(connection: Connection) -> str | None:
    """The revision of the tables; None when there are none."""
    return MigrationContext.configure(connection).get_current_revision()


def check_known(connection: Connection) -> None:
    """Raises DataError: the database is of a later release."""
    _check_known(_config(connection), revision_of(connection))


def upgrade(connection: Connection, revision: str = "head") -> None:
    """Run the migrations that the database has not seen, up to a revision, within the transaction of ``connection``.

    Raises:
        DataError: the database is of a later release.
    """
    config = _config(connection)
    for found in (revision_of(connection), revision):
        _check_known(config, found)
    command.upgrade(config, revision)


def downgrade(connection: Connection, revision: str) -> None:
    """Take migrations back to a ``revision``, within the transaction of ``connection``; ``base`` removes everything."""
    command.downgrade(_config(connection), revision)


def _check_known(config: Config, revision: str | None) -> None:
    known = {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}
    if revision not in {None, "head", *known}:
        raise DataError(f"the store has tables of a later release (revision {revision}): this one cannot read them")


def _config(connection: Connection) -> Config:
    logging.getLogger("alembic").setLevel(logging.WARNING)
    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    config.attributes["connection"] = connection
    return config
