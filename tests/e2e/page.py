"""The demo page in a browser, and what it shows."""

import asyncio
from typing import Any, Final

from playwright.async_api import Browser, Page, expect

from tests.support.patience import PATIENCE_S

MINUS: Final = "\N{MINUS SIGN}"
DASH: Final = "\N{EN DASH}"
NO_WEBSOCKET: Final = """window.WebSocket = class {
  constructor() { setTimeout(() => this.onclose?.({ code: 1006, reason: "" })); }
  send() {}
  close() {}
};"""
"""Script of a page whose network lets no WebSocket through."""


async def open_page(
    browser: Browser, url: str, *, price: str, load: str, data: str = "on", frames: list[str] | None = None
) -> Page:
    """Open the page with views of two endpoints (``load`` may be several, with commas), connected and live.

    With ``data`` "off" it fetches all data; otherwise data comes with updates. The frames that it is sent are added to
    ``frames``.
    """
    page = await browser.new_page()
    if (sent := frames) is not None:
        page.on("websocket", lambda socket: socket.on("framereceived", lambda frame: sent.append(str(frame))))
    await page.goto(f"{url}?price={price}&load={load}&data={data}")
    await connected(page)
    return page


async def connected(page: Page, *, live: bool = True) -> None:
    badge = page.get_by_test_id("connection")
    await expect(badge).to_have_attribute("data-state", "open")
    await expect(badge).to_have_attribute("data-live", "true" if live else "false")


async def shows_load(page: Page, text: str, within: float = PATIENCE_S) -> None:
    """The first load of ``/test/load`` is ``text``."""
    cell = page.locator('[data-testid="load-table"] [data-endpoint="/test/load"] [data-testid="load-value"]')
    await expect(cell).to_have_attribute("data-value", text, timeout=within * 1000)


async def stats(page: Page) -> dict[str, Any]:
    """What the page has counted: fetches by endpoint, update frames."""
    result: dict[str, Any] = await page.evaluate("window.diem.stats")
    return result


async def becomes(page: Page, expression: str, within: float = PATIENCE_S) -> None:
    """Wait until an expression is true in the page (its policy forbids what Playwright's own wait needs)."""
    async with asyncio.timeout(within):
        while not await page.evaluate(expression):
            await asyncio.sleep(0.05)
