"""The page on the Z axis: it finds the owners itself (z-client), or a composite's proxy does it for the page."""

import asyncio
from pathlib import Path

import pytest
from playwright.async_api import Browser, expect

from tests.e2e.page import open_page, shows_load
from tests.support.patience import PATIENCE_S
from tests.support.required import in_cluster
from tests.support.running import Running, running

pytestmark = [pytest.mark.chromium, pytest.mark.asyncio(loop_scope="session")]


async def owner(system: Running, endpoint: str) -> str:
    """The name of the process that has an endpoint: while the group shares out its partitions, nobody has it."""
    base = system.described["urls"]["metadata"][0]
    async with asyncio.timeout(PATIENCE_S):
        while True:
            answer = (await system.http.post(f"{base}/locate", json={"endpoints": [endpoint]})).json()
            url = answer["endpoints"][endpoint]["owner"]
            if url is not None:
                (name,) = (name for name, process in system.processes.items() if process["urls"]["public"] == url)
                return name
            await asyncio.sleep(0.1)


@pytest.mark.takes(25)
async def test_the_page_finds_the_owner_and_the_next_one_when_it_is_gone(
    tmp_path: Path, browser: Browser, on_kafka: tuple[str, ...]
) -> None:
    async with running(tmp_path, "z-client", servers=2, options=on_kafka) as system:
        await system.put({"/test/load": 100})
        page = await open_page(browser, system.page, price="/test/load", load="/test/load")
        await shows_load(page, "100")
        await system.put({"/test/load": 200})
        await shows_load(page, "200")
        badge = page.get_by_test_id("connection")
        await expect(badge).to_have_attribute("data-live", "true")

        # Its server and its bridge stay dead: the group gives the partitions to the other one, which has no reader yet.
        name = await owner(system, "/test/load")
        with system.down(name, name.replace("websocket", "bridge")):
            await system.put({"/test/load": 300})
            await shows_load(page, "300")
            async with asyncio.timeout(PATIENCE_S):
                while await owner(system, "/test/load") == name:
                    await asyncio.sleep(0.1)
        await system.put({"/test/load": 400})
        await shows_load(page, "400")


@in_cluster("other tests kill each part of a composite")
async def test_the_page_follows_through_a_composite_while_its_parts_die(
    tmp_path: Path, browser: Browser, on_kafka: tuple[str, ...]
) -> None:
    async with running(tmp_path, "z-composite", servers=2, options=on_kafka) as system:
        await system.put({"/test/load": 100})
        page = await open_page(browser, system.page, price="/test/load", load="/test/load")
        await shows_load(page, "100")
        for number, child in enumerate(("websocket-1", "websocket-2", "metadata", "proxy"), start=2):
            children = (await system.status("composite-1"))["children"]
            (pid,) = (each["pid"] for each in children if each["name"].startswith(child))
            system.kill_pid(pid)
            await system.put({"/test/load": number * 100})
            await shows_load(page, str(number * 100))
