"""Thesis 6.1: a burst faster than any view reads. Polling views lose updates; subscribed views end at the latest."""

import asyncio
import contextlib
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.async_api import Browser, Page

from tests.support.patience import PATIENCE_S
from tests.support.running import Running, running

pytestmark = [pytest.mark.chromium, pytest.mark.asyncio(loop_scope="session")]

ENDPOINTS = [f"/burst/{n}" for n in range(20)]
SUBSCRIBE = """(endpoints) => {
  window.views = {};
  for (const endpoint of endpoints) {
    window.diem.updates.subscribe(endpoint, (update) => { window.views[endpoint] = update.version; });
  }
}"""


async def _burst(system: Running) -> dict[str, int]:
    """Change every endpoint 10 times as fast as the Data Service takes it; returns the last version of each."""
    latest: dict[str, int] = {}
    for value in range(1, 11):
        answer = await system.put(dict.fromkeys(ENDPOINTS, value))
        latest = {item["endpoint"]: item["version"] for item in answer.json()["accepted"]}
    return latest


async def _views(page: Page, latest: dict[str, int]) -> dict[str, int]:
    views: dict[str, int] = {}
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(PATIENCE_S):
            while views != latest:
                views = await page.evaluate("window.views")
                await asyncio.sleep(0.1)
    return views


async def test_polling_views_lose_updates_and_subscribed_views_do_not(tmp_path: Path, browser: Browser) -> None:
    script = (Path(__file__).parent / "polling_frontend.js").read_text()
    async with running(tmp_path, "all-to-all") as system:
        page = await browser.new_page()
        await page.goto(system.page)
        url = await page.evaluate(
            "(port) => `ws://${location.hostname}:${port}/ws`", urlsplit(system.websocket_urls[0]).port
        )
        await page.evaluate(
            f"([url, endpoints]) => ({script.rstrip().rstrip(';')})(url, endpoints, 100)", [url, ENDPOINTS]
        )
        await page.evaluate(SUBSCRIBE, ENDPOINTS)
        await asyncio.sleep(1)
        latest = await _burst(system)
        assert len(latest) == len(ENDPOINTS)
        assert await _views(page, latest) == latest, "every subscribed view ends at the latest version"
        await asyncio.sleep(1)
        polled = await page.evaluate("window.polling.seen")
        missed = [endpoint for endpoint in ENDPOINTS if polled.get(endpoint) != latest[endpoint]]
        assert missed, "the double must show the fault that the subscriptions mend"
