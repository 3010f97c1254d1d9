"""Both databases of the store as one fixture: its tests run once on each."""

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.patience import PATIENCE_S
from tests.support.postgres import Cluster, programs
from tests.support.required import unavailable
from tests.support.shared import SharedServicesPlugin, Unavailable

BACKENDS = ("sqlite", "postgresql")


class Databases:
    """Databases by name, empty at first; a name means the same database throughout a test."""

    def __init__(self, directory: Path, cluster: Cluster | None) -> None:
        self._directory = directory
        self.cluster = cluster
        self._made: dict[str, str] = {}

    @property
    def backend(self) -> str:
        return "sqlite" if self.cluster is None else "postgresql"

    def url(self, name: str = "data") -> str:
        """Return the URL of a database, which is created if it does not exist."""
        if self.cluster is None:
            from tests.support.new_store import new_store  # noqa: PLC0415  # most tests need no SQLAlchemy

            return new_store(self.file(name))
        return self.cluster.url(self.database(name))

    def file(self, name: str = "data") -> Path:
        """Return the file of an SQLite database."""
        return self._directory / name / "data.db"

    def database(self, name: str = "data") -> str:
        """Return the name of a PostgreSQL database."""
        assert self.cluster is not None
        if name not in self._made:
            self._made[name] = self.cluster.new_database()
        return self._made[name]

    def rows(self, sql: str, name: str = "data") -> list[str]:
        """Return the rows that another program sees in a database, as texts with | between columns."""
        if self.cluster is not None:
            return self.cluster.sql(sql, self.database(name))
        with contextlib.closing(sqlite3.connect(self.file(name), isolation_level=None)) as connection:
            return ["|".join(map(str, row)) for row in connection.execute(sql)]

    def close(self) -> None:
        """Empty the PostgreSQL databases."""
        if self.cluster is not None:
            for database in self._made.values():
                self.cluster.empty(database)


@pytest.fixture(scope="session")
def postgres(shared_services: SharedServicesPlugin) -> Cluster:
    """One server for the whole run, started at the first use. Do not stop it: other tests use it."""
    try:
        there = shared_services.ask("postgres")
    except Unavailable as error:
        unavailable("PostgreSQL", error)
    return Cluster(programs(), Path(there["directory"]), there["port"])


@pytest.fixture(params=BACKENDS)
def databases(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Databases]:
    """Databases for a store; the test runs on SQLite and on PostgreSQL."""
    cluster = request.getfixturevalue("postgres") if request.param == "postgresql" else None
    if cluster is not None:
        # A session that a test has closed has the lock until the server is scheduled: longer than a second, perhaps.
        monkeypatch.setattr("services.data.store.postgres.LOCK_TIMEOUT_S", PATIENCE_S)
    made = Databases(tmp_path / "databases", cluster)
    yield made
    made.close()
