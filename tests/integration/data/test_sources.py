"""A real HTTP server as a source, through changes, a crash, invalid data and recovery."""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from tests.integration.data.http_readers import HttpReaders
from tests.integration.data.process import HOUR, DataProcess, serving
from tests.support.patience import FACTOR, PATIENCE_S
from tests.support.ports import free_port
from tests.support.small import AS_SERIES
from tests.support.stalls import stalls

SLOWEST_S = 10.0 * FACTOR
"""A change is read and stored within this on any machine; usually within the interval of the source."""


class Upstream:
    """A small HTTP server with two documents; ``hits`` counts full answers, ``unchanged`` the 304s."""

    def __init__(self) -> None:
        self.documents = {
            "/prices.csv": f"time,value\n{HOUR},81.2\n",
            "/load.json": f'[{{"time":"{HOUR}","value":5000}}]',
        }
        self.hits = self.unchanged = 0
        # It comes back on the same one.
        self.port = free_port()
        self._server: asyncio.Server | None = None

    async def up(self) -> None:
        self._server = await asyncio.start_server(self._answer, "127.0.0.1", self.port)

    async def down(self) -> None:
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()
            self._server = None

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        body = self.documents[head.split()[1]]
        etag = f'"{hash(body)}"'
        if f"if-none-match: {etag}" in head.lower():
            self.unchanged += 1
            writer.write(b"HTTP/1.1 304 Not Modified\r\nConnection: close\r\n\r\n")
        else:
            self.hits += 1
            head = f"HTTP/1.1 200 OK\r\nETag: {etag}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
            writer.write((head + body).encode())
        await writer.drain()
        writer.close()


@pytest.fixture
async def upstream() -> AsyncIterator[Upstream]:
    server = Upstream()
    await server.up()
    yield server
    await server.down()


def configured(upstream: Upstream) -> str:
    """Return the configuration of a source for each document."""
    return "".join(
        f"""
        [[source]]
        type = "http"
        name = "{name}"
        url = "http://127.0.0.1:{upstream.port}/{file}"
        every = 0.2
        endpoint = "/{name}"
        unit = "{unit}"
        resolution = "PT1H"
        title = "The {name}"
        """
        for name, file, unit in (("prices", "prices.csv", "EUR/MWh"), ("load", "load.json", "MW"))
    )


@pytest.fixture
async def process(tmp_path: Path, upstream: Upstream) -> AsyncIterator[DataProcess]:
    async with serving(tmp_path / "state", config=configured(upstream)) as process:
        yield process


async def _value(http: httpx.AsyncClient, endpoint: str) -> float | None:
    answer = await http.get(f"/v1/data{endpoint}")
    return float(answer.json()["points"][0]["value"]) if answer.status_code == 200 else None


async def _until_value(http: httpx.AsyncClient, endpoint: str, value: float) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while await _value(http, endpoint) != value:  # another process changes it
            await asyncio.sleep(0.02)


async def _until_ok(process: DataProcess, http: httpx.AsyncClient, name: str, *, ok: bool) -> dict[str, object]:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            status = (await http.get(f"{process.internal}/status", headers=process.shared)).json()
            entry: dict[str, object] = next(source for source in status["sources"] if source["name"] == name)
            if entry["ok"] is ok:
                return entry
            await asyncio.sleep(0.02)


async def test_a_source_is_followed_through_changes_invalid_data_and_outage(
    process: DataProcess, upstream: Upstream
) -> None:
    async with httpx.AsyncClient(base_url=process.url, timeout=PATIENCE_S) as http:
        await _until_value(http, "/prices", 81.2)
        await _until_value(http, "/load", 5000)
        (load, prices) = (await http.get("/v1/endpoints")).json()["endpoints"]
        assert (load["source"], prices["source"], prices["title"]) == ("load", "prices", "The prices")

        upstream.documents["/prices.csv"] = f"time,value\n{HOUR},90\n"
        await _until_value(http, "/prices", 90)

        upstream.documents["/prices.csv"] = f"time,value\n{HOUR},nonsense\n"
        entry = await _until_ok(process, http, "prices", ok=False)
        assert "line 2" in str(entry["error"])
        # The last good data stays, and the other source goes on.
        assert await _value(http, "/prices") == 90
        upstream.documents["/load.json"] = f'[{{"time":"{HOUR}","value":5100}}]'
        await _until_value(http, "/load", 5100)

        await upstream.down()
        await _until_ok(process, http, "load", ok=False)
        assert await _value(http, "/load") == 5100
        upstream.documents["/prices.csv"] = f"time,value\n{HOUR},95\n"
        await upstream.up()
        await _until_value(http, "/prices", 95)
        await _until_ok(process, http, "load", ok=True)
        assert upstream.unchanged > 0
    assert len([line for line in process.log if '"source fails"' in line and '"prices"' in line]) <= 2


async def test_sources_are_followed_while_a_herd_of_readers_has_all_connections(
    tmp_path: Path, upstream: Upstream
) -> None:
    bounds = {"CONNECTIONS": "20", "RESERVED_CONNECTIONS": "2", "CONCURRENT_READS": "4"}
    async with (
        serving(tmp_path / "state", config=configured(upstream), **bounds) as process,
        httpx.AsyncClient(base_url=process.url, headers=process.write, timeout=PATIENCE_S) as http,
    ):
        await _until_value(http, "/prices", 81.2)
        readers = HttpReaders(int(process.serving.result()["port"]), "/v1/data/prices", asking=100, held=50)
        async with stalls() as stalled, readers.running():
            took = []
            for value in range(5):
                start = time.monotonic()
                upstream.documents["/prices.csv"] = f"time,value\n{HOUR},{value}\n"
                await _until_value(http, "/prices", value)
                took.append(time.monotonic() - start)
            deadline = time.monotonic() + PATIENCE_S
            while not readers.have_all_connections:  # another process answers
                assert time.monotonic() < deadline, readers.answers
                await asyncio.sleep(0.02)
    assert max(took) < SLOWEST_S + stalled.seconds


async def test_endpoints_of_a_source_cannot_be_written_and_others_can(process: DataProcess) -> None:
    body = {"unit": "EUR/MWh", "resolution": "PT1H", "points": [{"time": HOUR, "value": 1}]}
    async with httpx.AsyncClient(base_url=process.url, headers=process.write, timeout=PATIENCE_S) as http:
        owned = await http.put("/v1/data/prices", json=body, headers=AS_SERIES)
        assert (owned.status_code, owned.json()["code"]) == (409, "owned_by_source")
        assert "'prices'" in owned.json()["detail"]
        assert (await http.put("/v1/data/prices/other", json=body, headers=AS_SERIES)).status_code == 200
