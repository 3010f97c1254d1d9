"""Firefox, which speaks WebDriver BiDi (https://www.w3.org/TR/webdriver-bidi/) itself: no driver is between."""

import asyncio
import contextlib
import os
import re
import shutil
import tempfile
from collections.abc import AsyncIterator
from typing import Any

import orjson
from websockets.asyncio.client import ClientConnection, connect

from tests.engines.page import NoEngine, Page
from tests.support.patience import PATIENCE_S
from tests.support.required import unavailable


class FirefoxPage(Page):
    """A tab, and the session that drives it."""

    def __init__(self, session: ClientConnection) -> None:
        self._session = session
        self._last = 0
        self._context = ""
        self.errors = []

    async def start(self) -> None:
        created = await self.command("session.new", capabilities={})
        self.version = created["capabilities"]["browserVersion"]
        self._context = (await self.command("browsingContext.create", type="tab"))["context"]
        await self.command("session.subscribe", events=["log.entryAdded"], contexts=[self._context])

    async def command(self, method: str, **params: Any) -> Any:
        """Send a command and return its result; the events in between are entries of the log."""
        self._last += 1
        await self._session.send(orjson.dumps({"id": self._last, "method": method, "params": params}).decode())
        async with asyncio.timeout(PATIENCE_S):
            while (answer := orjson.loads(await self._session.recv()))["type"] == "event":
                if answer["params"]["level"] == "error":
                    self.errors.append(answer["params"]["text"])
        if answer["type"] != "success":
            raise AssertionError(f"{method}: {answer['error']}: {answer['message']}")
        return answer["result"]

    async def goto(self, url: str) -> None:
        await self.command("browsingContext.navigate", context=self._context, url=url, wait="complete")

    async def evaluate(self, expression: str) -> Any:
        # BiDi has a form of its own for values.
        found = await self.command(
            "script.evaluate",
            expression=f"(async () => JSON.stringify((await ({expression})) ?? null))()",
            target={"context": self._context},
            awaitPromise=True,
        )
        if found["type"] != "success":
            raise AssertionError(found["exceptionDetails"]["text"])
        return orjson.loads(found["result"]["value"])

    async def reload(self) -> None:
        await self.command("browsingContext.reload", context=self._context, wait="complete")

    async def back(self) -> None:
        await self.command("browsingContext.traverseHistory", context=self._context, delta=-1)

    async def set_offline(self, value: bool) -> None:
        conditions = {"type": "offline"} if value else None
        await self.command("emulation.setNetworkConditions", networkConditions=conditions, contexts=[self._context])


@contextlib.asynccontextmanager
async def firefox_page() -> AsyncIterator[Page]:
    """Start a browser with a profile of its own."""
    path = shutil.which("firefox-esr") or shutil.which("firefox")
    if path is None:
        unavailable("Firefox", NoEngine("firefox"))
    with tempfile.TemporaryDirectory(prefix="firefox-", ignore_cleanup_errors=True) as profile:
        process = await asyncio.create_subprocess_exec(
            *(path, "--headless", "--no-remote", "--profile", profile, "--remote-debugging-port", "0", "about:blank"),
            env={**os.environ, "HOME": profile},
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
        assert process.stderr is not None
        try:
            async with asyncio.timeout(PATIENCE_S):
                found = None
                while found is None and (line := await process.stderr.readline()):
                    found = re.search(rb"BiDi listening on (ws://\S+)", line)
            if found is None:
                raise AssertionError("Firefox ended without a WebDriver BiDi address")
            # What it writes later would fill the pipe.
            drain = asyncio.create_task(process.stderr.read())
            async with connect(found[1].decode() + "/session", max_size=None) as session:
                page = FirefoxPage(session)
                await page.start()
                yield page
                await page.command("browser.close")
            await asyncio.wait_for(process.wait(), PATIENCE_S)
            await drain
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
