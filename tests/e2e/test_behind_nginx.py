"""The page behind nginx, which sends it to one of two servers."""

from pathlib import Path

import pytest
from playwright.async_api import Browser

from tests.e2e.page import open_page, shows_load
from tests.support.nginx import needs_nginx
from tests.support.running import running

pytestmark = [pytest.mark.chromium, pytest.mark.asyncio(loop_scope="session"), needs_nginx]


async def test_the_page_follows_through_nginx_and_comes_back_when_its_server_is_gone(
    tmp_path: Path, browser: Browser
) -> None:
    async with running(tmp_path, "x-broadcast", servers=2) as system:
        await system.put({"/test/load": 100})
        page = await open_page(browser, system.page, price="/test/load", load="/test/load")
        await shows_load(page, "100")
        await system.put({"/test/load": 200})
        await shows_load(page, "200")

        # The page's own server is gone: it comes back through nginx, to the other one if need be.
        for name in ("websocket-1", "websocket-2"):
            if (await system.status(name))["clients"]:
                system.kill(name)
        await system.put({"/test/load": 300})
        await shows_load(page, "300")
