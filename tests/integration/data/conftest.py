"""Fixtures of the tests with a Data Service in a process of its own."""

import pytest

from tests.integration.data import process
from tests.support.databases import Databases


@pytest.fixture
def any_database(databases: Databases, monkeypatch: pytest.MonkeyPatch) -> Databases:
    """Run the test once with its store in SQLite and once in PostgreSQL."""
    monkeypatch.setitem(process.DEFAULTS, "DATABASE_URL", databases.url())
    return databases
