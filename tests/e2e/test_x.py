"""The page on the X axis: through nginx, with Kafka between the Data Service and two servers."""

import asyncio
from pathlib import Path

import pytest
from playwright.async_api import Browser, expect

from deploy.kafka.program import KafkaProgram
from tests.e2e.page import open_page, shows_load
from tests.support.nginx import needs_nginx
from tests.support.patience import FACTOR
from tests.support.running import running

pytestmark = [pytest.mark.chromium, pytest.mark.asyncio(loop_scope="session"), needs_nginx]

STOPPED = 17.0
"""Seconds for which Kafka hangs at least: pages are told within 15 of them."""


@pytest.mark.takes(30)
async def test_the_page_follows_through_nginx_and_says_when_kafka_is_away(
    tmp_path: Path, browser: Browser, kafka_program: KafkaProgram
) -> None:
    async with running(tmp_path, "x", servers=2) as system:
        await system.put({"/test/load": 100})
        page = await open_page(browser, system.page, price="/test/load", load="/test/load")
        await shows_load(page, "100")
        await system.put({"/test/load": 200})
        await shows_load(page, "200")

        # Kafka hangs. What is accepted meanwhile waits in the store, and pages know that they may be behind.
        badge = page.get_by_test_id("connection")
        with system.stopped("kafka-1"):
            began = asyncio.get_running_loop().time()
            assert (await system.put({"/test/load": 300})).status_code == 200
            await expect(badge).to_have_attribute("data-live", "false", timeout=20_000 * FACTOR)
            assert await badge.get_attribute("data-state") == "open"
            await asyncio.sleep(began + STOPPED - asyncio.get_running_loop().time())
        await shows_load(page, "300")
        await expect(badge).to_have_attribute("data-live", "true")

        # The page's own server is gone: it comes back through nginx, to the other one if need be.
        for name in ("websocket-1", "websocket-2"):
            if (await system.status(name))["clients"]:
                system.kill(name)
        await system.put({"/test/load": 400})
        await shows_load(page, "400")
