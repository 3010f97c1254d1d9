"""A real headless Chromium: the distribution's, driven by Playwright.

The headless shell is the same engine without windows, and Playwright's own default: loading a page costs a quarter of
the CPU time.
"""

import contextlib
import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

from playwright.async_api import Browser, async_playwright, expect

from tests.support.patience import PATIENCE_S
from tests.support.required import unavailable

NAMES: Final = ("chromium-headless-shell", "chromium", "chromium-browser")
PATH = next(filter(None, map(shutil.which, NAMES)), None)
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


def arguments() -> list[str]:
    """Return the flags of every browser: root may start it without a sandbox only."""
    return [*FLAGS, "--no-sandbox"] if os.geteuid() == 0 else FLAGS


class NoChromium(Exception):
    """There is no Chromium on this machine."""

    def __str__(self) -> str:
        return "no Chromium here (on Debian: apt install chromium-headless-shell)"


@contextlib.asynccontextmanager
async def chromium(home: Path | None = None) -> AsyncIterator[Browser]:
    """Start a browser; without one the test is skipped, or fails where it is required.

    ``home`` is its home directory, with the authorities that it trusts (``tests.support.nss``).
    """
    if PATH is None:
        unavailable("Chromium", NoChromium())
    async with async_playwright() as playwright:
        environment: dict[str, str | float | bool] | None = None if home is None else {**os.environ, "HOME": str(home)}
        browser = await playwright.chromium.launch(
            executable_path=PATH, args=arguments(), env=environment, timeout=PATIENCE_S * 1000
        )
        yield browser
        await browser.close()
