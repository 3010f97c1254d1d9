"""The page's views in a browser: each shows its data and follows it, days can be walked, only what is seen costs."""

import re
from datetime import timedelta
from pathlib import Path

import pytest
from playwright.async_api import Browser, Page, expect

from tests.e2e import small_market
from tests.e2e.page import DASH, MINUS, becomes, connected
from tests.e2e.small_market import write
from tests.support.required import in_cluster
from tests.support.running import Running, running

# The browser and the system are started once, by the worker that runs all of these.
pytestmark = [
    in_cluster("it takes 5 s of CPU time"),
    pytest.mark.chromium,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.xdist_group("page-views"),
    pytest.mark.takes(30),
]

TALL = {"width": 1280, "height": 2400}
PHONE = {"width": 360, "height": 740}
# Whether this visit has written to the browser's database what the next one starts with.
KEPT = """new Promise((resolve) => {
  const opening = indexedDB.open("diem", 2);
  opening.onsuccess = () => {
    const names = opening.result.transaction("datasets").objectStore("datasets").getAllKeys();
    names.onsuccess = () => {
      opening.result.close();
      resolve(["/generation/GR/solar", "/flows/BG/GR", "/dam/prices/GR"].every((name) => names.result.includes(name)));
    };
  };
})"""


async def look(browser: Browser, system: Running, size: dict[str, int], hash_: str = "#zone=GR") -> Page:
    page = await browser.new_page(viewport={"width": size["width"], "height": size["height"]})
    await page.goto(f"{system.page}{hash_}")
    await connected(page)
    return page


async def test_every_view_shows_its_data_and_follows_it(browser: Browser, market: Running) -> None:
    page = await look(browser, market, TALL)
    price = page.get_by_test_id("price-view")
    load = page.locator('[data-endpoint="/load/GR"] [data-testid="load-value"]')
    expected = page.get_by_test_id("forecast-view").locator(".off b")
    solar = page.locator('[data-kind="solar"] [data-testid="mix-value"]')
    flow = page.locator('[data-from="GR"][data-to="BG"]')
    imbalance = page.locator('[data-endpoint="/imbalance/GR"] [data-testid="imbalance-value"]')
    await expect(price.locator(".low b")).to_have_text("80.00")
    await expect(load).to_have_text("5000")
    await expect(expected).to_have_text("0.0 %")
    await expect(solar).to_have_text("1000")
    await expect(page.get_by_test_id("renewable")).to_have_text("67 %")
    await expect(flow).to_have_text(f"{MINUS}300")
    await expect(page.locator('[data-from="BG"][data-to="GR"]')).to_have_text("+300")
    await expect(page.locator('[data-from="BG"][data-testid="position"]')).to_have_text("+600")
    await expect(imbalance).to_have_text("90.00")

    await write(
        market,
        small_market.prices("GR", 20),
        small_market.load("GR", 5500),
        small_market.generation("GR", "solar", 3000),
        small_market.flow("GR", "BG", 450),
        small_market.imbalance("GR", -12.5),
    )
    await expect(price.locator(".low b")).to_have_text("20.00")
    await expect(load).to_have_text("5500")
    await expect(expected).to_have_text("+10.0 %")
    await expect(solar).to_have_text("3000")
    await expect(page.get_by_test_id("renewable")).to_have_text("80 %")
    await expect(flow).to_have_text("+150")
    await expect(imbalance).to_have_text(f"{MINUS}12.50")
    for view in ("price", "load", "forecast", "mix", "flows", "imbalance"):
        await expect(page.get_by_test_id(f"{view}-view").get_by_test_id("age")).to_have_text(re.compile("^updated"))


async def test_views_without_data_are_not_there(tmp_path: Path, browser: Browser) -> None:
    async with running(tmp_path) as system:
        await write(system, small_market.prices("GR"), small_market.load("GR"))
        page = await look(browser, system, TALL)
        await expect(page.get_by_test_id("price-view").locator(".low b")).to_have_text("80.00")
        for view in ("forecast", "mix", "flows", "imbalance"):
            await expect(page.get_by_test_id(f"{view}-view")).to_be_hidden()
            await expect(page.locator(f'.views a[href="#{view}"]')).to_be_hidden()


async def test_days_can_be_walked_and_are_kept_in_the_address(browser: Browser, market: Running) -> None:
    today = small_market.midnight().date()
    tomorrow = today + timedelta(days=1)
    await write(market, small_market.prices("GR"), small_market.prices("BG", 200))
    page = await look(browser, market, TALL)
    previous, following = page.get_by_test_id("day-previous"), page.get_by_test_id("day-next")
    average = page.get_by_test_id("price-view").locator(".mean b")
    await expect(average).to_have_text("91.50")
    await expect(previous).to_have_attribute("aria-disabled", "true")
    await expect(previous).to_have_attribute("aria-label", re.compile("^Previous day, .*: not in the data$"))

    await following.click()
    await expect(average).to_have_text("115.50")
    assert page.url.endswith(f"#zone=GR&day={tomorrow}")
    await expect(following).to_have_attribute("aria-disabled", "true")
    await following.click(force=True)
    await expect(page.locator(".day-said")).to_have_text(re.compile("^No prices for "))

    await page.reload()
    await expect(average).to_have_text("115.50")
    await page.get_by_test_id("zone").select_option("BG")
    await expect(average).to_have_text("235.50")
    assert page.url.endswith(f"#zone=BG&day={tomorrow}")
    await page.get_by_test_id("day-today").click()
    await expect(average).to_have_text("211.50")
    assert page.url.endswith("#zone=BG")

    await page.get_by_test_id("price-chart").focus()
    await page.keyboard.press("PageDown")
    await expect(average).to_have_text("235.50")
    await page.keyboard.press("PageUp")
    await expect(average).to_have_text("211.50")

    await page.evaluate("location.hash = '#zone=GR&day=2020-02-29'")
    await expect(page.get_by_test_id("price-view").locator(".empty")).to_have_text(
        re.compile("^No prices for Sat 29 Feb")
    )
    await previous.click(force=True)
    await expect(average).to_have_text(DASH)
    await following.click()
    await expect(average).to_have_text("91.50")
    assert page.url.endswith("#zone=GR")


