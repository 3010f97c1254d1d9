"""A reader whose quota is used up, in Chromium: updates without data, refused requests, the newest data in the end."""

import itertools
import re
from pathlib import Path
from typing import Final

import pytest
from playwright.async_api import Response, expect

from tests.e2e.chromium import chromium
from tests.e2e.test_public import Traffic, create_key, wait_for_token_keys
from tests.support.patience import FACTOR, PATIENCE_S
from tests.support.required import in_cluster
from tests.support.running import running

pytestmark = [
    pytest.mark.chromium,
    pytest.mark.takes(90),
    in_cluster("it waits for a minute of the plan"),
]

PLAN: Final = """
source = []
[[plan]]
name = "page"
prefixes = ["/dam"]
per_minute = 10
"""
MINUTE_S: Final = 61
"""Until the plan has requests left again; as long may a page wait beyond this, at random."""
USED_UP: Final = "not up to date: the quota of the key is used up"


async def test_a_page_whose_quota_is_used_up_keeps_what_it_shows_and_follows_when_it_has_more(tmp_path: Path) -> None:
    # A client of this machine would need no token.
    options = ("--anonymous", "off", "--set", "data:DIEM_DATA_ANONYMOUS_READS=off")
    async with chromium() as browser, running(tmp_path, config=PLAN, options=options) as system:
        await wait_for_token_keys(system)
        key = await create_key(system)
        await system.put({"/dam/a": 0})
        page = await browser.new_page()
        traffic, answers = Traffic(page), list[tuple[int, str]]()

        def answered(response: Response) -> None:
            if "/v1/data/" in response.url:
                answers.append((response.status, response.headers.get("retry-after", "")))

        page.on("response", answered)
        await page.goto(f"{system.page}login.html")
        state, health, row = page.locator("#state"), page.locator("#health"), page.locator("#endpoints li")
        await page.fill("#key", key["key"])
        await page.fill("#endpoint", "/dam/a")
        await page.click("text=Log in")
        await expect(row).to_contain_text("/dam/a: 0 MW")

        # Each is shown, until as many were read or are leased to the server as the plan allows.
        shown = re.compile(r"\b(\d+) MW")
        for value in itertools.count(1):
            await system.put({"/dam/a": value})
            await expect(row.or_(health).filter(has_text=re.compile(rf": {value} MW|{USED_UP}"))).not_to_have_count(0)
            if await health.text_content():
                break
        before = shown.search(await row.text_content() or "")
        assert before is not None
        assert 0 < int(before[1]) < value
        assert "data" not in traffic.of("update")[-1]
        await expect(health).to_have_text(USED_UP)
        await expect(state).to_have_text("logged in")
        assert answers[-1][0] == 429
        assert int(answers[-1][1]) <= MINUTE_S

        await system.put({"/dam/a": value + 1})
        await expect(row).to_contain_text(f": {value + 1} MW", timeout=(2 * MINUTE_S * FACTOR + PATIENCE_S) * 1000)
        await expect(health).to_have_text("")
        # It was fetched, or came with its data: what the server had leased and not used is sent as well.
        assert answers[-1][0] == 200 or "data" in traffic.of("update")[-1]
        assert len(traffic.urls) == 1
        assert not traffic.closed
