"""Invariant I1: accepted writes survive a kill -9 in the middle of writing."""

import asyncio
import contextlib
import signal
from pathlib import Path

import httpx
import pytest

from tests.integration.data.process import RESTARTED, DataProcess, bulk, serving
from tests.support.patience import PATIENCE_S

pytestmark = pytest.mark.usefixtures("any_database")
WRITERS, NAMES = 4, 20


async def _write_until_it_dies(process: DataProcess, writer: int, accepted: dict[str, tuple[int, float]]) -> None:
    async with httpx.AsyncClient(base_url=process.url, headers=process.write, timeout=PATIENCE_S) as http:
        number = 0.0
        with contextlib.suppress(httpx.TransportError):
            while True:
                number += 1
                names = [f"/w{writer}/e{index}" for index in range(NAMES)]
                answer = await http.put("/v1/data", json=bulk(dict.fromkeys(names, number)))
                assert answer.status_code == 200, answer.text
                for one in answer.json()["accepted"]:
                    accepted[one["endpoint"]] = (one["version"], number)


async def _assert_there(process: DataProcess, accepted: dict[str, tuple[int, float]]) -> None:
    async with httpx.AsyncClient(base_url=process.url, timeout=PATIENCE_S) as http:
        for endpoint, (version, value) in accepted.items():
            found = (await http.get(f"/v1/data{endpoint}")).json()
            stored = found["points"][0]["value"]
            # The next write may have been committed although its answer was lost; then all of it was.
            assert (found["version"] == version and stored == value) or (
                found["version"] > version and stored == value + 1
            )


async def test_nothing_accepted_is_lost_by_a_kill_in_the_middle_of_writing(tmp_path: Path) -> None:
    accepted: dict[str, tuple[int, float]] = {}
    stores = set()
    for least in (3, 7, 11):
        async with serving(tmp_path / "state", **RESTARTED) as process:
            await _assert_there(process, accepted)
            async with httpx.AsyncClient(timeout=PATIENCE_S) as http:
                stores.add((await http.get(f"{process.internal}/status", headers=process.shared)).json()["store"])
            accepted.clear()
            writers = [asyncio.create_task(_write_until_it_dies(process, n, accepted)) for n in range(WRITERS)]
            async with asyncio.timeout(PATIENCE_S):
                while len(accepted) < WRITERS * NAMES or min(value for _, value in accepted.values()) < least:
                    await asyncio.sleep(0.01)
            await process.end(signal.SIGKILL)
            await asyncio.gather(*writers)
    async with serving(tmp_path / "state", **RESTARTED) as process:
        await _assert_there(process, accepted)
    assert len(stores) == 1
