"""The page behind nginx, which sends it to one of two servers, and data in nginx's cache."""

import re
from collections.abc import AsyncIterator
from typing import Self

import pytest
import pytest_asyncio
from playwright.async_api import Browser, BrowserContext, Page, Request
from playwright.async_api import Error as PlaywrightError

from diem.process.auth import SharedKey
from tests.e2e.embedding import CARELESS, CONTENT, EMBED, EMBED_WITH_BLOBS, PNG, add_pages
from tests.e2e.page import becomes, open_page, shows_load
from tests.support.internal import http_client
from tests.support.nginx import needs_nginx
from tests.support.patience import until
from tests.support.required import in_cluster
from tests.support.running import Running, running

pytestmark = [
    pytest.mark.chromium,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.xdist_group("behind-nginx"),
    pytest.mark.takes(15),
    needs_nginx,
]

CONFIG = """
source = []
[[plan]]
name = "anonymous"
prefixes = ["/test", "/open"]
[[plan]]
name = "page"
"""
SECRET = "self.secret = 'of another user'"
FOREIGN = "http://foreign.example/page.html"


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def module_system(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Running]:
    """A system in which readers without a key see a part of the data."""
    pages = tmp_path_factory.mktemp("pages")
    # With the page's policy, but without trusted types, which refuse what these tests embed.
    (pages / "plain.html").write_text("<!doctype html><title>plain</title>")
    directory, options = tmp_path_factory.mktemp("system"), ("--nginx", "--pages", str(pages))
    async with running(directory, "x-broadcast", servers=2, config=CONFIG, options=options) as system:
        yield system


async def put(system: Running, endpoint: str, content: str | bytes, media_type: str) -> int:
    """Store bytes, which must succeed; returns the version."""
    headers = {"Authorization": f"Bearer {system.write_key}", "Content-Type": media_type}
    answer = await system.http.put(f"{system.page}v1/data{endpoint}", content=content, headers=headers)
    return int(answer.raise_for_status().json()["version"])


async def create_key(system: Running) -> str:
    """Create an API key, as `diem keys create` does."""
    url = f"{system.processes['data']['urls']['internal']}/v1/keys"
    async with http_client(SharedKey.load(system.state_dir / "internal.key")) as http:
        return str((await http.post(url, json={"name": "page", "plan": "page"})).json()["key"])


class Embedder:
    """Pages that embed addresses, and notice of what runs there."""

    def __init__(self, context: BrowserContext) -> None:
        self.context = context
        self._requests: list[str] = []
        """Those of scripts and styles that were embedded."""
        self._frames: set[Request] = set()
        """Requests for content of frames, without an answer."""
        context.on("request", self._requested)
        context.on("response", lambda response: self._answered(response.request))
        context.on("requestfailed", self._answered)

    @classmethod
    async def made(cls, browser: Browser, *pages: str) -> Self:
        """Return one for pages without a policy at these addresses."""
        # A page served by the test has no address of this machine, and is to reach servers that do.
        context = await browser.new_context(permissions=["local-network-access"], accept_downloads=False)
        if pages:
            await add_pages(context, *pages)
        return cls(context)

    def _requested(self, request: Request) -> None:
        if request.url.endswith("/ran"):
            self._requests.append(request.url)
        if request.resource_type == "document":
            self._frames.add(request)

    def _answered(self, request: Request) -> None:
        self._frames.discard(request)

    async def embed(self, url: str, addresses: list[str], how: str = EMBED) -> Page:
        """Open a page that embeds addresses, and wait until all is loaded or refused."""
        page = await self.context.new_page()
        await page.goto(url)
        await page.evaluate(how, addresses)
        await becomes(page, "window.pending === 0")
        await until(lambda: not self._frames)
        return page

    async def ran(self) -> set[str]:
        """Return what ran in the pages, their frames and workers."""
        found = set(self._requests)
        for page in self.context.pages:
            found |= {
                *await page.evaluate("[...(window.messages ?? []), ...('ran' in window ? ['ran in the page'] : [])]")
            }
        return found


async def loaded(page: Page) -> list[str]:
    """Return the embedded images, scripts, styles and workers that were loaded."""
    return sorted(way for way, outcome in (await page.evaluate("events")).items() if outcome == "load")


