"""Chromium, driven by Playwright."""

import contextlib
from collections.abc import AsyncIterator
from typing import Any

from playwright.async_api import Error
from playwright.async_api import Page as Tab

from tests.e2e.chromium import chromium
from tests.engines.page import Page


class ChromiumPage(Page):
    """A tab of Playwright."""

    def __init__(self, tab: Tab, version: str) -> None:
        self._tab = tab
        self.version = version
        self.errors = []
        tab.on("console", lambda message: self.errors.append(message.text) if message.type == "error" else None)
        tab.on("pageerror", lambda error: self.errors.append(f"uncaught: {error}"))

    async def goto(self, url: str) -> None:
        await self._tab.goto(url)

    async def evaluate(self, expression: str) -> Any:
        try:
            return await self._tab.evaluate(expression)
        except Error as error:
            raise AssertionError(str(error)) from error

    async def reload(self) -> None:
        await self._tab.reload()

    async def back(self) -> None:
        await self._tab.go_back()

    async def set_offline(self, value: bool) -> None:
        await self._tab.context.set_offline(value)


@contextlib.asynccontextmanager
async def chromium_page() -> AsyncIterator[Page]:
    async with chromium() as browser:
        yield ChromiumPage(await browser.new_page(), browser.version)
