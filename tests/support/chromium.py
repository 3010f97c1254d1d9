"""A real headless Chromium: the distribution's, driven by Playwright."""

import contextlib
import os
import shutil
from collections.abc import AsyncIterator

import pytest
from playwright.async_api import Browser, async_playwright, expect

from tests.support.patience import PATIENCE_S

PATH = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = [
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
# Of every expectation that does not say otherwise: the 5 s that are usual are little beside other tests.
expect.set_options(timeout=PATIENCE_S * 1000)


@contextlib.asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    """Start a browser; the test is skipped where there is none, and fails where there must be one."""
    if PATH is None:
        if os.environ.get("CI"):
            pytest.fail("Chromium is missing, and the run is the one that must have it")
        pytest.skip("no Chromium here (on Debian: apt install chromium)")
    async with async_playwright() as playwright:
        flags = [*FLAGS, "--no-sandbox"] if os.geteuid() == 0 else FLAGS
        browser = await playwright.chromium.launch(executable_path=PATH, args=flags, timeout=PATIENCE_S * 1000)
        yield browser
        await browser.close()