@in_cluster()
async def test_nothing_that_is_stored_runs_however_it_is_embedded(browser: Browser, module_system: Running) -> None:
    system = module_system
    old = {name: await put(system, f"/open/{name}", text, kind) for name, (kind, text) in CONTENT.items()}
    for name, (kind, text) in CONTENT.items():
        await put(system, f"/open/{name}", (text if isinstance(text, bytes) else text.encode()) + b" ", kind)
    direct = str(system.processes["data"]["urls"]["public"])
    own, own_direct = [f"{base}embedding.html" for base in (system.page, direct)]
    embedder = await Embedder.made(browser, own, own_direct, FOREIGN)
    current = [f"{system.page}v1/data/open/{name}" for name in CONTENT]
    versions = [f"{system.page}v1/data/open/{name}?version={old[name]}" for name in CONTENT]
    uncached = [f"{direct}v1/data/open/{name}" for name in CONTENT]
    for url, addresses, how in (
        (own, versions, EMBED),
        (own_direct, uncached[::3], EMBED),
        (FOREIGN, versions[::4], EMBED),
        (f"{system.page}plain.html", current[::4], EMBED_WITH_BLOBS),
    ):
        page = await embedder.embed(url, addresses, how)
        assert await embedder.ran() == set(), url
        assert await page.evaluate("getComputedStyle(document.documentElement).color") != "rgb(1, 2, 3)"
        images = [f"img {each}" for each in addresses if re.search("/(?:png|svg)(?:$|[?])", each)]
        # A foreign page learns nothing at all, not even the size of an image. What is fetched comes back as it is.
        assert {*images} <= {*await loaded(page)} if url != FOREIGN else await loaded(page) == []
        assert how is not EMBED or len(await loaded(page)) <= len(images)

    # Opened on its own, it is shown as text, or saved.
    page = await embedder.context.new_page()
    for address in versions:
        try:
            await page.goto(address)
        except PlaywrightError as error:
            assert "Download is starting" in str(error) or "net::ERR_ABORTED" in str(error)
        else:
            assert await page.evaluate("'ran' in window") is False
    assert await embedder.ran() == set()

    # The same elements run what careless servers send.
    careless = [f"{system.page}careless/{name}" for name in CARELESS]
    await embedder.embed(own, careless)
    expected = {"ran in the page", f"{system.page}ran", *(f"ran {address}" for address in careless)}
    assert expected <= await embedder.ran()


async def test_data_of_other_users_is_not_shown_without_their_key(browser: Browser, module_system: Running) -> None:
    system = module_system
    key = await create_key(system)
    # Without pages of the test: for these, a browser has no cache.
    embedder = await Embedder.made(browser)
    addresses = []
    for kind, content in (("text/plain", SECRET), ("text/html", f"<p>{SECRET}"), ("image/png", PNG)):
        version = await put(system, f"/secret/{kind}", content, kind)
        address = f"{system.page}v1/data/secret/{kind}"
        addresses += [address, f"{address}?version={version}"]
    page = await embedder.embed(f"{system.page}plain.html", [])
    read = """([urls, headers]) => Promise.all(urls.map(async (url) => (await fetch(url, { headers })).status))"""
    assert await page.evaluate(read, [addresses, {"Authorization": f"Bearer {key}"}]) == [200] * 6
    assert await page.evaluate(read, [addresses, {}]) == [403] * 6
    page = await embedder.embed(f"{system.page}plain.html", addresses)
    assert await loaded(page) == []
    for address in addresses:
        answer = await page.goto(address)
        assert answer is not None
        assert answer.status == 403
        assert SECRET not in await page.content()


async def test_the_page_follows_through_nginx_and_comes_back_when_its_server_is_gone(
    browser: Browser, module_system: Running
) -> None:
    system = module_system
    await system.put({"/test/load": 100})
    page = await open_page(browser, system.page, price="/test/load", load="/test/load")
    await shows_load(page, "100")
    await system.put({"/test/load": 200})
    await shows_load(page, "200")

    # The page's own server is gone: it comes back through nginx, to the other one if need be.
    for name in ("websocket-1", "websocket-2"):
        if (await system.status(name))["clients"]:
            system.kill(name)
    await system.put({"/test/load": 300})
    await shows_load(page, "300")
