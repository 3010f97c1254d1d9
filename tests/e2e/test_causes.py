"""What a page says when it is not served as it should be: by an old copy, by a proxy without WebSocket, not at all."""

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from string import Template
from typing import Final
from urllib.parse import urlsplit

import httpx
import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, async_playwright, expect

from deploy import nginx
from tests.e2e.chromium import PATH, arguments
from tests.e2e.page import becomes, open_page, shows_load
from tests.support.nginx import needs_nginx
from tests.support.patience import PATIENCE_S, until
from tests.support.ports import free_port
from tests.support.running import ROOT, Running, running

pytestmark = [pytest.mark.chromium, pytest.mark.asyncio(loop_scope="session"), pytest.mark.xdist_group("causes")]

IN_THE_WAY: Final = Template("""
daemon off;
master_process off;
pid $directory/nginx.pid;
error_log $directory/error.log;
events {}
http {
  access_log off;
  client_body_temp_path $directory/body;
  proxy_temp_path $directory/proxy;
  fastcgi_temp_path $directory/fastcgi;
  uwsgi_temp_path $directory/uwsgi;
  scgi_temp_path $directory/scgi;
  proxy_cache_path $directory/cache keys_zone=old:1m;
  server {
    listen 127.0.0.1:$port;
    proxy_http_version 1.1;
    $headers
    location / { proxy_pass $origin; }
    location = /config.json { return 200 '{"mode":"single","servers":[{"port":$port,"path":"/ws"}],"rest":"/v1"}'; }
    location = /ws { proxy_pass http://$websocket; $upgrade }
    location /v1/data/ {
      proxy_pass $origin;
      proxy_cache old;
      proxy_cache_key $$uri;
      proxy_cache_valid any 1d;
      proxy_ignore_headers Cache-Control Vary;
    }
  }
}
""")
"""What others have put before the system: it answers for data with the first copy that it got, whatever is asked."""
UPGRADE: Final = "proxy_set_header Upgrade websocket; proxy_set_header Connection upgrade;"
"""nginx inherits no header fields where a location sets some."""

WATCH: Final = """async ([configUrl, names, data]) => {
  const { createDiem } = await import("/diem.js");
  window.diem = createDiem({ configUrl, data });
  window.refused = {};
  window.shown = {};
  for (const name of names) {
    diem.watch(name, ({ points }) => (shown[name] = points[0].value), ({ message }) => (refused[name] = message));
  }
}"""
REASON: Final = "window.diem.updates.connection.value.reason"


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def module_system(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Running]:
    """One system for these tests."""
    async with running(tmp_path_factory.mktemp("system")) as system:
        yield system


@contextlib.asynccontextmanager
async def in_the_way(directory: Path, system: Running, *, upgrade: bool) -> AsyncIterator[str]:
    """Run nginx before the system; returns its URL. Without ``upgrade`` no handshake reaches a server."""
    directory.mkdir()
    port = free_port()
    origin = system.page.rstrip("/")
    headers = f"proxy_set_header Host {urlsplit(origin).netloc}; proxy_set_header Origin {origin};"
    text = IN_THE_WAY.substitute(
        directory=directory,
        port=port,
        headers=headers,
        origin=origin,
        websocket=urlsplit(system.websocket_urls[0]).netloc,
        upgrade=f"{headers} {UPGRADE}" if upgrade else "",
    )
    nginx.write(directory, text)
    process = await asyncio.create_subprocess_exec(*nginx.argv(nginx.find(), directory))
    url = f"http://127.0.0.1:{port}"
    try:

        async def answers() -> bool:
            try:
                return (await system.http.get(f"{url}/config.json")).is_success
            except httpx.TransportError:
                return False

        async with asyncio.timeout(PATIENCE_S):
            while not await answers():
                await asyncio.sleep(0.05)
        yield url
    finally:
        process.terminate()
        await process.wait()


async def bare(browser: Browser, url: str) -> Page:
    """Open a page without a Diem of its own, from which ``/diem.js`` can be imported."""
    page = await browser.new_page()
    await page.goto(f"{url}/openapi.json")
    return page


