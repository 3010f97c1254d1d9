"""WebKitGTK's MiniBrowser, driven by WebDriver (https://www.w3.org/TR/webdriver2/) on a display without a screen."""

import asyncio
import contextlib
import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import httpx

from tests.engines.page import NoEngine, Page
from tests.support.patience import PATIENCE_S
from tests.support.ports import free_port
from tests.support.required import unavailable

_COLLECT: Final = """
if (!window.failures) {
  window.failures = [];
  addEventListener("error", ({ message }) => failures.push(`uncaught: ${message}`));
  addEventListener("unhandledrejection", ({ reason }) => failures.push(`uncaught: ${reason}`));
  const { error } = console;
  console.error = (...parts) => {
    failures.push(parts.join(" "));
    error(...parts);
  };
}
"""


class WebKitPage(Page):
    """The window of a session. Automated, MiniBrowser has a session without a profile, as a private window.

    The driver has no log, and the browser writes none of such a session: a document's errors are collected from the
    first expression on that it is asked for.
    """

    can_be_offline = False

    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http = http
        self._session = ""
        self.errors = []

    async def start(self, program: Path) -> None:
        options = {"binary": str(program), "args": ["--automation"]}
        created = await self._post("/session", capabilities={"alwaysMatch": {"webkitgtk:browserOptions": options}})
        self.version = created["capabilities"]["browserVersion"]
        self._session = f"/session/{created['sessionId']}"

    async def end(self) -> None:
        await self._http.delete(self._session)

    async def _post(self, path: str, **body: Any) -> Any:
        value = (await self._http.post(self._session + path, json=body)).json()["value"]
        if isinstance(value, dict) and "error" in value:
            raise AssertionError(f"{path}: {value['error']}: {value['message']}")
        return value

    async def take_errors(self) -> list[str]:
        await self._collect()
        return await super().take_errors()

    async def _collect(self) -> None:
        self.errors += await self.evaluate("window.failures.splice(0)")

    async def goto(self, url: str) -> None:
        await self._collect()
        await self._post("/url", url=url)

    async def evaluate(self, expression: str) -> Any:
        script = f"{_COLLECT}; return (async () => ({expression}))()"
        return await self._post("/execute/sync", script=script, args=[])

    async def reload(self) -> None:
        await self._collect()
        await self._post("/refresh")

    async def back(self) -> None:
        await self._collect()
        await self._post("/back")


@contextlib.asynccontextmanager
async def _display() -> AsyncIterator[str]:
    reading, writing = os.pipe()
    try:
        process = await asyncio.create_subprocess_exec(
            *("Xvfb", "-displayfd", str(writing), "-screen", "0", "1280x900x24", "-nolisten", "tcp"),
            pass_fds=[writing],
            stderr=asyncio.subprocess.DEVNULL,
        )
    finally:
        os.close(writing)
    try:
        with os.fdopen(reading) as pipe:
            number = await asyncio.to_thread(pipe.readline)
        yield f":{number.strip()}"
    finally:
        process.terminate()
        await process.wait()


@contextlib.asynccontextmanager
async def webkit_page() -> AsyncIterator[Page]:
    """Start a display, the driver and the browser."""
    program = next(Path("/usr/lib").glob("*/webkit2gtk-4.*/MiniBrowser"), None)
    if program is None or not shutil.which("WebKitWebDriver") or not shutil.which("Xvfb"):
        unavailable("WebKit", NoEngine("webkit"))
    async with _display() as display:
        port = free_port()
        environment = {**os.environ, "DISPLAY": display, "GDK_BACKEND": "x11", "LIBGL_ALWAYS_SOFTWARE": "1"}
        driver = await asyncio.create_subprocess_exec("WebKitWebDriver", f"--port={port}", env=environment)
        try:
            async with httpx.AsyncClient(
                base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE_S, trust_env=False
            ) as http:
                async with asyncio.timeout(PATIENCE_S):
                    while True:
                        with contextlib.suppress(httpx.ConnectError):
                            await http.get("/status")
                            break
                        await asyncio.sleep(0.05)
                page = WebKitPage(http)
                await page.start(program)
                yield page
                await page.end()
        finally:
            driver.terminate()
            await driver.wait()
