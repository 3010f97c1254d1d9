"""The page and the SDK below a path, at two names, over HTTP/2, behind a CDN and behind service workers."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import httpx
import pytest
import pytest_asyncio
from playwright.async_api import Browser, BrowserContext, Page

from diem.protocol.page_config import Edges
from tests.e2e.chromium import chromium
from tests.e2e.page import NO_WEBSOCKET, becomes, shows_load
from tests.support.certificates import Authority
from tests.support.nginx import changed, documented, front_nginx, needs_nginx
from tests.support.nss import trust
from tests.support.patience import PATIENCE_S
from tests.support.ports import free_port
from tests.support.required import in_cluster
from tests.support.running import Running, running

pytestmark = [
    pytest.mark.chromium,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.xdist_group("addresses"),
    needs_nginx,
]

BUFFERED: Final = "location /app/ { proxy_pass http://127.0.0.1:8080/; }"
CACHED: Final = """
location /cdn/ {
  proxy_pass http://127.0.0.1:8080/; proxy_cache cdn; proxy_cache_lock on; add_header X-Cache $upstream_cache_status;
}
location = /cdn/ws { proxy_pass http://127.0.0.1:8101/ws; }"""
"""A CDN: keeps what it may, by the header fields of the answers."""
WATCH: Final = """async ([url, names]) => {
  const { createDiem } = await import(url);
  window.shown = {};
  window.diem = createDiem();
  for (const name of names) diem.watch(name, ({ points }) => (shown[name] = points[0].value));
}"""


class Front:
    """The nginx of docs/going-public.md before a system."""

    def __init__(self, system: Running, port: int, authority: Authority) -> None:
        self.system = system
        self.port = port
        self.authority = authority
        self.url = f"https://localhost:{port}/app/"
        self.cdn = f"https://127.0.0.1:{port}/cdn/"


@contextlib.asynccontextmanager
async def front(directory: Path, mode: str = "single") -> AsyncIterator[Front]:
    """Run a system behind the documented proxy, with a CDN beside it."""
    port, own = free_port(), directory / "front"
    authority = Authority(directory)
    issued = authority.issue()
    options = ("--front-proxy", "127.0.0.1/32", "--anonymous", "on", "--set", "data:DIEM_DATA_ANONYMOUS_READS=on")
    origins = [option for name in ("localhost", "127.0.0.1") for option in ("--origin", f"https://{name}:{port}")]
    (directory / "pages" / "sub").mkdir(parents=True)
    (directory / "pages" / "sub" / "index.html").write_text("<!doctype html><title>mine</title>")
    async with running(directory, mode, options=(*options, *origins, "--pages", str(directory / "pages"))) as system:
        text = documented("front.conf")
        for usual, here, times in (
            ("listen 443 ", f"listen 127.0.0.1:{port} ", 1),
            ("/etc/diem/fullchain.pem", str(issued.certificate), 1),
            ("/etc/diem/privkey.pem", str(issued.key), 1),
            (BUFFERED, BUFFERED + CACHED, 1),
            ("127.0.0.1:8080", urlsplit(system.page).netloc, 2),
            ("127.0.0.1:8101", urlsplit(system.websocket_urls[0]).netloc, 3),
        ):
            text = changed(text, usual, here, times)
        if mode in {"x-broadcast", "xz"}:  # nginx of the system finds the servers itself
            text = "\n".join(line for line in text.splitlines() if "location = /app/" not in line)
        cache = f"proxy_cache_path {own}/cache keys_zone=cdn:1m;"
        async with front_nginx(own, cache + text, port):
            yield Front(system, port, authority)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def app(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Front]:
    """One system for these tests."""
    async with front(tmp_path_factory.mktemp("front")) as found:
        await found.system.put({"/test/load": 100})
        yield found


@pytest_asyncio.fixture(loop_scope="session")
async def context(browser: Browser) -> BrowserContext:
    """Pages that accept the test's certificate."""
    return await browser.new_context(ignore_https_errors=True)


async def watching(context: BrowserContext, url: str, *names: str) -> Page:
    """Open a page below the path with a Diem of the module that is served there."""
    page = await context.new_page()
    await page.goto(f"{url}openapi.json")
    await page.evaluate(WATCH, [f"{url}diem.js", list(names)])
    return page


@pytest.mark.takes(6)
async def test_the_page_and_the_sdk_work_below_two_paths_at_two_names(app: Front, context: BrowserContext) -> None:
    sockets: list[str] = []
    context.on("page", lambda page: page.on("websocket", lambda socket: sockets.append(socket.url)))
    await app.system.put({"/test/load": 100})
    page = await context.new_page()
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("response", lambda answer: errors.append(answer.url) if answer.status >= 400 else None)
    await page.goto(f"{app.url}?price=/test/load&load=/test/load")
    await shows_load(page, "100")
    other = await watching(context, app.cdn, "/test/load")
    await becomes(other, "shown['/test/load'] === 100 && diem.updates.live.value.live")
    await app.system.put({"/test/load": 200})
    await shows_load(page, "200")
    await becomes(other, "shown['/test/load'] === 200")
    assert sockets == [f"wss://localhost:{app.port}/app/ws", f"wss://127.0.0.1:{app.port}/cdn/ws"]
    assert errors == []


@in_cluster("it starts systems of its own")
@pytest.mark.parametrize("mode", ["x-broadcast", "z-proxy", "xz"])
async def test_other_modes_are_live_below_a_path_with_and_without_websocket(
    tmp_path: Path, context: BrowserContext, mode: str
) -> None:
    async with front(tmp_path, mode) as app:
        await app.system.put({"/test/load": 100})
        page = await watching(context, app.url, "/test/load")
        await context.add_init_script(NO_WEBSOCKET)
        other = await watching(context, app.url, "/test/load")
        for value in (100, 200):
            await app.system.put({"/test/load": value})
            for each, transport in ((page, None), (other, "poll")):
                await becomes(each, f"shown['/test/load'] === {value} && diem.updates.live.value.live")
                assert await each.evaluate("diem.updates.connection.value.transport") == transport


@pytest.mark.takes(1)
async def test_links_and_descriptions_stay_below_the_path(app: Front) -> None:
    async with httpx.AsyncClient(verify=False, timeout=PATIENCE_S, follow_redirects=True, http2=False) as http:  # noqa: S501
        assert str((await http.get(f"{app.url}sub?a=1")).url) == f"{app.url}sub/?a=1"
        first = await http.get(f"{app.url}v1/data/test/load")
        again = await http.get(first.url, headers={"If-None-Match": first.headers["ETag"]})
        assert (first.status_code, again.status_code) == (200, 304)
        config = (await http.get(f"{app.url}config.json")).json()
    edges = Edges.of_config(config, app.url.rstrip("/"))
    assert (config["rest"], edges.servers) == ("v1", [f"wss://localhost:{app.port}/app/ws"])


@in_cluster("it waits for fallbacks")
async def test_polls_of_ten_tabs_share_one_connection_of_http_2(app: Front, context: BrowserContext) -> None:
    await context.add_init_script(NO_WEBSOCKET)
    pages = [await watching(context, app.url, "/test/load") for _ in range(10)]
    for page in pages:
        await becomes(page, "diem.updates.live.value.live && diem.updates.connection.value.transport === 'poll'")
    for value in (300, 400):
        await app.system.put({"/test/load": value})
        for page in pages:
            await becomes(page, f"shown['/test/load'] === {value}")
    protocols = "[...new Set(performance.getEntriesByType('resource').map((each) => each.nextHopProtocol))]"
    assert await pages[0].evaluate(protocols) == ["h2"]


@in_cluster()
async def test_a_cdn_keeps_versions_and_nothing_that_changes(app: Front) -> None:
    async with httpx.AsyncClient(verify=False, timeout=PATIENCE_S) as http:  # noqa: S501
        for value in (500, 600):
            written = (await app.system.put({"/test/load": value})).json()
            version = written["accepted"][0]["version"]
            current = await http.get(f"{app.cdn}v1/data/test/load")
            assert current.json()["points"][0]["value"] == value
            url = f"{app.cdn}v1/data/test/load?version={version}"
            cached = [(await http.get(url)).headers["X-Cache"] for _ in range(2)]
            assert cached == ["MISS", "HIT"]
        for path in ("config.json", "v1/endpoints", "v1/data/test/load", "diem.js", ""):
            assert [(await http.get(f"{app.cdn}{path}")).headers["X-Cache"] for _ in range(2)] == ["MISS"] * 2, path


THROUGH: Final = "self.onfetch = (event) => event.respondWith(fetch(event.request));"
CACHE_FIRST: Final = """self.onfetch = (event) => event.respondWith((async () => {
  if (event.request.method !== "GET") return fetch(event.request);
  const cache = await caches.open("all");
  const known = await cache.match(event.request);
  if (known) return known;
  const answer = await fetch(event.request);
  if (answer.ok) await cache.put(event.request, answer.clone());
  return answer;
})());"""
ALL: Final = "self.onactivate = (event) => event.waitUntil(clients.claim());"


@in_cluster()
@pytest.mark.parametrize("worker", [THROUGH, CACHE_FIRST], ids=["passes on", "cache first"])
async def test_a_page_with_a_service_worker_is_as_live(app: Front, tmp_path: Path, worker: str) -> None:
    # Workers are not registered where a certificate is only accepted.
    trust(tmp_path, app.authority)
    async with chromium(tmp_path) as browser:
        await live_with_worker(app, await browser.new_context(), worker)


async def live_with_worker(app: Front, context: BrowserContext, worker: str) -> None:
    pages = app.system.state_dir.parent / "pages"
    name = "through" if worker is THROUGH else "first"
    (pages / name).mkdir(exist_ok=True)
    (pages / name / "worker.js").write_text(worker + ALL)
    (pages / name / "index.html").write_text("<!doctype html><title>mine</title>")
    for value in (700, 800):
        await app.system.put({"/test/load": value})
        page = await context.new_page()
        await page.goto(f"{app.url}{name}/")
        await page.evaluate("""async () => {
          await navigator.serviceWorker.register("worker.js");
          if (!navigator.serviceWorker.controller) {
            await new Promise((resolve) => navigator.serviceWorker.addEventListener("controllerchange", resolve));
          }
        }""")
        await page.evaluate(WATCH, [f"{app.url}diem.js", ["/test/load"]])
        await becomes(page, f"shown['/test/load'] === {value}")
        await app.system.put({"/test/load": value + 1})
        await becomes(page, f"shown['/test/load'] === {value + 1}")


@in_cluster("it starts a system of its own")
@pytest.mark.takes(3)
async def test_a_page_of_a_file_is_live_where_its_origin_is_allowed(tmp_path: Path, browser: Browser) -> None:
    (tmp_path / "mine.html").write_text("<!doctype html><title>mine</title>")
    async with running(tmp_path, options=("--origin", "null")) as system:
        await system.put({"/test/load": 100})
        page = await browser.new_page()
        await page.goto((tmp_path / "mine.html").as_uri())
        await page.evaluate(WATCH, [f"{system.page}diem.js", ["/test/load"]])
        await becomes(page, "shown['/test/load'] === 100 && diem.updates.live.value.live")
        await system.put({"/test/load": 200})
        await becomes(page, "shown['/test/load'] === 200")
        assert await page.evaluate("diem.updates.connection.value.transport") is None
