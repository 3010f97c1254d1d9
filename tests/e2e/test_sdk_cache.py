"""The SDK's cache in a real browser: starts without a server, several tabs, and memory that does not grow."""

import asyncio
import itertools
from pathlib import Path
from typing import Any, Final

import pytest
import pytest_asyncio
from playwright.async_api import Browser, BrowserContext, Page, Route

from tests.e2e.page import becomes
from tests.support.patience import PATIENCE_S
from tests.support.required import in_cluster
from tests.support.running import ROOT, running

pytestmark = [pytest.mark.chromium, pytest.mark.asyncio(loop_scope="session")]

DIST: Final = ROOT / "client/dist"
CONTRACT: Final = ROOT / "client/tests/sdk/store.contract.js"
TYPES: Final = {".js": "text/javascript", ".html": "text/html"}

START: Final = """async (endpoints) => {
  const { createDiem } = await import("/diem.js");
  window.diem = createDiem();
  window.shown = [];
  window.values = {};
  for (const endpoint of endpoints) {
    diem.watch(endpoint, ({ points, confirmed }) => {
      if (endpoints.length === 1) shown.push([points[0].value, confirmed]);
      values[endpoint] = points[0].value;
    });
  }
}"""

UPDATES: Final = 3_000
"""Enough to tell 50 bytes an update from what comes and goes: no object that is kept for each is as small as that."""

RUN_CONTRACT: Final = """async () => {
  const { browserEnvironment } = await import("/diem.js");
  const { CONTRACT } = await import("/contract.js");
  const tabs = async () => {
    await new Promise((resolve, reject) => {
      const deletion = indexedDB.deleteDatabase("diem");
      deletion.onsuccess = resolve;
      deletion.onerror = deletion.onblocked = reject;
    });
    return [browserEnvironment().storage, browserEnvironment().storage];
  };
  const results = {};
  for (const [name, { run, expected }] of Object.entries(CONTRACT)) results[name] = [await run(tabs), expected];
  return results;
}"""

KEPT: Final = """new Promise((resolve, reject) => {
  const opening = indexedDB.open("diem", 2);
  opening.onerror = reject;
  opening.onsuccess = () => {
    const all = opening.result.transaction("datasets").objectStore("datasets").getAll();
    all.onsuccess = () => {
      opening.result.close();
      resolve(all.result.map(({ text }) => JSON.parse(text).points[0].value));
    };
  };
})"""


async def serve(route: Route) -> None:
    """The page and its scripts, as a host does that goes on when the servers of DIEM do not."""
    path = route.request.url.split("/", 3)[3].split("?")[0]
    if path == "sdk.html":
        await route.fulfill(body="<!doctype html><title>SDK</title>", content_type=TYPES[".html"])
    elif path == "contract.js":
        await route.fulfill(body=CONTRACT.read_text(), content_type=TYPES[".js"])
    elif (DIST / path).suffix == ".js":
        await route.fulfill(body=(DIST / path).read_text(), content_type=TYPES[".js"])
    else:
        await route.continue_()


@pytest_asyncio.fixture(loop_scope="session")
async def context(browser: Browser) -> BrowserContext:
    """A browser profile whose pages come from `serve`."""
    # The pages come from no address of this machine, and are to reach servers that do.
    made = await browser.new_context(permissions=["local-network-access"])
    await made.route("**/*", serve)
    return made


async def started(context: BrowserContext, origin: str, *endpoints: str) -> Page:
    page = await context.new_page()
    await page.goto(f"{origin}sdk.html")
    await page.evaluate(START, endpoints)
    return page


async def restarted(page: Page, *endpoints: str) -> None:
    await page.reload()
    await page.evaluate(START, endpoints)


async def test_what_was_seen_is_shown_at_once_with_the_servers_down_and_confirmed_when_they_are_back(
    tmp_path: Path,
    context: BrowserContext,
) -> None:
    async with running(tmp_path) as system:
        await system.put({"/a": 1})
        page = await started(context, system.page, "/a")
        await becomes(page, "JSON.stringify(shown) === '[[1,true]]'")
        await becomes(page, f"{KEPT}.then((values) => values.includes(1))")
        with system.down("data", "websocket-1"):
            await restarted(page, "/a")
            await becomes(page, "JSON.stringify(shown) === '[[1,false]]'")
            assert await page.evaluate("diem.updates.connection.value.state") != "open"
            assert await page.evaluate("diem.data.peek('/a').confirmed") is False
        await becomes(page, "JSON.stringify(shown) === '[[1,false],[1,true]]'")


@in_cluster("it starts a system of its own")
async def test_two_tabs_keep_the_newest_and_either_starts_with_it(tmp_path: Path, context: BrowserContext) -> None:
    async with running(tmp_path) as system:
        await system.put({"/a": 1})
        one, two = [await started(context, system.page, "/a") for _ in range(2)]
        for value in range(2, 8):
            await system.put({"/a": value})
            for page in (one, two):
                await becomes(page, f"values['/a'] === {value}")
        await becomes(one, f"{KEPT}.then((values) => values.includes(7))")
    for page in (one, two):
        await restarted(page, "/a")
        await becomes(page, "JSON.stringify(shown) === '[[7,false]]'")


async def test_the_store_of_the_tests_and_the_one_of_the_browser_do_the_same(
    tmp_path: Path, context: BrowserContext
) -> None:
    async with running(tmp_path) as system:
        page = await context.new_page()
        await page.goto(f"{system.page}sdk.html")
        results: dict[str, Any] = await page.evaluate(RUN_CONTRACT)
        assert len(results) > 5
        for name, (result, expected) in results.items():
            assert result == expected, name


@in_cluster()
async def test_thousands_of_updates_leave_memory_as_it_was(tmp_path: Path, context: BrowserContext) -> None:
    endpoints = [f"/e/{number}" for number in range(50)]
    async with running(tmp_path) as system:
        await system.put(dict.fromkeys(endpoints, 0))
        page = await started(context, system.page, *endpoints)
        await becomes(page, "diem.updates.live.value.live && Object.keys(values).length === 50")
        profiler = await context.new_cdp_session(page)

        async def used() -> int:
            await profiler.send("HeapProfiler.collectGarbage")
            return int((await profiler.send("Runtime.getHeapUsage"))["usedSize"])

        async def frames() -> int:
            return int(await page.evaluate("diem.stats.updateFrames"))

        async def update(least: int) -> None:
            """Until the page was told so often: who is slow is told of the last of several updates alone."""
            end = await frames() + least
            async with asyncio.timeout(2 * PATIENCE_S):
                while await frames() < end:
                    for _ in range(10):
                        await system.put(dict.fromkeys(endpoints, next(values)))
            await becomes(page, f"Object.values(values).every((value) => value === {next(values) - 1})")

        values = itertools.count(1)
        await update(1_000)
        before = await used()
        await update(UPDATES)
        grown = await used() - before
        assert grown < 50 * UPDATES, f"{grown} bytes more after {UPDATES} updates"
