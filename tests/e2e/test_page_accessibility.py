"""The page for those who do not use a mouse, or their eyes: axe finds nothing, and the keyboard reaches everything."""

import re
from pathlib import Path
from typing import Literal

import pytest
from playwright.async_api import Browser, Page, expect

from tests.e2e import small_market
from tests.e2e.axe import RULES, SCHEMES, SIZES, nothing_is_found, violations
from tests.e2e.page import DASH, connected
from tests.e2e.small_market import write
from tests.support.required import in_cluster
from tests.support.running import ROOT, Running, running

# The browser and the system are started once, by the worker that runs all of these.
pytestmark = [
    pytest.mark.chromium,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.xdist_group("page-accessibility"),
    pytest.mark.takes(30),
]


async def open_page(
    browser: Browser,
    system: Running,
    size: str,
    scheme: Literal["light", "dark"],
    motion: Literal["reduce"] | None = None,
) -> Page:
    page = await browser.new_page(viewport=SIZES[size], color_scheme=scheme, reduced_motion=motion)
    await page.goto(f"{system.page}#zone=GR")
    await connected(page)
    return page


async def see_everything(page: Page) -> None:
    """Scroll through the page, so that every view has its data, and unfold the tables."""
    for view in ("price", "load", "forecast", "mix", "flows", "imbalance"):
        section = page.get_by_test_id(f"{view}-view")
        await section.scroll_into_view_if_needed()
        await expect(section.get_by_test_id("age")).to_have_text(re.compile("^updated"))
    for summary in await page.locator("summary:visible").all():
        await summary.click()


@in_cluster()
async def test_axe_finds_nothing_in_light_dark_and_on_a_phone(browser: Browser, market: Running) -> None:
    page = await open_page(browser, market, "desktop", "light", "reduce")
    await see_everything(page)
    await nothing_is_found(page, *SIZES)
    await page.evaluate("document.querySelector('main').append(document.createElement('button'))")
    found = await violations(page, ("button-name",))
    assert [each.partition(":")[0] for each in found] == ["button-name"], "an unlabelled button would be found"


async def test_a_scheme_changes_colours_alone() -> None:
    """Else all rules would have to be checked in each (``tests.e2e.axe``)."""
    styles = [file.read_text() for file in (ROOT / "client/src").rglob("*.css")]
    assert any("light-dark(" in style for style in styles)
    assert not any("prefers-color-scheme" in style for style in styles)


@in_cluster()
async def test_axe_finds_nothing_while_the_data_is_in_doubt(tmp_path: Path, browser: Browser) -> None:
    """What is stale is dimmed, and still has its contrast."""
    async with running(tmp_path) as system:
        await write(system, *small_market.market())
        page = await open_page(browser, system, "desktop", "light", "reduce")
        await see_everything(page)
        async with system.held_down("websocket-1"):
            for view in ("price", "load", "mix"):
                section = page.get_by_test_id(f"{view}-view")
                # What has been out of sight for some seconds follows nothing, and says nothing of its age.
                await section.scroll_into_view_if_needed()
                await expect(section).to_have_attribute("data-stale", "true")
            for scheme in SCHEMES:
                await page.emulate_media(color_scheme=scheme)
                assert await violations(page, RULES["dark"]) == [], scheme
            await page.context.set_offline(True)
            await expect(page.get_by_test_id("offline")).to_have_text(re.compile("^Offline: "))
            await nothing_is_found(page, "desktop")


async def focused(page: Page) -> str:
    """What has the focus: its class, else its text."""
    text: str = await page.evaluate("document.activeElement.className || document.activeElement.textContent")
    return text


async def test_the_keyboard_alone_reaches_and_moves_everything(browser: Browser, market: Running) -> None:
    page = await open_page(browser, market, "desktop", "light")
    await expect(page.get_by_test_id("price-view").locator(".low b")).to_have_text("80.00")
    await page.keyboard.press("Tab")
    assert await focused(page) == "skip"
    await page.keyboard.press("Enter")
    await expect(page.get_by_test_id("price-view")).to_be_focused()
    order = []
    for _ in range(6):
        await page.keyboard.press("Tab")
        order.append(await page.evaluate("document.activeElement.id || document.activeElement.classList[0]"))
    assert order[:5] == ["zone", "day-previous", "day-next", "day-today", "chart"]

    chart = page.get_by_test_id("price-chart")
    await chart.focus()
    await page.keyboard.press("Home")
    await expect(chart).to_have_attribute("aria-valuetext", f"00:00{DASH}01:00: 80.00 €/MWh")
    await page.keyboard.press("ArrowRight")
    await expect(chart).to_have_attribute("aria-valuetext", f"01:00{DASH}02:00: 81.00 €/MWh")
    await page.keyboard.press("Escape")
    await expect(chart).to_have_attribute("aria-valuetext", re.compile("^from 80.00 to 103.00"))

    grid = page.get_by_test_id("flows-grid")
    await grid.scroll_into_view_if_needed()
    await expect(grid.locator('[data-from="BG"][data-to="GR"]')).to_have_text("+300")
    assert await grid.locator('[tabindex="0"]').count() == 1, "one stop for Tab"
    await grid.locator('[tabindex="0"]').focus()
    await page.keyboard.press("ArrowRight")
    cell = page.locator(":focus")
    await expect(cell).to_have_attribute("aria-label", "Bulgaria sends 300 MW to Romania")
    await page.keyboard.press("Home")
    await page.keyboard.press("ArrowRight")
    await page.keyboard.press("End")
    await expect(cell).to_have_attribute("aria-label", "Bulgaria exports 600 MW net")
    await page.keyboard.press("Control+End")
    await expect(cell).to_have_attribute("aria-label", "Romania imports 300 MW net")
    assert await grid.locator('[tabindex="0"]').count() == 1


