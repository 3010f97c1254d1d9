"""The page with data of one's own: every endpoint is found, shown live, linked and printed."""

import asyncio
import re
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.async_api import Browser, Page, Route, ViewportSize, expect

from tests.e2e import small_market
from tests.e2e.axe import SIZES, nothing_is_found
from tests.e2e.page import MINUS, becomes, connected
from tests.e2e.small_market import series, write
from tests.support.required import in_cluster
from tests.support.running import ROOT, Running, running

# The browser and the system are started once, by the worker that runs all of these.
pytestmark = [
    pytest.mark.chromium,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.xdist_group("page-own-data"),
    pytest.mark.takes(25),
]

DESKTOP: ViewportSize = {"width": 1280, "height": 900}
CSV = "time,value\n2026-01-01T00:00:00Z,42\n2026-01-01T01:00:00Z,{last}\n"
GAP_CSV = "time,value\n2026-01-01T00:00:00Z,{last}\n2026-01-01T01:00:00Z,\n2026-01-01T02:00:00Z,{last}\n"

# The share of the columns of a chart that the line is in.
LINE_SHARE = """(canvas) => {
  const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
  const coloured = canvas.parentElement.appendChild(document.createElement('i'));
  coloured.style.color = 'var(--accent)';
  const accent = getComputedStyle(coloured).color.match(/\\d+/g).slice(0, 3).map(Number);
  coloured.remove();
  const columns = new Set();
  for (let at = 0; at < data.length; at += 4)
    if (data[at + 3] > 200 && accent.every((part, index) => Math.abs(part - data[at + index]) < 24))
      columns.add((at / 4) % canvas.width);
  return columns.size / canvas.width;
}"""

# The charts of visible views in which something is drawn.
DRAWN = """() => [...document.querySelectorAll('.view')]
  .filter((view) => view.getClientRects().length > 0)
  .flatMap((view) => [...view.querySelectorAll('.chart canvas')].map((canvas) => {
    const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
    return data.some((byte) => byte > 0) ? view.id : '';
  })).filter(Boolean).sort().join()"""

# Notes the texts of charts that are cut off at the right.
NOTE_CUT_TEXT = """
  window.cut = [];
  const { fillText } = CanvasRenderingContext2D.prototype;
  CanvasRenderingContext2D.prototype.fillText = function (text, x, ...rest) {
    const part = { center: 0.5, right: 0, end: 0 }[this.textAlign] ?? 1;
    const end = this.getTransform().e + x + part * this.measureText(text).width;
    if (end > this.canvas.width + 1) window.cut.push(text);
    window.texts = (window.texts ?? 0) + 1;
    return fillText.call(this, text, x, ...rest);
  };
"""

# Drops a file with this name and text on the page.
DROP = """([name, text]) => {
  const dataTransfer = new DataTransfer();
  dataTransfer.items.add(new File([text], name));
  const options = { dataTransfer, bubbles: true, cancelable: true };
  for (const type of ['dragover', 'drop']) document.querySelector('main').dispatchEvent(new DragEvent(type, options));
}"""


