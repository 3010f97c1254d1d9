"""Fixtures of the tests with a Data Service in a process of its own."""

from collections.abc import AsyncIterator

import pytest

from tests.integration.data import process
from tests.integration.data.source_bench import CSV
from tests.support.databases import Databases
from tests.support.publisher import Publisher, Reply, published


@pytest.fixture
def any_database(databases: Databases, monkeypatch: pytest.MonkeyPatch) -> Databases:
    """Run the test once with its store in SQLite and once in PostgreSQL."""
    monkeypatch.setitem(process.DEFAULTS, "DATABASE_URL", databases.url())
    return databases


@pytest.fixture
async def publisher() -> AsyncIterator[Publisher]:
    """Run a publisher's server with one table of one point at every address."""
    async with published() as server:
        server.answer = lambda _request: Reply(CSV)
        yield server
