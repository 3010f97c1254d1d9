"""What people see, in Chromium, Firefox and WebKit alike: ``make engines``; with ``QUICK=1`` the first ones alone."""

import contextlib
import os
import re
from collections.abc import AsyncIterator
from typing import Final
from urllib.parse import urlsplit

import pytest
import pytest_asyncio

from tests.engines.chromium import chromium_page
from tests.engines.firefox import firefox_page
from tests.engines.page import Page
from tests.engines.webkit import webkit_page
from tests.support.obstacles import Obstacle, proxy
from tests.support.running import Running, running
from tests.support.size import SIZE, RunSize

pytestmark = [
    pytest.mark.skipif("RUN_ENGINES" not in os.environ, reason="it needs three browsers: make engines"),
    pytest.mark.asyncio(loop_scope="session"),
]
in_full = pytest.mark.skipif(SIZE is not RunSize.FULL, reason="the first ones are enough to see that a browser runs")

ENGINES: Final = {"chromium": chromium_page, "firefox": firefox_page, "webkit": webkit_page}
NO_CONNECTION: Final = "WebSocket connection to .* failed|Failed to load resource|establish a connection|NetworkError"
LIVE_S: Final = 15
"""A page without WebSocket is live within this time."""
HTML: Final = '<!doctype html><title>story</title><script type="module" src="/story.js"></script>'
SCRIPT: Final = """
import { createDiem } from "/diem.js";
const diem = createDiem();
window.story = { diem, shown: [], persisted: null };
diem.watch("/test/load", ({ points, confirmed }) => story.shown.push([points[0].value, confirmed]));
addEventListener("pageshow", ({ persisted }) => (story.persisted = persisted));
"""
LIVE: Final = 'story.diem.updates.connection.value.state === "open" && story.diem.updates.isLive("/test/load")'

STORED: Final = 'import("/diem.js").then(({ browserEnvironment }) => browserEnvironment().storage.load())'
DEAF: Final = """import("/diem.js").then(({ browserEnvironment, createDiem }) => {
  window.held = null;
  const nothing = { fetch: () => new Promise(() => {}), socket: () => ({ send() {}, close() {} }) };
  createDiem({ environment: { ...browserEnvironment(), ...nothing } }).watch("/test/load", ({ points, confirmed }) => {
    window.held ??= [points[0].value, confirmed];
  });
})"""
"""Watches the endpoint with what the device holds alone."""


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def system(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Running]:
    pages = tmp_path_factory.mktemp("pages")
    (pages / "story.html").write_text(HTML)
    (pages / "story.js").write_text(SCRIPT)
    (pages / "blank.html").write_text("<!doctype html><title>blank</title>")
    async with running(tmp_path_factory.mktemp("system"), options=("--pages", str(pages))) as started:
        yield started


@pytest_asyncio.fixture(scope="module", loop_scope="session", params=[*ENGINES])
async def page(request: pytest.FixtureRequest) -> AsyncIterator[Page]:
    async with ENGINES[request.param]() as opened:
        print(f"{request.param} {opened.version}")
        yield opened


@pytest_asyncio.fixture(autouse=True, loop_scope="session")
async def expected(page: Page) -> AsyncIterator[list[str]]:
    """Patterns of the errors that are part of a story; any other one fails it."""
    patterns: list[str] = []
    await page.take_errors()
    yield patterns
    errors = await page.take_errors()
    assert [error for error in errors if not any(re.search(pattern, error) for pattern in patterns)] == []


async def story(page: Page, system: Running) -> None:
    """Open the page that watches one endpoint; it is live and shows 100."""
    await system.put({"/test/load": 100})
    await page.goto(f"{system.page}story.html")
    await page.becomes(LIVE)
    await page.becomes(shows(100))


def shows(value: int) -> str:
    return f"story.shown.at(-1)[0] === {value}"


async def arrives(page: Page, system: Running, value: int) -> None:
    await system.put({"/test/load": value})
    await page.becomes(shows(value))


async def test_own_page_is_live_and_shows_an_update(page: Page, system: Running) -> None:
    await story(page, system)
    await arrives(page, system, 200)


async def test_errors_of_a_page_are_collected(page: Page, system: Running) -> None:
    await story(page, system)
    await page.evaluate("(console.error('written'), setTimeout(() => { throw new Error('thrown'); }))")
    await page.becomes("new Promise((resolve) => setTimeout(() => resolve(true)))")
    written, thrown = await page.take_errors()
    assert "written" in written
    assert "thrown" in thrown