async def diem(*argv: str, stdin: str) -> tuple[str, str]:
    """Run a command, which must succeed, and return its output."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "deploy",
        *argv,
        cwd=ROOT,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate(stdin.encode())
    assert process.returncode == 0, err
    return out.decode(), err.decode()


async def put(system: Running, endpoint: str, last: float, csv: str = CSV) -> str:
    """Store a series with ``diem put``; returns the link that it prints."""
    options = ("--type", "csv", "--unit", "MW", "--resolution", "PT1H", "--state-dir", str(system.state_dir))
    _, err = await diem("put", endpoint, "-", *options, stdin=csv.format(last=last))
    return err.split()[-1]


async def test_a_page_without_a_market_shows_what_was_put_at_the_printed_link_and_live(
    tmp_path: Path, browser: Browser
) -> None:
    async with running(tmp_path) as system:
        page = await browser.new_page(viewport=DESKTOP)
        errors: list[str] = []
        page.on("pageerror", lambda error: errors.append(str(error)))
        await page.goto(system.page)
        await connected(page)
        view = page.get_by_test_id("data-view")
        await expect(view).to_contain_text("diem put /my/series")
        await expect(page.get_by_test_id("price-view")).to_be_hidden()

        # What is put appears on the open page, without a reload.
        link = await put(system, "/my/series", 45)
        assert urlsplit(link).query == "view=data&endpoint=/my/series"
        now = page.get_by_test_id("data-now")
        await expect(now).to_have_text("45")
        await expect(view.locator("h2")).to_have_text("/my/series")
        await expect(view.locator(".endpoint-facts")).to_have_text("MW · hourly · 2 values")
        await expect(page.get_by_test_id("data-chart").locator("canvas")).to_be_visible()

        await page.goto(link)
        await expect(now).to_have_text("45")
        await becomes(page, f"({DRAWN})() === 'endpoint'")
        await put(system, "/my/series", -46.5)
        await expect(now).to_have_text(f"{MINUS}46.5")
        await expect(page.get_by_test_id("values").locator("td").first).to_have_text(f"{MINUS}46.5")
        await expect(view.get_by_test_id("age")).to_have_text(re.compile("^updated"))
        assert page.url == link
        assert await page.title() == "/my/series \N{EN DASH} DIEM"

        # The version before is in the history, and can be laid behind the current one.
        await page.get_by_test_id("history").locator("summary").click()
        await page.get_by_role("button", name="Compare").click()
        await expect(page.get_by_test_id("values").locator("tbody tr").first).to_contain_text("45.0")

        # No market: nothing leads to it, and the view says so when data is missing.
        await expect(page.get_by_test_id("to-market")).to_be_hidden()
        await page.goto(f"{system.page}?view=data&endpoint=/not/yet")
        await expect(view.locator(".empty")).to_have_text(re.compile("^Not in the catalogue yet"))
        await put(system, "/not/yet", 1, GAP_CSV)
        await expect(now).to_have_text("1")

        # A value before a gap is drawn for its whole interval: the line is in two thirds of the plot.
        canvas = page.get_by_test_id("data-chart").locator("canvas")
        await becomes(page, f"({LINE_SHARE})(document.querySelector('[data-testid=data-chart] canvas')) > 0.45")
        assert await canvas.evaluate(LINE_SHARE) < 0.7, "the gap is none"
        assert errors == []


async def test_the_copied_code_shows_the_endpoint_on_a_page_of_its_own(browser: Browser, market: Running) -> None:
    await write(market, series("/my/code", [7.5], start=small_market.midnight(), minutes=60))
    context = await browser.new_context(permissions=["clipboard-read", "clipboard-write"])
    page = await context.new_page()
    await page.goto(f"{market.page}?view=data&endpoint=/my/code")
    await expect(page.get_by_test_id("data-now")).to_have_text("7.5")
    await page.get_by_test_id("copy").click()
    await expect(page.locator(".copied")).to_have_text("Copied")
    code = await page.evaluate("navigator.clipboard.readText()")
    assert code == await page.get_by_test_id("code").text_content()

    async def fulfil(route: Route) -> None:
        await route.fulfill(body=code, content_type="text/javascript")

    own = await context.new_page()
    await own.route("**/own.js", fulfil)
    await own.route(
        "**/own.html",
        lambda route: route.fulfill(body="<script type=module src=own.js></script>", content_type="text/html"),
    )
    async with own.expect_console_message(lambda message: "7.5 MW" in message.text):
        await own.goto(f"{market.page}own.html")


@in_cluster()
async def test_ten_thousand_endpoints_are_searched_and_linked(browser: Browser, market: Running) -> None:
    await write(market, series("/my/needle", [3], start=small_market.midnight(), minutes=60))
    names = [f"/hay/{number:05}" for number in range(9_999)]
    listed = [{"endpoint": name, "unit": "MW", "version": 1, "gone": False} for name in [*names, "/my/needle"]]
    parts = {"": (listed[:5_000], listed[4_999]["endpoint"]), "after": (listed[5_000:], None)}

    async def fulfil(route: Route) -> None:
        some, following = parts["after" if "after=" in route.request.url else ""]
        await route.fulfill(json={"endpoints": some, **({"next": following} if following else {})})

    page = await browser.new_page(viewport=DESKTOP)
    await page.route("**/v1/endpoints*", fulfil)
    await page.goto(f"{market.page}?view=data")
    await expect(page.locator(".found")).to_have_text("10,000 endpoints")
    links = page.get_by_test_id("endpoint-links").locator("a")
    assert await links.count() == 50
    await page.get_by_role("button", name="Next endpoints").click()
    await expect(links.first).to_have_attribute("data-endpoint", "/hay/00050")
    await page.get_by_test_id("search").fill("my need")
    await expect(links).to_have_count(1)
    await page.keyboard.press("ArrowDown")
    await page.keyboard.press("Enter")
    await expect(page.get_by_test_id("data-now")).to_have_text("3")
    assert page.url.endswith("?view=data&endpoint=/my/needle")
    await expect(links.first).to_have_attribute("aria-current", "true")
    await page.go_back()
    assert page.url.endswith("?view=data")


async def test_the_market_leads_to_the_data_and_back_and_only_what_is_shown_is_subscribed(
    browser: Browser, market: Running
) -> None:
    page = await browser.new_page(viewport=DESKTOP)
    await page.goto(market.page)
    await connected(page)
    await expect(page.get_by_test_id("price-view").locator(".low b")).to_have_text("80.00")
    await page.get_by_test_id("to-data").click()
    await expect(page.get_by_test_id("price-view")).to_be_hidden()
    await page.get_by_test_id("search").fill("generation/BG/gas")
    await page.get_by_test_id("endpoint-links").locator("a").first.click()
    await expect(page.get_by_test_id("data-now")).to_have_text("1000")
    await becomes(page, "window.diem.updates.subscriptions === 1")
    await page.get_by_test_id("to-market").click()
    await expect(page.get_by_test_id("price-view").locator(".low b")).to_have_text("80.00")
    await becomes(page, "!window.diem.updates.isWatched('/generation/BG/gas')")


async def open_tall(browser: Browser, market: Running, size: ViewportSize) -> Page:
    page = await browser.new_page(viewport=size)
    await page.add_init_script(NOTE_CUT_TEXT)
    await page.goto(f"{market.page}#zone=GR")
    await connected(page)
    await expect(page.get_by_test_id("price-view").locator(".low b")).to_have_text("80.00")
    return page


@in_cluster()
async def test_printouts_have_every_chart_and_no_text_of_a_chart_is_cut_off(browser: Browser, market: Running) -> None:
    for size in SIZES.values():
        page = await open_tall(browser, market, size)
        await page.evaluate("""() => {
            window.print = () => { window.printed = [...document.querySelectorAll('.view')].map(({ id }) => id); };
        }""")
        await page.keyboard.press("Control+p")
        await becomes(page, "'printed' in window")
        assert await page.evaluate("window.diem.data.held('/flows/GR/BG') > 0"), "it waits for what was not in sight"
        await page.reload()
        await connected(page)
        await page.emulate_media(media="print")
        await becomes(page, f"({DRAWN})() === 'forecast,mix,price'")
        await expect(page.locator('[data-from="GR"][data-to="BG"]')).to_have_text(f"{MINUS}300")
        await page.emulate_media(media="screen")
        assert await page.evaluate("window.texts > 20")
        assert await page.evaluate("window.cut") == [], size
        await page.close()


@in_cluster("it measures a layout")
async def test_long_names_of_zones_are_whole_on_a_desktop(browser: Browser, market: Running) -> None:
    await write(market, small_market.load("BA"))
    page = await open_tall(browser, market, DESKTOP)
    name = page.locator('[data-endpoint="/load/BA"] .zone-name span')
    await expect(name).to_have_text("Bosnia & Herzegovina")
    assert await name.evaluate("(shown) => shown.scrollWidth <= shown.clientWidth")


@in_cluster()
async def test_axe_finds_nothing_in_light_dark_and_on_a_phone(browser: Browser, market: Running) -> None:
    page = await browser.new_page(reduced_motion="reduce")
    await page.goto(f"{market.page}?view=data&endpoint=/dam/prices/GR")
    await connected(page)
    await expect(page.get_by_test_id("data-view").get_by_test_id("age")).to_have_text(re.compile("^updated"))
    for summary in await page.locator(".endpoint summary").all():
        await summary.click()
    await expect(page.get_by_test_id("history").locator("tbody tr").first).to_be_visible()
    await nothing_is_found(page, *SIZES)


@in_cluster("it presses many keys")
async def test_the_keyboard_alone_reaches_everything(browser: Browser, market: Running) -> None:
    page = await browser.new_page(viewport=DESKTOP)
    await page.goto(f"{market.page}?view=data&endpoint=/dam/prices/GR")
    await expect(page.get_by_test_id("data-now")).to_have_text(re.compile(r"^\d"))
    await page.keyboard.press("Tab")
    await page.keyboard.press("Enter")
    await expect(page.get_by_test_id("data-view")).to_be_focused()
    chart = page.get_by_test_id("data-chart")
    await chart.focus()
    await page.keyboard.press("Home")
    await expect(chart).to_have_attribute("aria-valuetext", re.compile(": 80 €/MWh$"))
    order = []
    for _ in range(4):
        await page.keyboard.press("Tab")
        order.append(
            await page.evaluate("document.activeElement.className || document.activeElement.parentElement.className")
        )
    assert order == ["copy", "rest", "unfold sdk", "unfold history"]


async def test_a_dropped_file_is_published_once_its_values_are_right(browser: Browser, market: Running) -> None:
    rows = "".join(f"25.11.2026 {hour:02}:00;1.{hour:03},5\n" for hour in range(24))
    page = await browser.new_page(viewport=DESKTOP, timezone_id="Europe/Berlin", reduced_motion="reduce")
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    await page.goto(f"{market.page}?view=data")
    await connected(page)
    await expect(page.get_by_test_id("add-file")).to_be_visible()
    await page.evaluate(DROP, ["Zähler 7.csv", f"Zeit;Leistung [kW]\n{rows}"])

    dialog = page.get_by_role("dialog", name="Add a file")
    await expect(dialog).to_contain_text("Zähler 7.csv, 619 B")
    key, go = dialog.get_by_label("Write key"), dialog.get_by_test_id("upload-next")
    await key.fill("wrong")
    await key.press("Enter")
    await expect(dialog.get_by_role("alert")).to_have_text("This is no write key of this server, or no longer.")
    await expect(key).to_be_focused()
    await key.fill(market.write_key)
    await key.press("Enter")

    preview = dialog.get_by_test_id("preview")
    await expect(preview.get_by_role("row")).to_have_count(2)
    await expect(preview).to_contain_text("times in UTC")
    await dialog.get_by_role("button", name="Europe/Berlin").click()
    await expect(preview).to_contain_text("times in Europe/Berlin")
    await expect(preview).to_contain_text("25 Nov 2026 00:00 1000.5")
    await expect(preview).to_contain_text("kW · hourly · 24 values")
    await nothing_is_found(page, "phone")

    layout = dialog.get_by_label("Layout of the file")
    text = await layout.input_value()
    await layout.fill(text.replace('decimal = ","\n', ""))
    await go.click()
    await expect(dialog.get_by_role("alert")).to_contain_text("decimal")
    await layout.fill(text)
    await dialog.get_by_label("Endpoint").fill("/site/7")
    await go.click()
    await expect(go).to_have_text("Publish 1 endpoint")
    await go.click()

    await expect(dialog).to_be_hidden()
    await expect(page.get_by_test_id("data-view").locator("h2")).to_have_text("/site/7")
    newest = page.get_by_test_id("values").get_by_role("row").nth(1)
    await expect(newest).to_contain_text("25 Nov 2026 23:00")
    await expect(newest).to_contain_text("1023.5")
    assert market.write_key not in await page.evaluate("JSON.stringify([{...localStorage}, {...sessionStorage}])")
    assert errors == []