@needs_nginx
async def test_an_old_copy_that_is_served_for_ever_is_named(
    tmp_path: Path, browser: Browser, module_system: Running
) -> None:
    await module_system.put({"/test/load": 100})
    async with in_the_way(tmp_path / "nginx", module_system, upgrade=True) as url:
        page = await open_page(browser, f"{url}/", price="/test/load", load="/test/load", data="off")
        await shows_load(page, "100")
        await module_system.put({"/test/load": 200})
        note = page.get_by_test_id("price-view").locator(".note")
        await expect(note).to_have_text("An old copy is served")
        await expect(page.get_by_test_id("connection")).to_contain_text("Live")
        failing = "window.diem.data.health.value.failing.get('/test/load')"
        assert "an old copy is served: version" in await page.evaluate(f"{failing}.message")
        await shows_load(page, "100")


@needs_nginx
async def test_handshakes_that_a_proxy_does_not_pass_on_are_named(
    tmp_path: Path, browser: Browser, module_system: Running
) -> None:
    await module_system.put({"/test/load": 100})
    async with in_the_way(tmp_path / "nginx", module_system, upgrade=False) as url:
        page = await bare(browser, url)
        await page.evaluate(WATCH, [f"{url}/config.json", ["/test/load"], True])
        await becomes(page, f"{REASON}.startsWith('handshake: ')")
        assert await page.evaluate("shown['/test/load']") == 100


@contextlib.contextmanager
def hosted() -> Iterator[int]:
    """Serve the SDK as any host of a page does; returns the port."""
    handler = partial(QuietHandler, directory=str(ROOT / "client" / "dist"))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        yield server.server_port
        server.shutdown()
        serving.join()


class QuietHandler(SimpleHTTPRequestHandler):
    """Logs no requests."""

    def log_message(self, *_args: object) -> None:
        """Say nothing."""


async def test_a_page_of_the_internet_is_told_that_its_browser_keeps_it_from_this_machine() -> None:
    with hosted() as port:
        flags = [
            f"--ip-address-space-overrides=127.0.0.1:{port}=public",
            f"--host-resolver-rules=MAP page.example 127.0.0.1:{port}",
        ]
        async with async_playwright() as playwright:
            other = await playwright.chromium.launch(executable_path=PATH, args=[*arguments(), *flags])
            page = await other.new_page()
            warnings: list[str] = []
            page.on("console", lambda message: warnings.append(message.text))
            await page.goto("http://page.example/no-page")
            await page.evaluate(WATCH, [f"http://127.0.0.1:{free_port()}/config.json", [], True])
            await becomes(page, f"{REASON}.startsWith('local: browsers keep pages of other networks from 127.0.0.1:')")
            await until(lambda: any(text.startswith("DIEM: not connected: local: ") for text in warnings))
            await other.close()


async def test_a_configuration_that_is_not_there_is_named(browser: Browser, module_system: Running) -> None:
    page = await bare(browser, module_system.page.rstrip("/"))
    await page.evaluate(WATCH, ["/nowhere/config.json", [], True])
    await becomes(page, f"/^unreachable: .*.nowhere.config.json answers: /.test({REASON})")


async def test_a_page_of_a_thousand_series_works_and_more_are_refused_at_once(
    browser: Browser, module_system: Running
) -> None:
    names = [f"/wide/e{number}" for number in range(1_000)]
    for first in range(0, len(names), 50):
        await module_system.put(dict.fromkeys(names[first : first + 50], first))
    page = await bare(browser, module_system.page.rstrip("/"))
    await page.evaluate(WATCH, ["/config.json", names, True])
    await becomes(page, f"Object.keys(shown).length === {len(names)} && diem.updates.live.value.affected.size === 0")
    assert await page.evaluate("[Object.keys(refused).length, Object.keys(diem.stats.fetches).length]") == [0, 0]

    more = [f"/more/e{number}" for number in range(6_000)]
    late = await page.evaluate(
        """(names) => new Promise((resolve) => {
          const codes = [];
          const heard = ({ code, message }) => codes.push(`${code}: ${message}`);
          for (const name of names) diem.updates.subscribe(name, heard);
          queueMicrotask(() => queueMicrotask(() => resolve([codes.length, [...new Set(codes)]])));
        })""",
        more,
    )
    assert late == [
        len(more) - 24,
        ["limit: over 1024 subscriptions (DIEM_*_SUBSCRIPTIONS)"],
    ]
