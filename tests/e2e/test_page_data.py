"""Data comes with updates: the page requests none, neither at first nor later; switched off, it fetches as before."""

import asyncio
import os
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, Route, expect

from tests.e2e import small_market
from tests.e2e.page import MINUS, becomes, connected, stats
from tests.e2e.small_market import write
from tests.support.running import Running, running

# The browser and the system are started once, by the worker that runs all of these.
pytestmark = [
    pytest.mark.chromium,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.xdist_group("page-data"),
    pytest.mark.takes(10),
]

SECONDS = float(os.environ.get("PAGE_SECONDS", "3"))
"""How long each page is updated."""

# The day by the quarter is a little longer than 4 KiB.
CONFIG = "".join(
    f'[[inline]]\nprefix = "{prefix}"\nmax_bytes = 16384\n'
    for prefix in ("/dam", "/load", "/imbalance", "/generation", "/flows")
)
LOAD = '[data-endpoint="/load/GR"] [data-testid="load-value"]'
NAMES = [dataset["endpoint"] for dataset in small_market.market()]
# A subscription without a reply for two seconds is followed by a request: none may be without its data.
ALL_SHOWN = f"""window.diem.updates.subscriptions > 9 && window.diem.data.health.value.reachable
  && {NAMES}.every((name) => !window.diem.updates.isWatched(name) || window.diem.data.held(name) > 0)"""


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def module_system(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Running]:
    """A system that sends all data of the small market with its updates."""
    async with running(tmp_path_factory.mktemp("system"), config=CONFIG) as system:
        yield system


class Requests:
    """The requests of a page for data, by endpoint; with ``refused``, none is answered."""

    def __init__(self, *, refused: bool) -> None:
        self.endpoints: list[str] = []
        self._refused = refused

    async def route(self, route: Route) -> None:
        self.endpoints.append(urlsplit(route.request.url).path.removeprefix("/v1/data"))
        await (route.abort() if self._refused else route.continue_())


async def look(browser: Browser, market: Running, query: str, *, refused: bool) -> tuple[Page, Requests]:
    page = await browser.new_page(viewport={"width": 1280, "height": 2400})
    requests = Requests(refused=refused)
    await page.route("**/v1/data/**", requests.route)
    await page.goto(f"{market.page}{query}#zone=GR")
    await connected(page)
    await expect(page.get_by_test_id("price-view").locator(".low b")).to_have_text("80.00")
    await expect(page.get_by_test_id("renewable")).to_have_text("67 %")
    await expect(page.locator('[data-from="GR"][data-to="BG"]')).to_have_text(f"{MINUS}300")
    await expect(page.locator(LOAD)).to_have_text("5000")
    await becomes(page, ALL_SHOWN)
    return page, requests


async def update(page: Page, market: Running) -> int:
    """Write new loads, one after the other is shown; returns how many. The last one is as at first."""
    count = 0
    end = asyncio.get_running_loop().time() + SECONDS
    while count < 3 or asyncio.get_running_loop().time() < end:
        count += 1
        value = 5000 + count % 97
        await write(market, small_market.load("GR", value), small_market.flow("GR", "BG", 300 + count % 97))
        await expect(page.locator(LOAD)).to_have_text(str(value))
    return count


@pytest.mark.skipif(os.environ.get("PAGE_DATA") == "off", reason="servers send no data")
async def test_the_page_shows_its_market_and_every_update_without_a_request_for_data(
    browser: Browser, market: Running
) -> None:
    page, requests = await look(browser, market, "", refused=True)
    before = list(requests.endpoints)  # on a slow machine the page does not wait for its server, and is refused
    count = await update(page, market)
    assert requests.endpoints == before
    assert (await stats(page))["updateFrames"] >= count


async def test_with_data_of_updates_off_the_page_fetches_each_version_once(browser: Browser, market: Running) -> None:
    page, requests = await look(browser, market, "?data=off", refused=False)
    before = requests.endpoints.count("/load/GR")
    assert set(requests.endpoints) >= {"/dam/prices/GR", "/load/GR", "/generation/GR/solar", "/flows/GR/BG"}
    count = await update(page, market)
    assert requests.endpoints.count("/load/GR") - before == count
