"""What a page shows while a part of the system is held down, and that it recovers by itself."""

import asyncio
from pathlib import Path

import pytest
from playwright.async_api import Browser, expect

from tests.e2e.page import connected, open_page, shows_load
from tests.support.patience import FACTOR, PATIENCE_S
from tests.support.running import running

pytestmark = [pytest.mark.chromium, pytest.mark.asyncio(loop_scope="session")]

HELD_S = 6.0
"""Time for which the server is held down."""
MORE_S = 2.0
"""Time for which the Data Service hangs after the page has said so."""
NOT_LIVE_S = 25.0
"""The server hears nothing for 10 s, then the page is drawn; server and browser may each stand still for seconds."""
UNWATCHED = ("--time-factor", str(4 * FACTOR))
"""A process that hangs is killed after 48 s, which is after this test."""


@pytest.mark.takes(30)
async def test_the_page_says_so_while_the_server_or_the_data_service_is_down_and_recovers(
    tmp_path: Path, browser: Browser
) -> None:
    async with running(tmp_path, options=UNWATCHED) as system:
        await system.put({"/test/load": 100})
        page = await open_page(browser, system.page, price="/test/load", load="/test/load")
        await shows_load(page, "100")
        badge = page.get_by_test_id("connection")

        # The server is gone: killed again whenever the supervisor has restarted it.
        loop = asyncio.get_running_loop()
        until, said_so = loop.time() + HELD_S, False
        while loop.time() < until:
            system.kill_if_running("websocket-1")
            said_so = said_so or await badge.get_attribute("data-state") != "open"
            await asyncio.sleep(0.1)
        assert said_so, "the page must say that the connection is lost"
        await shows_load(page, "100")
        await system.put({"/test/load": 200})
        await shows_load(page, "200")
        await connected(page)

        # The Data Service hangs: the server is there but hears nothing.
        with system.stopped("data"):
            await expect(badge).to_have_attribute("data-live", "false", timeout=NOT_LIVE_S * FACTOR * 1000)
            assert await badge.get_attribute("data-state") == "open"
            await asyncio.sleep(MORE_S)
            await shows_load(page, "200")
        await expect(badge).to_have_attribute("data-live", "true")
        await system.put({"/test/load": 300})
        await shows_load(page, "300")


async def test_a_wiped_store_ends_at_the_new_data(tmp_path: Path, browser: Browser) -> None:
    async with running(tmp_path) as system:
        await system.put({"/test/load": 1, "/test/other": 1})
        page = await open_page(browser, system.page, price="/test/other", load="/test/load")
        await shows_load(page, "1")
        pid = system.pid("data")
        # Its successor must not open the files that are about to go.
        with system.down("data"):
            for file in system.state_dir.glob("*.db*"):
                file.unlink()
        async with asyncio.timeout(PATIENCE_S):
            while system.processes["data"]["pid"] in {None, pid} or not await system.answers():
                await asyncio.sleep(0.1)
        assert (await system.put({"/test/load": 42})).status_code == 200
        await shows_load(page, "42")
