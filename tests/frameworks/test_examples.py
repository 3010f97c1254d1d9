"""What ``diem new page`` makes of client/examples, built and run in Chromium: ``make frameworks``.

With ``QUICK=1`` the first one alone.
"""

import asyncio
import contextlib
import functools
import gzip
import http.server
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import httpx
import orjson
import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, Response, expect

from tests.e2e.chromium import chromium
from tests.e2e.test_page_kinds import write
from tests.support.patience import FACTOR, PATIENCE_S
from tests.support.ports import free_port
from tests.support.running import ROOT, Running, running
from tests.support.size import SIZE, RunSize

pytestmark = [
    pytest.mark.skipif("RUN_FRAMEWORKS" not in os.environ, reason="it installs eight projects: make frameworks"),
    pytest.mark.asyncio(loop_scope="session"),
]

BUILD: Final = ROOT / "build" / "frameworks"
NODE: Final = str(ROOT / "deploy" / "install" / "node.sh")
PAGES: Final = ("react", "vue", "svelte", "angular", "solid")
SERVERS: Final[dict[str, tuple[str, ...]]] = {
    "next": ("node_modules/next/dist/bin/next", "start"),
    "nuxt": (".output/server/index.mjs",),
    "sveltekit": ("build/index.js",),
}
"""What Node.js runs, with the variables PORT and HOST."""
SILENT: Final = {"NEXT_TELEMETRY_DISABLED": "1", "NUXT_TELEMETRY_DISABLED": "1", "NG_CLI_ANALYTICS": "false"}
LIMIT_S: Final = 600 * FACTOR
"""Longest time of an installation or a build."""
LOAD: Final = "/load/GR"


in_full = pytest.mark.skipif(SIZE is not RunSize.FULL, reason="the first page is enough to see that a build runs")


@dataclass
class Projects:
    """The projects, each with the port of its page, which DIEM lets in."""

    system: Running
    ports: dict[str, int]

    def origin(self, name: str) -> str:
        return f"http://127.0.0.1:{self.ports[name]}"

    async def built(self, name: str) -> Path:
        """Make a project for the running system, install exactly what is locked, and build."""
        project = BUILD / name
        options = ("--with", name, "--state-dir", str(self.system.state_dir))
        made = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "deploy", "new", "page", str(project), *options), cwd=ROOT
        )
        assert await made.wait() == 0
        for command in (("npm", "ci", "--prefer-offline"), ("npm", "run", "build")):
            began = time.monotonic()
            await asyncio.to_thread(run, *command, directory=project)
            print(f"{name}: {' '.join(command)}: {time.monotonic() - began:.0f} s")
        return project