HIDDEN = """() => {
  const focused = document.activeElement, bar = document.querySelector('.views');
  const head = focused.closest('tr')?.querySelector('th');
  const { top, left, height } = focused.getBoundingClientRect();
  const [above, beside] = [bar.getBoundingClientRect(), head?.getBoundingClientRect()];
  const under = !bar.contains(focused) && above.top <= 0 && top < above.bottom && height < innerHeight / 2;
  const behind = focused.tagName === 'TD' && left < beside.right - 1;
  return under || behind ? focused.ariaLabel || focused.textContent : null;
}"""


@in_cluster("it presses hundreds of keys")
async def test_what_has_the_focus_is_not_behind_what_stays_in_its_place(browser: Browser, market: Running) -> None:
    """The links to the views stay at the top, and the matrix's zones at its left, while the rest scrolls."""
    page = await open_page(browser, market, "desktop", "light", "reduce")
    await see_everything(page)
    for size, viewport in SIZES.items():
        await page.set_viewport_size(viewport)
        scrolled = 0.0
        for key, presses in (("Tab", 45), ("Shift+Tab", 45)):
            for _ in range(presses):
                await page.keyboard.press(key)
                hidden, at = await page.evaluate(f"[({HIDDEN})(), scrollY]")
                assert hidden is None, (size, key)
                scrolled = max(scrolled, at)
        assert scrolled > 500, "it went through the page"
        await page.locator("[data-from][tabindex='0']").focus()
        for key in ("Control+End", *["ArrowLeft"] * 4, "Control+End", *["ArrowUp"] * 4, "Home"):
            await page.keyboard.press(key)
            assert await page.evaluate(HIDDEN) is None, (size, key)


@in_cluster("it reads every figure")
async def test_figures_are_words_apart_and_signs_have_words_and_a_picked_zone_is_said(
    browser: Browser, market: Running
) -> None:
    page = await open_page(browser, market, "desktop", "light")
    price = page.get_by_test_id("price-view")
    await expect(price.locator(".low b")).to_have_text("80.00")
    await expect(price.locator(".summary")).to_match_aria_snapshot("""
        - term: Low
        - definition: 80.00 00:00
        - term: Average
        - definition: "91.50"
        - term: High
        - definition: 103.00 23:00
    """)
    chart = page.get_by_test_id("price-chart")
    await chart.focus()
    await page.keyboard.press("Home")
    await page.keyboard.press("ArrowRight")
    heard = "[...document.querySelectorAll('.delta > :not([aria-hidden])')].map((part) => part.textContent).join('')"
    assert await page.evaluate(heard) == "up 1.00"
    await page.get_by_role("button", name="BG Bulgaria").first.press("Enter")
    await expect(page.locator(".day-said")).to_have_text("Bulgaria is shown")


async def test_updates_do_not_chatter(browser: Browser, market: Running) -> None:
    """Nothing that assistive technology reads out by itself changes when data does, also not the chart that is read."""
    page = await open_page(browser, market, "desktop", "light")
    low = page.get_by_test_id("price-view").locator(".low b")
    await expect(low).to_have_text("80.00")
    await page.get_by_test_id("price-chart").focus()
    await page.evaluate("""() => {
        window.said = [];
        const note = (records) => records.forEach(({ target }) => window.said.push(String(target.textContent)));
        for (const live of document.querySelectorAll("[role=status], [aria-live]"))
            new MutationObserver(note).observe(live, { childList: true, characterData: true, subtree: true });
        new MutationObserver(note).observe(
            document.activeElement, { attributeFilter: ["aria-valuetext", "aria-valuenow"] });
    }""")
    for base in (20, 30, 40):
        await write(market, small_market.prices("GR", base), small_market.load("GR", 5000 + base))
        await expect(low).to_have_text(f"{base}.00")
    assert await page.evaluate("window.said") == []
    await page.keyboard.press("End")
    assert await page.evaluate("window.said.length") > 0, "a move is read"
