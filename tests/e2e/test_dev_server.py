"""The React page of the guide on Vite's dev server: live where its origin is allowed; elsewhere it is told why not."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from string import Template
from typing import Final

import httpx
import pytest
from playwright.async_api import Browser, Page, expect

from tests.e2e.test_page_kinds import write
from tests.support.guides import blocks
from tests.support.patience import PATIENCE_S
from tests.support.ports import free_port
from tests.support.required import in_cluster
from tests.support.running import ROOT, Running, running

pytestmark = [in_cluster("it takes 5 s of CPU time"), pytest.mark.chromium, pytest.mark.asyncio(loop_scope="session")]

GUIDE: Final = ROOT / "docs" / "guide" / "front-end.md"
DOCUMENTED_CONFIG: Final = "http://localhost:8080/config.json"
INDEX: Final = """<!doctype html>
<title>Mine</title>
<div id="root"></div>
<script type="module" src="/src/main.jsx"></script>
"""
VAN: Final = {"street": "Main St", "speed": 30}
MAIN: Final = """
import { createElement, StrictMode } from "react";
import { createRoot } from "react-dom/client";
import App from "./App";
createRoot(document.getElementById("root")).render(createElement(StrictMode, null, createElement(App)));
"""
"""As Vite's template has it."""
VITE = Template("""
export default {
  clearScreen: false,
  cacheDir: "$directory/cache",
  optimizeDeps: { noDiscovery: true, include: ["react", "react-dom/client", "react/jsx-dev-runtime"] },
  resolve: {
    alias: { "diem-client/react": "$client/src/sdk/frameworks/react.ts", "diem-client": "$client/src/sdk/index.ts" },
    preserveSymlinks: true,
  },
  server: { fs: { strict: false }, watch: null },
};
""")


@contextlib.asynccontextmanager
async def dev_server(directory: Path, port: int, config_url: str) -> AsyncIterator[None]:
    """Serve the page on a port of this machine."""
    client = ROOT / "client"
    (directory / "src").mkdir(parents=True)
    (directory / "node_modules").symlink_to(client / "node_modules")
    (directory / "index.html").write_text(INDEX)
    (directory / "src" / "main.jsx").write_text(MAIN)
    for block in blocks(GUIDE):
        if block.names_file and block.words[1].startswith("src/"):
            # Data is fetched, not sent with updates, so that the page needs both: the WebSocket server, and to read
            # across origins.
            text = block.text.replace(f'"{DOCUMENTED_CONFIG}"', f'"{config_url}", data: false')
            (directory / block.words[1]).write_text(text)
    config = directory / "vite.config.mjs"
    config.write_text(VITE.substitute(directory=directory, client=client))
    vite = await asyncio.create_subprocess_exec(
        str(ROOT / "deploy/install/node.sh"),
        *("node", str(client / "node_modules/vite/bin/vite.js"), str(directory), "--config", str(config)),
        *("--host", "127.0.0.1", "--port", str(port), "--strictPort"),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
    )
    try:
        async with asyncio.timeout(PATIENCE_S), httpx.AsyncClient() as http:
            while True:
                assert vite.returncode is None, "the dev server has ended"
                # Its page, because it may not be the one that listens there yet. It does not watch its files: on seeing
                # them for the first time it might start again.
                with contextlib.suppress(httpx.TransportError):
                    if "/src/main.jsx" in (await http.get(f"http://127.0.0.1:{port}/")).text:
                        break
                await asyncio.sleep(0.05)
        yield
    finally:
        if vite.returncode is None:
            vite.terminate()
        try:
            async with asyncio.timeout(PATIENCE_S):
                await vite.wait()
        except TimeoutError:
            vite.kill()
            raise


def warnings(system: Running, process: str) -> list[str]:
    """Return the warnings in the log of a process, which ``diem up`` prints."""
    lines = (system.state_dir / "logs" / f"{process}.log").read_text().splitlines()
    events = [json.loads(line) for line in lines if line.startswith("{")]
    return [event["event"] for event in events if event["level"] == "warning"]


async def opened(browser: Browser, url: str) -> tuple[Page, list[str]]:
    """Open a page; the list is filled with the warnings on its console."""
    page = await browser.new_page()
    shown: list[str] = []
    page.on("console", lambda message: shown.append(message.text) if message.type == "warning" else None)
    await page.goto(url)
    return page, shown


async def test_a_page_on_a_dev_server_is_live_where_its_origin_is_allowed_and_is_told_why_not_elsewhere(
    tmp_path: Path, browser: Browser
) -> None:
    port = free_port()
    allowed, foreign = f"http://localhost:{port}", f"http://127.0.0.1:{port}"
    options = ("--origin", allowed, "--clients-per-address", "2")
    async with (
        running(tmp_path, options=options) as system,
        dev_server(tmp_path / "vite", port, f"{system.page}config.json"),
    ):
        await write(system, "/vans/7", VAN)
        mine, _ = await opened(browser, allowed)
        await expect(mine.locator("#state")).to_have_text("open")
        await expect(mine.locator("#van")).to_have_text("30 km/h in Main St")

        # The system's own page, beside it.
        own, _ = await opened(browser, f"{system.page}?view=data&endpoint=/vans/7")
        await write(system, "/vans/7", {**VAN, "speed": 31})
        await expect(mine.locator("#van")).to_have_text("31 km/h in Main St")
        await expect(own.get_by_test_id("tree")).to_contain_text("31")

        # A dev server's other name is another origin.
        remedy = f"{foreign} is not an allowed origin; start with --origin {foreign}"
        (documented,) = (block.text for block in blocks(GUIDE) if block.text.startswith("DIEM: not connected"))
        other, shown = await opened(browser, foreign)
        await expect(other.locator("#state")).to_have_text(f"reconnecting origin: {remedy}")
        assert shown == [documented.replace("5173", str(port))]
        assert f"refused 127.0.0.1: {remedy}" in warnings(system, "data")
        assert (await system.status("data"))["refused"]["origin"] >= 1

        # The address has two clients already.
        limit = "this address has 2 clients already (--clients-per-address)"
        third, shown = await opened(browser, allowed)
        await expect(third.locator("#state")).to_have_text(f"reconnecting limit: {limit}")
        assert shown == [f"DIEM: not connected: limit: {limit}"]
        assert f"refused 127.0.0.1: {limit}" in warnings(system, "websocket-1")
        assert (await system.status("websocket-1"))["refused"]["limit"] >= 1
        await own.close()
        await expect(third.locator("#state")).to_have_text("open")
        await expect(third.locator("#van")).to_have_text("31 km/h in Main St")
