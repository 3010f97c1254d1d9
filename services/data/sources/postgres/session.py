"""Sessions with the database of a source, and what its errors mean."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import asyncpg  # type: ignore[import-untyped]  # no type information is published for it

from diem.process.auth import BadKeyFile, read_secret
from services.data.sources.postgres.table import PostgresConfig
from services.data.sources.postgres.values import SETTINGS
from services.data.sources.records.attempts import InputFailed

CONNECT_S: Final = 10
KEEPALIVE: Final[Mapping[str, str]] = {
    "tcp_keepalives_idle": "5",
    "tcp_keepalives_interval": "2",
    "tcp_keepalives_count": "3",
}
"""The server ends the session of a vanished machine within 11 s."""


def secret(config: PostgresConfig) -> dict[str, str]:
    """Return the password, if there is one, as an argument of a connection; raises InputFailed."""
    if config.password is None:
        return {}
    try:
        return {"password": read_secret(Path(config.password.file))}
    except BadKeyFile as error:
        raise InputFailed(f"password: {error.path}: {error.reason}") from None


def settings(config: PostgresConfig) -> dict[str, str]:
    """Return the settings of every session."""
    return {**SETTINGS, **KEEPALIVE, "application_name": f"diem {config.name}"}


async def connect(config: PostgresConfig) -> Any:  # noqa: ANN401  # asyncpg's connection
    """Open a session; raises InputFailed."""
    password, kept = secret(config), settings(config)
    with failures("the database cannot be reached"):
        try:
            return await asyncpg.connect(
                config.url, **password, timeout=CONNECT_S, server_settings=kept, statement_cache_size=0
            )
        except asyncpg.InvalidAuthorizationSpecificationError as error:
            hint = ""
            if isinstance(error, asyncpg.InvalidPasswordError):
                hint = f": {'is the file of the key password right' if password else 'is the key password missing'}?"
            raise InputFailed(f"the database refuses the login: {error.args[0]}{hint}") from error


async def history(session: Any) -> str:  # noqa: ANN401  # asyncpg's connection
    """Return the identifier of the database and its timeline; raises InputFailed.

    A standby that takes over begins another timeline. It may lack the last transactions, and use their ids again.
    """
    query = (
        "SELECT system_identifier || '-' || ltrim(left(pg_walfile_name(pg_current_wal_insert_lsn()), 8), '0')"
        " FROM pg_control_system()"
    )
    with failures("the database cannot be read"):
        return str(await session.fetchval(query))


@contextmanager
def failures(what: str) -> Iterator[None]:
    """Raise InputFailed for errors of the database and the network."""
    try:
        yield
    except (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError) as error:
        text = (str(error) or type(error).__name__).partition("\n")[0]
        raise InputFailed(f"{what}: {text}") from error
