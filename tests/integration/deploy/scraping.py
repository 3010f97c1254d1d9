"""What a monitoring system gets from a running `diem up` with the key that it is given, and what it does not get."""

import asyncio
from typing import Any, Final

import httpx

from deploy.system import control
from deploy.system.scrape_targets import scrape_targets
from deploy.system.state_dir import StateDir
from diem.links.internal import ROLES
from diem.process.auth import SharedKey
from services.composite.control import PATH as SCALING
from tests.integration.deploy.running import Running
from tests.support.internal import http_client
from tests.support.metrics import check_metrics
from tests.support.patience import PATIENCE_S

OPENED: Final = frozenset({"/metrics", "/status"})
OTHERS: Final = sorted({*ROLES, "/v1/keys", "/v1/plans", "/v1/plans/apply", SCALING} - OPENED)


async def status_of(running: Running) -> dict[str, Any]:
    """Return the status with the children of composites, once no process with an internal listener lacks a report."""
    state = StateDir(running.cwd / ".diem")
    async with asyncio.timeout(PATIENCE_S):
        while True:
            status = await control.request(state, "status")
            if all(each["report"] for each in status["processes"] if each["urls"].get("internal")):
                return status
            await asyncio.sleep(0.25)


def scrape_key(running: Running) -> SharedKey:
    """Return the key in `metrics.key`."""
    return SharedKey.load(running.cwd / ".diem" / "metrics.key")


async def check_scrapes(running: Running) -> dict[str, Any]:
    """Check that every process exposes the documented metrics to the holder of `metrics.key`; return the status."""
    status = await status_of(running)
    await check_metrics(status, scrape_key(running).header)
    return status


async def check_key_opens_nothing_else(running: Running) -> set[str]:
    """Check what `metrics.key` opens at one process of each kind; return the kinds."""
    key = scrape_key(running)
    status = await status_of(running)
    addresses = {target.labels["process"]: target.address for target in scrape_targets(status)}
    bearer = {"Authorization": key.header}
    async with (
        http_client(key) as proving,
        httpx.AsyncClient(trust_env=False, timeout=PATIENCE_S, headers=bearer) as plain,
    ):
        for process, address in addresses.items():
            found = {path: (await proving.get(f"http://{address}{path}")).status_code for path in OTHERS}
            assert found == dict.fromkeys(OTHERS, 403), process
            for path in OPENED:
                assert (await plain.get(f"http://{address}{path}")).status_code == 200, (process, path)
            for path in ("/feed", "/v1/keys"):
                assert (await plain.get(f"http://{address}{path}")).status_code == 401, (process, path)
        assert (await proving.post(f"http://{addresses['data']}/v1/keys", json={})).status_code == 403
        assert (await plain.put(f"{status['urls']['rest']}/data", json={"datasets": []})).status_code == 401
    return {*addresses}
