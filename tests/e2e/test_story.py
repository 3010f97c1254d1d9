"""The main job end to end: a file changes at its source, and the browsers that look at it show the new value."""

import asyncio
import os
import re
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser, Page, expect

from tests.e2e.page import open_page, shows_load, stats
from tests.e2e.served import csv, served
from tests.support.patience import PATIENCE_S, until
from tests.support.running import Running, running

pytestmark = [pytest.mark.chromium, pytest.mark.asyncio(loop_scope="session")]

CONFIG = """
[[source]]
type = "http"
name = "prices"
url = "{url}/prices.csv"
every = 0.2
endpoint = "/test/prices"
unit = "EUR/MWh"
resolution = "PT1H"

[[source]]
type = "http"
name = "load"
url = "{url}/load.csv"
every = 0.2
endpoint = "/test/load"
unit = "MW"
resolution = "PT1H"
"""


async def version_of(page: Page) -> int:
    return int(await page.get_by_test_id("price-view").get_attribute("data-version") or 0)


async def test_a_changed_file_is_shown_by_the_pages_that_look_at_it(tmp_path: Path, browser: Browser) -> None:
    async with served(tmp_path / "files") as files:
        files.write("prices.csv", csv(*range(50, 74)))
        files.write("load.csv", csv(*[4000] * 24))
        async with running(tmp_path, config=CONFIG.format(url=files.url)) as system:
            looking = await open_page(browser, system.page, price="/test/prices", load="/test/load")
            frames: list[str] = []
            elsewhere = await open_page(browser, system.page, price="/test/prices", load="/test/nothing", frames=frames)
            await shows_load(looking, "4000")
            for page in (looking, elsewhere):
                await expect(page.get_by_test_id("price-view")).to_have_attribute("data-version", re.compile("[1-9]"))
            before = await stats(looking)

            files.write("load.csv", csv(*[5678] * 24))
            await shows_load(looking, "5678")

            after = await stats(looking)
            came = after["fetches"] == before["fetches"]
            assert came or os.environ.get("PAGE_DATA") == "off", "the data came with the update"

            price_version = await version_of(looking)
            files.write("prices.csv", csv(*range(80, 104)))
            for page in (looking, elsewhere):
                await expect(page.get_by_test_id("price-view")).not_to_have_attribute(
                    "data-version", str(price_version)
                )
            # The prices came after the load.
            assert any('"/test/prices"' in frame for frame in frames)
            assert not any('"/test/load"' in frame for frame in frames), "who does not look gets no frame"
            # Unchanged files are not read again.
            await until(lambda: files.not_modified)
            await _source_fails_and_recovers(system, files, looking)


async def _source_fails_and_recovers(system: Running, files: Any, page: Page) -> None:
    """A broken file is counted and named; the last good data stays, and the next good file is shown."""
    files.write("load.csv", "time,value\n2026-01-01T00:00:00Z,many\n")
    async with asyncio.timeout(PATIENCE_S):
        while True:
            sources = {source["name"]: source for source in (await system.status("data"))["sources"]}
            if not sources["load"]["ok"]:
                break
            await asyncio.sleep(0.1)
    assert "line 2" in sources["load"]["error"]
    assert sources["prices"]["ok"]
    await shows_load(page, "5678")
    files.write("load.csv", csv(*[6789] * 24))
    await shows_load(page, "6789")


async def test_many_views_of_one_endpoint_make_one_fetch_per_version(tmp_path: Path, browser: Browser) -> None:
    async with running(tmp_path) as system:
        await system.put({"/test/load": 1})
        page = await open_page(browser, system.page, price="/test/load", load="/test/load,/test/load", data="off")
        await shows_load(page, "1")
        before = (await stats(page))["fetches"]["/test/load"]
        for value in range(2, 7):
            await system.put({"/test/load": value})
            await shows_load(page, str(value))
        assert (await stats(page))["fetches"]["/test/load"] - before == 5
