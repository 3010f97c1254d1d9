"""What a browser does to a page (the table of docs/sdk.md section 4.1), in the distribution's Chromium with windows.

The headless shell keeps no page for "back"; Chromium itself, in its new headless mode, does.
"""

import contextlib
import shutil
from collections.abc import AsyncIterator
from typing import Final

import pytest
import pytest_asyncio
from playwright.async_api import Browser, CDPSession, Page, Route, async_playwright

from tests.e2e.chromium import arguments
from tests.e2e.page import becomes
from tests.support.patience import PATIENCE_S
from tests.support.required import in_cluster, unavailable
from tests.support.running import Running

pytestmark = [
    pytest.mark.chromium,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.xdist_group("page-life"),
    pytest.mark.takes(4),
    in_cluster("it needs Chromium with windows"),
]

CHROMIUM: Final = shutil.which("chromium")
WATCH: Final = """async () => {
  window.dials = window.shown = 0;
  window.log = [];
  window.WebSocket = class extends WebSocket {
    constructor(...given) {
      super(...given);
      dials += 1;
    }
  };
  const { createDiem } = await import("/diem.js");
  window.diem = createDiem();
  diem.watch("/test/load", ({ points }) => (window.shown = points[0].value));
  const state = () => diem.updates.connection.value.state;
  const note = ({ type, persisted }) => log.push(persisted ? [type, persisted, state()] : [type, state()]);
  for (const event of ["pagehide", "pageshow"]) addEventListener(event, note);
  for (const event of ["freeze", "resume"]) document.addEventListener(event, note);
}"""
DENIED: Final = """for (const name of ["indexedDB", "localStorage", "sessionStorage", "caches"]) {
  Object.defineProperty(window, name, { get: () => { throw new DOMException("denied", "SecurityError"); } });
}"""
STATE: Final = "diem.updates.connection.value.state"


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def windows() -> AsyncIterator[Browser]:
    if CHROMIUM is None:
        unavailable("Chromium with windows", FileNotFoundError("on Debian: apt install chromium"))
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=CHROMIUM,
            headless=False,
            args=[*arguments(), "--headless=new"],
            ignore_default_args=["--disable-back-forward-cache"],
            timeout=PATIENCE_S * 1000,
        )
        yield browser
        await browser.close()


@contextlib.asynccontextmanager
async def live(windows: Browser, system: Running, setup: str = "") -> AsyncIterator[tuple[Page, CDPSession]]:
    """Yield a page that shows 100, live, and its session."""
    await system.put({"/test/load": 100})
    context = await windows.new_context()
    page = await context.new_page()
    if setup:
        await page.add_init_script(setup)
    await page.goto(f"{system.page}openapi.json")
    await page.evaluate(WATCH)
    await becomes(page, "shown === 100 && diem.updates.isLive('/test/load')")
    yield page, await context.new_cdp_session(page)
    await context.close()


async def test_a_page_is_kept_for_back_without_a_connection_and_restored_at_once(
    windows: Browser, module_system: Running
) -> None:
    async with live(windows, module_system) as (page, _):
        await page.evaluate("window.kept = true")
        await page.goto(f"{module_system.page}asyncapi.json")
        await module_system.put({"/test/load": 200})
        await page.go_back(wait_until="commit")
        await becomes(page, "window.kept === true && window.shown === 200")
        # Chromium freezes what it keeps: the connection was closed before.
        assert await page.evaluate("log") == [
            ["pagehide", True, "open"],
            ["freeze", "closed"],
            ["resume", "closed"],
            ["pageshow", True, "connecting"],
        ]
        assert await page.evaluate("dials") == 2


async def test_a_page_whose_network_was_away_is_current_at_once(windows: Browser, module_system: Running) -> None:
    async with live(windows, module_system) as (page, session):
        await session.send("Network.enable")
        await network(session, offline=True)
        await becomes(page, "!navigator.onLine")
        await module_system.put({"/test/load": 300})
        await network(session, offline=False)
        await becomes(page, "shown === 300", within=5)


async def network(session: CDPSession, *, offline: bool) -> None:
    limits = {"latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
    await session.send("Network.emulateNetworkConditions", {"offline": offline, **limits})


@pytest.mark.parametrize("hours", [-72, 72])
async def test_a_page_is_live_through_a_jump_of_its_clock(windows: Browser, module_system: Running, hours: int) -> None:
    async with live(windows, module_system) as (page, _):
        await page.evaluate(f"{{ const now = Date.now; Date.now = () => now() + {hours} * 3600000; }}")
        await module_system.put({"/test/load": 400})
        await becomes(page, "shown === 400")
        assert await page.evaluate(STATE) in ("open", "reconnecting", "connecting")
        await becomes(page, "diem.updates.isLive('/test/load')")


async def test_a_page_without_storage_is_live(windows: Browser, module_system: Running) -> None:
    async with live(windows, module_system, DENIED) as (page, _):
        await module_system.put({"/test/load": 500})
        await becomes(page, "shown === 500")


async def test_a_page_whose_storage_is_full_is_live(windows: Browser, module_system: Running) -> None:
    async with live(windows, module_system) as (page, session):
        origin = module_system.page.rstrip("/")
        await session.send("Storage.overrideQuotaForOrigin", {"origin": origin, "quotaSize": 1})
        for value in (600, 700):
            await module_system.put({"/test/load": value})
            await becomes(page, f"shown === {value}")


async def test_a_page_behind_a_captive_portal_says_so_and_is_live_after_the_login(
    windows: Browser, module_system: Running
) -> None:
    page = await windows.new_page()
    is_open = False

    async def portal(route: Route) -> None:
        await (route.continue_() if is_open else route.fulfill(content_type="text/html", body="<html>log in</html>"))

    await module_system.put({"/test/load": 100})
    await page.route("**/config.json", portal)
    await page.goto(f"{module_system.page}openapi.json")
    await page.evaluate(WATCH)
    await becomes(page, "diem.updates.connection.value.reason.startsWith('portal: ')")
    is_open = True
    await becomes(page, "shown === 100 && diem.updates.isLive('/test/load')")
    await page.close()