def run(*command: str, directory: Path) -> str:
    """Run a command of Node.js; one that fails, fails the test with what it has printed."""
    done = subprocess.run(
        (NODE, *command),
        cwd=directory,
        env={**os.environ, **SILENT},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, f"{directory.name}: {' '.join(command)} ended with {done.returncode}:\n{done.stdout}"
    return done.stdout


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def projects(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Projects]:
    shutil.rmtree(BUILD, ignore_errors=True)
    BUILD.mkdir(parents=True)
    ports = {name: free_port() for name in (*PAGES, *SERVERS)}
    origins = [option for port in ports.values() for option in ("--origin", f"http://127.0.0.1:{port}")]
    async with running(tmp_path_factory.mktemp("system"), options=tuple(origins)) as system:
        yield Projects(system, ports)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    async with chromium() as started:
        yield started


@dataclass
class OpenPage:
    """A tab, and what its page has done."""

    tab: Page
    problems: list[str] = field(default_factory=list)
    """Errors and warnings."""
    requests: list[str] = field(default_factory=list)
    frames: list[str] = field(default_factory=list)
    """What came over WebSocket."""
    scripts: list[Response] = field(default_factory=list)

    def record(self) -> None:
        self.tab.on("pageerror", lambda error: self.problems.append(str(error)))
        self.tab.on(
            "console",
            lambda message: self.problems.append(message.text) if message.type in {"error", "warning"} else None,
        )
        self.tab.on("request", lambda request: self.requests.append(request.url))
        self.tab.on("websocket", lambda ws: ws.on("framereceived", lambda frame: self.frames.append(str(frame))))
        self.tab.on("response", lambda answer: self.scripts.append(answer) if answer.url.endswith(".js") else None)

    async def print_size(self, name: str) -> None:
        sizes = [len(gzip.compress(await script.body(), 9)) for script in self.scripts]
        print(f"{name}: {len(sizes)} scripts, {sum(sizes)} bytes after gzip")


@contextlib.asynccontextmanager
async def opened(browser: Browser, url: str) -> AsyncIterator[OpenPage]:
    page = OpenPage(await browser.new_page())
    page.record()
    await page.tab.goto(url)
    yield page
    await page.tab.close()


@contextlib.contextmanager
def serving(directory: Path, port: int) -> Iterator[None]:
    """Serve the files of a directory, as any web server does."""

    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            """Log nothing."""

    handler = functools.partial(Handler, directory=str(directory))
    with http.server.ThreadingHTTPServer(("127.0.0.1", port), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join()


@contextlib.asynccontextmanager
async def rendering(project: Path, port: int) -> AsyncIterator[None]:
    """Run the project's server until it has answered, and to the end of the block."""
    process = await asyncio.create_subprocess_exec(
        *(NODE, "node", *SERVERS[project.name]),
        cwd=project,
        env={**os.environ, **SILENT, "PORT": str(port), "HOST": "127.0.0.1", "HOSTNAME": "127.0.0.1"},
        stdout=asyncio.subprocess.DEVNULL,
    )
    try:
        async with asyncio.timeout(PATIENCE_S), httpx.AsyncClient(trust_env=False) as client:
            while True:
                assert process.returncode is None, f"the server of {project.name} has ended"
                with contextlib.suppress(httpx.TransportError):
                    await client.get(f"http://127.0.0.1:{port}/")
                    break
                await asyncio.sleep(0.05)
        yield
    finally:
        if process.returncode is None:
            process.terminate()
        try:
            await asyncio.wait_for(process.wait(), PATIENCE_S)
        except TimeoutError:
            process.kill()
            raise


@pytest.mark.parametrize("name", PAGES if SIZE is RunSize.FULL else PAGES[:1])
async def test_page_shows_each_change(name: str, projects: Projects, browser: Browser) -> None:
    project, system = await projects.built(name), projects.system
    await system.put({LOAD: 100})
    await write(system, "/game/42", {"home": 1, "away": 0})
    with serving(project / "dist", projects.ports[name]):
        async with opened(browser, projects.origin(name)) as page:
            load, scores = page.tab.locator("p"), page.tab.locator("li")
            await expect(load).to_have_text("100 MW")
            await expect(load).to_have_class("current")
            await expect(scores).to_have_text(["/game/42 1:0"])
            await expect(page.tab.locator("footer")).to_have_text("open", use_inner_text=True)
            await page.print_size(name)
            await system.put({LOAD: 101})
            await write(system, "/game/42", {"home": 1, "away": 1})
            await expect(load).to_have_text("101 MW")
            await expect(scores).to_have_text(["/game/42 1:1"])
            assert [url for url in page.requests if "/v1/data" in url] == [], "data comes with updates"
            assert page.problems == []


@in_full
@pytest.mark.parametrize("name", SERVERS)
async def test_server_renders_what_the_browser_takes_over(name: str, projects: Projects, browser: Browser) -> None:
    project, system = await projects.built(name), projects.system
    async with rendering(project, projects.ports[name]):
        for value in (100, 101):
            await system.put({LOAD: value})
            html = (await system.http.get(projects.origin(name))).text
            assert f">{value} MW<" in re.sub("<!--.*?-->", "", html), "it is rendered for each request"
        async with opened(browser, projects.origin(name)) as page:
            load = page.tab.locator("p")
            await expect(load).to_have_class("current")
            await expect(load).to_have_text("101 MW")
            await expect(page.tab.locator("footer")).to_have_text("open", use_inner_text=True)
            await page.print_size(name)
            assert [url for url in page.requests if "/v1/data" in url] == [], "the page has it"
            received = [orjson.loads(frame) for frame in page.frames]
            assert [frame["type"] for frame in received if frame["type"] in {"subscribed", "update"}] == ["subscribed"]
            await system.put({LOAD: 102})
            await expect(load).to_have_text("102 MW")
            assert page.problems == []
