"""Pages behind proxies that let no WebSocket through: they poll, say so, and are as live as others."""

import contextlib
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

import pytest
from playwright.async_api import Browser, Page

from tests.e2e.page import NO_WEBSOCKET, becomes
from tests.support.nginx import needs_nginx
from tests.support.obstacles import Obstacle, Proxy, proxy
from tests.support.required import in_cluster
from tests.support.running import Running, running

pytestmark = [
    pytest.mark.chromium,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.xdist_group("without-websocket"),
    pytest.mark.takes(6),
]

LIVE_MS = 15_000
"""A page is live within this time."""
WATCH = """async () => {
  const { createDiem } = await import("/diem.js");
  window.began = performance.now();
  window.live = 0;
  window.shown = 0;
  window.diem = createDiem({});
  diem.watch("/test/load", ({ points }) => (shown = points[0].value));
  window.members = "";
  diem.watchCollection("/test/", ({ members }) => {
    window.members = [...members].map(([name, { points }]) => `${name} ${points[0].value}`).join();
  });
  diem.updates.live.observe(() => {
    if (!live && diem.updates.isLive("/test/load")) live = performance.now() - began;
  });
}"""
TRANSPORT = "diem.updates.connection.value.transport"


@contextlib.asynccontextmanager
async def page_behind(browser: Browser, obstacle: Obstacle, system: Running) -> AsyncIterator[tuple[Page, Proxy]]:
    edge = urlsplit(system.websocket_urls[0]).netloc
    async with proxy(obstacle, system.page, edge) as between:
        page = await browser.new_page()
        await page.goto(f"http://127.0.0.1:{between.port}/openapi.json")
        await page.evaluate(WATCH)
        yield page, between
        await page.close()


async def is_live(page: Page) -> float:
    """Wait until a page is live by polls; return after how many milliseconds it was."""
    await becomes(page, "live > 0")
    live_ms = float(await page.evaluate("live"))
    assert live_ms < LIVE_MS
    assert await page.evaluate(TRANSPORT) == "poll"
    return live_ms


async def follow(system: Running, *pages: Page) -> None:
    """Change what the pages show, and what is in their collection."""
    await system.put({"/test/load": 200, "/test/other": 1})
    for page in pages:
        await becomes(page, "shown === 200 && members === '/test/load 200,/test/other 1'")
    await system.put({"/test/other": 2})
    for page in pages:
        await becomes(page, "members === '/test/load 200,/test/other 2'")
    await system.http.delete(
        f"{system.page}v1/data/test/other", headers={"Authorization": f"Bearer {system.write_key}"}
    )
    for page in pages:
        await becomes(page, "members === '/test/load 200'")


@in_cluster("it waits for half a minute")
@pytest.mark.parametrize(
    ("mode", "options"), [("single", ()), ("x", ("--servers", "2")), ("z-proxy", ("--servers", "2")), ("xz", ())]
)
async def test_a_page_is_live_behind_each_obstacle(
    browser: Browser,
    tmp_path_factory: pytest.TempPathFactory,
    mode: str,
    options: tuple[str, ...],
) -> None:
    async with (
        running(tmp_path_factory.mktemp(mode), mode, options=options) as system,
        contextlib.AsyncExitStack() as stack,
    ):
        await system.put({"/test/load": 100})
        pages = [await stack.enter_async_context(page_behind(browser, obstacle, system)) for obstacle in Obstacle]
        for obstacle, (page, between) in zip(Obstacle, pages, strict=True):
            print(f"{mode}, a proxy that {obstacle}: live after {await is_live(page):.0f} ms")
            assert between.handshakes > 0
        await follow(system, *(page for page, _ in pages))
        # Data came with the updates.
        for page, _ in pages:
            assert await page.evaluate("diem.stats.fetches['/test/load'] ?? 0") <= 1


@needs_nginx
async def test_a_page_is_live_behind_a_proxy_before_nginx_and_two_servers(
    browser: Browser, tmp_path_factory: pytest.TempPathFactory
) -> None:
    async with (
        running(tmp_path_factory.mktemp("nginx"), "x-broadcast", servers=2, options=("--nginx",)) as system,
        page_behind(browser, Obstacle.STRIPS, system) as (page, between),
    ):
        await system.put({"/test/load": 100})
        await is_live(page)
        assert between.handshakes > 0
        await follow(system, page)


@in_cluster("it starts a group of servers")
async def test_a_page_polls_each_server_of_z_client(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> None:
    async with running(tmp_path_factory.mktemp("z"), "z-client", options=("--servers", "2")) as system:
        await system.put({"/test/load": 100})
        page = await browser.new_page()
        await page.add_init_script(NO_WEBSOCKET)
        await page.goto(f"{system.page}openapi.json")
        await page.evaluate(WATCH)
        print(f"z-client: live after {await is_live(page):.0f} ms")
        await follow(system, page)
