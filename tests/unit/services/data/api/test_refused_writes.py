"""What the Data Service answers about an endpoint: its version, its neighbours, and the last refused write."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette

from diem.process.clock import SystemClock
from services.data import kinds
from services.data.api import refused_writes
from services.data.api.refused_writes import MAX_DETAIL, MAX_REFUSED, NEIGHBOURS, endpoint_route
from services.data.kinds import DOCUMENT, Body
from services.data.store.store import Store
from tests.support.new_store import new_store


@pytest.fixture
async def http(tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    store = await Store.open(new_store(tmp_path / "data.db"), clock=SystemClock())
    async with store.serving():
        names = [f"/n/{n:04}" for n in range(3 * NEIGHBOURS)]
        await store.writer.put([kinds.kind_of(DOCUMENT).parse(name, Body(b"1", DOCUMENT, {})) for name in names])
        app = Starlette(routes=[endpoint_route(store, lambda name: "plant" if name == "/n/0000" else None)])
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://internal") as client:
            yield client


async def known(http: httpx.AsyncClient, name: str) -> dict[str, Any]:
    found: dict[str, Any] = (await http.get(f"/v1/endpoints{name}")).json()
    return found


def refuse(name: str, detail: str, method: str = "PUT") -> None:
    refused_writes.record({"method": method, "path": f"/v1/data{name}"}, detail)


async def test_stored_endpoint_has_version_and_source_and_a_missing_one_its_neighbours(http: httpx.AsyncClient) -> None:
    stored = await known(http, "/n/0000")
    assert stored["version"] > 0
    assert (stored["gone"], stored["source"], stored["near"]) == (False, "plant", [])
    missing = await known(http, f"/n/{NEIGHBOURS:04}x")
    assert (missing["version"], missing["time"], missing["source"]) == (None, None, None)
    assert len(missing["near"]) == 2 * NEIGHBOURS
    assert f"/n/{NEIGHBOURS:04}" in missing["near"]


async def test_last_refused_write_is_kept_and_their_number_is_bounded(http: httpx.AsyncClient) -> None:
    refuse("/n/0001", "first")
    refuse("/n/0001", "second" * MAX_DETAIL)
    refuse("/n/0002", "a read", method="GET")
    assert (await known(http, "/n/0001"))["refused"]["detail"] == ("second" * MAX_DETAIL)[:MAX_DETAIL]
    assert (await known(http, "/n/0002"))["refused"] is None
    for n in range(MAX_REFUSED):
        refuse(f"/other/{n}", "no")
    assert (await known(http, "/n/0001"))["refused"] is None