@in_full
async def test_page_of_diem_up_opens_and_is_live(page: Page, system: Running) -> None:
    await page.goto(system.page)
    badge = "document.querySelector('[data-testid=connection]').dataset"
    await page.becomes(f"{badge}.state === 'open' && {badge}.live === 'true'")


@in_full
async def test_page_is_live_again_after_its_server_was_killed(page: Page, system: Running, expected: list[str]) -> None:
    expected.append(NO_CONNECTION)
    await story(page, system)
    async with system.held_down("websocket-1"):
        await page.becomes(f"!({LIVE})")
    await page.becomes(LIVE)
    await arrives(page, system, 200)


@in_full
async def test_page_without_websocket_is_live_within_15_s(page: Page, system: Running, expected: list[str]) -> None:
    expected.append(NO_CONNECTION)
    await system.put({"/test/load": 100})
    edge = urlsplit(system.websocket_urls[0]).netloc
    async with proxy(Obstacle.STRIPS, system.page, edge) as between:
        await page.goto(f"http://127.0.0.1:{between.port}/story.html")
        await page.becomes(LIVE, within=LIVE_S)
        assert await page.evaluate("story.diem.updates.connection.value.transport") == "poll"
        await arrives(page, system, 200)
        await page.goto("about:blank")


@in_full
async def test_page_is_live_again_when_it_is_online(page: Page, system: Running, expected: list[str]) -> None:
    expected.append(NO_CONNECTION)
    if not page.can_be_offline:
        pytest.skip("WebDriver cannot cut a page off from the network")
    await story(page, system)
    await page.set_offline(True)
    try:
        await page.becomes("!navigator.onLine")
    finally:
        await page.set_offline(False)
    await page.becomes("navigator.onLine")
    await page.becomes(LIVE)
    await arrives(page, system, 200)


@in_full
async def test_reload_begins_with_what_was_held(page: Page, system: Running) -> None:
    await story(page, system)
    await arrives(page, system, 200)
    await page.becomes(f"(await ({STORED})).some(({{ text }}) => JSON.parse(text).points[0].value === 200)")
    await page.reload()
    await page.evaluate(DEAF)
    await page.becomes("held !== null")
    assert await page.evaluate("held") == [200, False], "it is unconfirmed"
    await page.becomes(LIVE)


@in_full
async def test_page_is_live_after_back(page: Page, system: Running) -> None:
    await story(page, system)
    await page.goto(f"{system.page}blank.html")
    await system.put({"/test/load": 200})
    await page.back()
    await page.becomes("story.persisted !== null")
    await page.becomes(LIVE)
    await page.becomes(shows(200))


@in_full
async def test_event_source_receives_updates(page: Page, system: Running) -> None:
    await story(page, system)
    edge = urlsplit(system.websocket_urls[0]).netloc
    url = f"http://{edge}/v1/updates?endpoint=/test/load&data=true"
    await page.evaluate(
        f"""(() => {{
          window.received = [];
          window.source = new EventSource("{url}");
          source.onmessage = ({{ data }}) => received.push(JSON.parse(data));
        }})()"""
    )
    await page.becomes("received.some(({ type }) => type === 'subscribed')")
    await system.put({"/test/load": 200})
    await page.becomes("received.some(({ type, data }) => type === 'update' && data.points[0].value === 200)")
    await page.evaluate("source.close()")


@in_full
async def test_policy_of_the_page_refuses_inline_scripts(page: Page, system: Running, expected: list[str]) -> None:
    expected.append("Content.Security.Policy")
    await story(page, system)
    await page.evaluate(
        """(() => {
          window.refused = 0;
          addEventListener("securitypolicyviolation", () => (window.refused += 1));
          const script = document.createElement("script");
          script.textContent = "window.inlined = true";
          document.head.append(script);
        })()"""
    )
    await page.becomes("refused === 1")
    assert await page.evaluate("window.inlined") is None


@in_full
async def test_operator_page_draws(page: Page, system: Running) -> None:
    url = str(system.described["urls"]["operator"])
    key = (system.state_dir / "operator.key").read_text().strip()
    await page.goto(url)
    await page.becomes("document.querySelector('input[type=password]')")
    # The answer replaces the document in which the expression runs.
    with contextlib.suppress(AssertionError):
        await page.evaluate(
            f"""(() => {{
              document.querySelector("input[type=password]").value = "{key}";
              setTimeout(() => document.querySelector("form").requestSubmit(), 0);
            }})()"""
        )
    await page.becomes("document.querySelector('[data-testid=headline]').textContent.trim().length > 0")
    await page.becomes("document.querySelectorAll('[data-node]').length > 0")