async def test_only_views_in_sight_are_subscribed(browser: Browser, market: Running) -> None:
    page = await look(browser, market, PHONE)
    await expect(page.get_by_test_id("price-view").locator(".low b")).to_have_text("80.00")
    held = "window.diem.data.held"
    assert await page.evaluate(f"{held}('/flows/GR/BG')") == 0
    await becomes(page, f"{held}('/load/BG') > 0")
    await page.locator('.views a[href="#flows"]').click()
    await expect(page.locator('[data-from="GR"][data-to="BG"]')).to_have_text(f"{MINUS}300")
    assert page.url.endswith("#zone=GR"), "links to views leave zone and day in the address"
    await expect(page.get_by_test_id("flows-view")).to_be_focused()
    await becomes(page, "!window.diem.updates.isWatched('/load/BG')")
    before = await page.evaluate(f"{held}('/load/BG')")
    await write(market, small_market.load("BG", 6000))
    await write(market, small_market.flow("BG", "GR", 310))
    await expect(page.locator('[data-from="BG"][data-to="GR"]')).to_have_text("+310")
    assert await page.evaluate(f"{held}('/load/BG')") == before, "nobody looks at it"
    await page.locator('.views a[href="#load"]').click()
    await expect(page.locator('[data-endpoint="/load/BG"] [data-testid="load-value"]')).to_have_text("6000")


async def test_a_page_without_servers_shows_what_it_showed_last_with_its_age(browser: Browser, market: Running) -> None:
    context = await browser.new_context(viewport={"width": TALL["width"], "height": TALL["height"]})
    page = await context.new_page()
    await page.goto(f"{market.page}#zone=GR")
    solar = page.locator('[data-kind="solar"] [data-testid="mix-value"]')
    flow = page.locator('[data-from="GR"][data-to="BG"]')
    await expect(solar).to_have_text("1000")
    await expect(flow).to_have_text(f"{MINUS}300")
    await expect(page.get_by_test_id("offline")).to_be_hidden()
    await becomes(page, KEPT)
    await page.close()

    for unreachable in ("**/config.json", "**/v1/**"):
        await context.route(unreachable, lambda route: route.abort())
    page = await context.new_page()
    await page.goto(f"{market.page}#zone=GR")
    solar = page.locator('[data-kind="solar"] [data-testid="mix-value"]')
    await expect(solar).to_have_text("1000")
    await expect(page.locator('[data-from="GR"][data-to="BG"]')).to_have_text(f"{MINUS}300")
    await expect(page.get_by_test_id("price-view").locator(".low b")).to_have_text("80.00")
    await expect(page.get_by_test_id("offline")).to_have_text(re.compile(r"^Offline: .* showed on .* at \d\d:\d\d\."))
    mix = page.get_by_test_id("mix-view")
    await expect(mix).to_have_attribute("data-stale", "true")
    await expect(mix.get_by_test_id("age")).to_have_text(re.compile(r"^data of \d\d:\d\d:\d\d"))

    for unreachable in ("**/config.json", "**/v1/**"):
        await context.unroute(unreachable)
    await connected(page)
    await expect(page.get_by_test_id("offline")).to_be_hidden()
    await expect(mix.get_by_test_id("age")).to_have_text(re.compile("^updated"))


async def test_sources_are_shown_where_the_data_service_tells_of_them(browser: Browser, market: Running) -> None:
    page = await browser.new_page(viewport={"width": TALL["width"], "height": TALL["height"]})
    told = {
        "sources": [
            {"name": "market", "type": "simulation", "ok": True, "error": None, "failures": 0, "endpoints": 190,
             "last_success": "2026-01-01T00:00:00Z"},
            {"name": "prices", "type": "http", "ok": False, "error": "line 2: not a number", "failures": 3,
             "endpoints": 1, "last_success": None},
        ]
    }  # fmt: skip
    await page.route("**/v1/sources", lambda route: route.fulfill(json=told))
    await page.goto(f"{market.page}#zone=GR")
    failing = page.locator('[data-source="prices"]')
    await expect(failing).to_contain_text("Failing: line 2: not a number")
    await expect(page.locator('[data-source="market"]')).to_contain_text("Working")
    await expect(page.get_by_test_id("sources-view").locator(".about")).to_have_text("1 of 2 not working")

    silent = await browser.new_page()
    await silent.route("**/v1/sources", lambda route: route.fulfill(status=404, json={}))
    await silent.goto(f"{market.page}#zone=GR")
    await connected(silent)
    await expect(silent.get_by_test_id("sources-view")).to_be_hidden()
