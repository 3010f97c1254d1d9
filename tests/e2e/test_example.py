"""The README's ten lines of the SDK, as the example page that every Data Service serves."""

import re
from pathlib import Path

import pytest
from playwright.async_api import Browser, expect

from tests.support.running import ROOT, running

pytestmark = pytest.mark.chromium


@pytest.mark.asyncio(loop_scope="session")
async def test_the_example_shows_the_load_and_each_change_of_it(tmp_path: Path, browser: Browser) -> None:
    async with running(tmp_path) as system:
        await system.put({"/load/GR": 5000})
        page = await browser.new_page()
        errors: list[str] = []
        page.on("pageerror", lambda error: errors.append(str(error)))
        await page.goto(f"{system.page}example.html")
        await expect(page.locator("#load")).to_have_text("5000 MW")
        await system.put({"/load/GR": 5001})
        await expect(page.locator("#load")).to_have_text("5001 MW")
        await page.click("#stop")
        assert errors == []


def test_the_readme_shows_the_example_that_is_served() -> None:
    example = (ROOT / "client/public/example.js").read_text().partition("\n")[2]
    shown = re.search(r"```js\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert shown is not None
    assert shown[1] == example
