"""A full disk and a locked database: 503, nothing half-applied, reads continue, and the store recovers by itself."""

import asyncio
import contextlib
import sqlite3
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest

from tests.integration.data.process import AT_ONCE_S, HOUR, DataProcess, bulk, serving, until
from tests.support.patience import PATIENCE_S


@contextlib.contextmanager
def _lock(database: Path) -> Iterator[None]:
    connection = sqlite3.connect(database, isolation_level=None)
    try:
        connection.execute("BEGIN IMMEDIATE")
        yield
        connection.execute("ROLLBACK")
    finally:
        connection.close()


@pytest.fixture
async def process(tmp_path: Path) -> AsyncIterator[DataProcess]:
    # Long enough for a read to be over while writes still wait, on a machine that stands still for a second or two.
    async with serving(tmp_path / "state", BUSY_TIMEOUT="4") as process:
        yield process


async def test_a_locked_database_is_503_for_writes_alone_and_passes(process: DataProcess) -> None:
    database = process.state_dir / "data.db"
    async with httpx.AsyncClient(base_url=process.url, headers=process.write, timeout=PATIENCE_S) as http:
        assert (await http.put("/v1/data", json=bulk({"/a": 1, "/b": 1}))).status_code == 200
        with _lock(database):
            writes = [http.put("/v1/data", json=bulk({"/a": 2, f"/new{n}": 2})) for n in range(3)]
            waiting = asyncio.gather(*writes)
            await asyncio.sleep(0.1)
            began = time.monotonic()
            assert (await http.get("/v1/data/b")).status_code == 200
            # Writes that were refused before the read was sent, because this process stood still, tell nothing.
            assert not waiting.done() or time.monotonic() - began < AT_ONCE_S, "a read waited for the lock"
            for answer in await waiting:
                assert answer.status_code == 503
                assert answer.headers["retry-after"] == "2"
                assert answer.json()["code"] == "store_unavailable"
                assert "locked" in answer.json()["detail"]
            await until(http, f"{process.internal}/readyz", 503)
            assert (await http.get("/v1/data/a")).json()["points"] == [{"time": HOUR, "value": 1}]
        # Detected without a write.
        await until(http, f"{process.internal}/readyz", 200)
        assert (await http.get("/v1/data/new0")).status_code == 404
        assert (await http.put("/v1/data", json=bulk({"/a": 2}))).json()["accepted"][0]["changed"]


async def test_a_lock_released_in_time_only_delays(tmp_path: Path) -> None:
    async with (
        serving(tmp_path / "state") as process,
        httpx.AsyncClient(base_url=process.url, headers=process.write, timeout=PATIENCE_S) as http,
    ):
        with _lock(process.state_dir / "data.db"):
            waiting = asyncio.create_task(http.put("/v1/data", json=bulk({"/a": 1})))
            await asyncio.sleep(0.15)
            assert not waiting.done()
        assert (await waiting).status_code == 200


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", disk], check=False).returncode:
        pytest.skip("a tmpfs cannot be mounted here")
    try:
        yield disk
    finally:
        subprocess.run(["umount", disk], check=True)


def _fill(disk: Path) -> Path:
    filler = disk / "filler"
    with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
        while file.write(b"x" * 4096):
            pass
    return filler


def _large(endpoint: str, value: float) -> dict[str, object]:
    points = [
        {"time": f"2026-01-{day:02d}T{hour:02d}:00:00Z", "value": value} for day in range(1, 31) for hour in range(24)
    ]
    return {"endpoint": endpoint, "unit": "MW", "resolution": "PT1H", "points": points}


@pytest.mark.root
async def test_a_full_disk_is_503_and_passes_without_a_restart(tmp_path: Path, small_disk: Path) -> None:
    database = small_disk / "data.db"
    async with (
        serving(tmp_path / "state", DATABASE_URL=f"sqlite:///{database}") as process,
        httpx.AsyncClient(base_url=process.url, headers=process.write, timeout=PATIENCE_S) as http,
    ):
        assert (await http.put("/v1/data", json=bulk({"/a": 1}))).status_code == 200
        filler = _fill(small_disk)
        refused = None
        accepted: dict[str, int] = {}
        for number in range(40):  # the log has some room left
            body = {"datasets": [_large(f"/e{index}", number) for index in range(5)]}
            refused = await http.put("/v1/data", json=body)
            if refused.status_code != 200:
                break
            accepted = {one["endpoint"]: one["version"] for one in refused.json()["accepted"]}
        assert refused is not None
        assert refused.status_code == 503
        assert "retry-after" in refused.headers
        assert "full" in refused.json()["detail"]
        # What was accepted is there, what was refused is not, not even in part.
        listed = (await http.get("/v1/endpoints")).json()["endpoints"]
        assert {entry["endpoint"]: entry["version"] for entry in listed if entry["endpoint"] != "/a"} == accepted
        assert (await http.get("/v1/data/a")).json()["points"][0]["value"] == 1
        for endpoint, version in accepted.items():
            assert (await http.get(f"/v1/data{endpoint}")).json()["version"] == version
        filler.unlink()
        await until(http, f"{process.internal}/readyz", 200)
        again = await http.put("/v1/data", json={"datasets": [_large("/e0", 99)]})
        assert again.status_code == 200
        assert (await http.get("/v1/data/e0")).json()["points"][0]["value"] == 99
        await process.end()
    with contextlib.closing(sqlite3.connect(database)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
