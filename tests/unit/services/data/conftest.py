"""A Data Service's REST interface in the test's own process: real store, no sockets."""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx
import pytest
from sqlalchemy import create_engine

from diem.process.auth import SharedKey
from diem.process.clock import ManualClock
from services.data.access.access import Access
from services.data.access.keys import ApiKeys
from services.data.access.plans import AccessPlans
from services.data.api import Api, ApiOptions, make_api
from services.data.store import tables
from services.data.store.sqlite import SqliteDatabase
from services.data.store.store import Store
from tests.support.file_threads import FILES
from tests.support.new_store import new_store

WRITE_KEY = "a-write-key-of-the-tests"
HOUR = "2026-01-01T00:00:00Z"
BODY = {"unit": "MW", "resolution": "PT1H", "points": [{"time": HOUR, "value": 5}]}

_lock = SqliteDatabase.lock


@cache
def _new_database() -> bytes:
    """An SQLite database with the tables of this release and nothing in them."""
    with TemporaryDirectory() as directory:
        file = Path(directory) / "data.db"
        engine = create_engine(f"sqlite:///{file}")
        with engine.begin() as connection:
            tables.upgrade(connection)
        engine.dispose()
        return file.read_bytes()


async def _lock_new_database(self: SqliteDatabase, *, wait: bool = True) -> None:
    is_new = not self.path.exists()
    await _lock(self, wait=wait)
    if is_new:
        self.path.write_bytes(_new_database())


# To make the tables of a new database takes half of the CPU time of opening it, which most of these tests do.
SqliteDatabase.lock = _lock_new_database  # type: ignore[method-assign]


def body(value: float, **changes: Any) -> dict[str, Any]:
    return {**BODY, "points": [{"time": HOUR, "value": value}], **changes}


def assert_problem(response: httpx.Response, status: int, code: str) -> dict[str, Any]:
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    document: dict[str, Any] = response.json()
    assert (document["type"], document["status"], document["code"]) == ("about:blank", status, code)
    assert document["title"]
    assert document["detail"]
    return document


@dataclass
class Rest:
    """Clients with and without the write key, and the store, clock and page behind them."""

    store: Store
    clock: ManualClock
    page: Path
    make: Callable[..., httpx.AsyncClient]
    api: Callable[..., Api]
    """Returns the interface with other options."""

    @property
    def writer(self) -> httpx.AsyncClient:
        return self.make(headers={"Authorization": f"Bearer {WRITE_KEY}"})

    @property
    def reader(self) -> httpx.AsyncClient:
        return self.make()


@pytest.fixture
async def rest(tmp_path: Path) -> AsyncIterator[Rest]:
    """The interface, with one endpoint, ``/owned``, that a source claims."""
    clock = ManualClock(wall_ms=1_700_000_000_000)
    store = await Store.open(new_store(tmp_path / "data.db"), clock=clock)
    base = ApiOptions(dataset_bytes=65536, page_dir=tmp_path / "dist", servers=[{"port": 8101, "path": "/ws"}])

    def owner_of(endpoint: str) -> str | None:
        return "market" if endpoint == "/owned" else None

    def api(
        access: Access | None = None, plans: AccessPlans | None = None, of: Store | None = None, **options: Any
    ) -> Api:
        if plans is not None:
            access = Access(plans, ApiKeys(), store, clock)
        return make_api(
            of or store, SharedKey(WRITE_KEY), owner_of, replace(base, **options), clock, access=access, files=FILES
        )

    def make(
        *, client: str = "127.0.0.1", options: dict[str, Any] | None = None, access: Access | None = None, **more: Any
    ) -> httpx.AsyncClient:
        transport = httpx.ASGITransport(
            api(access, **(options or {})).app, raise_app_exceptions=False, client=(client, 50000)
        )
        return httpx.AsyncClient(transport=transport, base_url="http://localhost:8080", **more)

    async with store.serving():
        yield Rest(store, clock, tmp_path / "dist", make, api)
