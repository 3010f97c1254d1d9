"""What every end-to-end test is given.

``PAGE_DATA=off`` in the environment: servers send no data with updates, and pages show the same because they fetch it.
"""

import os
import time
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import Browser

from tests.e2e import small_market
from tests.e2e.chromium import chromium
from tests.e2e.small_market import write
from tests.load.environment import RETAINING
from tests.support.running import Running, running

if os.environ.get("PAGE_DATA") == "off":
    os.environ.update({f"DIEM_{process}_RETAINED_DATA_BYTES": "0" for process in RETAINING})

AN_HOUR_S = 3600
LONGEST_S = 60
"""Longer than a test of the page takes."""


@pytest.fixture(autouse=True)
def one_hour(request: pytest.FixtureRequest) -> None:
    """A test of the page ends in the hour, and so on the day, in which it began: what its market calls now is that."""
    left = AN_HOUR_S - time.time() % AN_HOUR_S
    if request.path.name.startswith("test_page_") and left < LONGEST_S:
        time.sleep(left)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def session_browser() -> AsyncIterator[Browser]:
    """One browser, with Playwright's driver, for all tests of a worker: its loop has to be that of their session."""
    async with chromium() as browser:
        yield browser


@pytest_asyncio.fixture(loop_scope="session")
async def browser(session_browser: Browser) -> AsyncIterator[Browser]:
    """The worker's browser, without pages."""
    yield session_browser
    for context in session_browser.contexts:
        await context.close()


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def module_system(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Running]:
    """One system for a module's tests."""
    async with running(tmp_path_factory.mktemp("system")) as system:
        yield system


@pytest_asyncio.fixture(loop_scope="session")
async def market(module_system: Running) -> Running:
    """The module's system, with the small market as it is at first."""
    await write(module_system, *small_market.market())
    return module_system
