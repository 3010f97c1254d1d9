"""However many updates arrive, the page draws at most once a frame, and shows the last of them."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser, Page, expect

from tests.e2e import small_market
from tests.e2e.page import connected, stats
from tests.e2e.small_market import write
from tests.support.patience import PATIENCE_S
from tests.support.required import in_cluster
from tests.support.running import Running, running

pytestmark = [pytest.mark.chromium, pytest.mark.asyncio(loop_scope="session")]

SECONDS = 2
BATCHES_A_SECOND = 10

# Frames of some seconds, and how often one figure was written between two of them. What observes mutations runs once
# for each task that wrote, so two draws for one frame are two.
COUNT = """([seconds, figure]) => new Promise((resolve) => {
  const gaps = [];
  const began = performance.now();
  let last = began;
  let draws = 0;
  let most = 0;
  const observer = new MutationObserver(() => { draws += 1; most = Math.max(most, draws); });
  observer.observe(document.querySelector(figure), { childList: true, characterData: true, subtree: true });
  const frame = () => {
    const now = performance.now();
    gaps.push(now - last);
    last = now;
    draws = 0;
    if (now - began < seconds * 1000) return requestAnimationFrame(frame);
    observer.disconnect();
    resolve({ frames: gaps.length / ((now - began) / 1000), longest: Math.max(...gaps),
              late: gaps.filter((gap) => gap > 34).length, most });
  };
  requestAnimationFrame(frame);
})"""
RENEWABLE = '[data-testid="renewable"]'
"""Follows from all kinds of generation: each of them that changes would draw it again."""


async def frames(page: Page) -> dict[str, Any]:
    result: dict[str, Any] = await page.evaluate(COUNT, [SECONDS, RENEWABLE])
    return result


async def fifty_updates_a_second(system: Running, enough: asyncio.Event) -> None:
    """Five datasets of views in sight, ten times a second, until there are ``enough``."""
    turn = 0
    loop = asyncio.get_running_loop()
    began = loop.time()
    while not enough.is_set():
        turn += 1
        value = 5000.0 + turn % 97
        await write(
            system,
            small_market.generation("GR", "gas", 1000.0 + turn % 5 * 2000),
            small_market.generation("GR", "hydro", 1000.0 + turn % 3 * 3000),
            small_market.generation("GR", "solar", 1000.0 + turn % 7 * 1500),
            small_market.load("GR", value),
            small_market.flow("GR", "BG", value),
        )
        await asyncio.sleep(max(0.0, began + turn / BATCHES_A_SECOND - loop.time()))


@in_cluster("it takes 6 s of CPU time")
async def test_the_page_draws_once_a_frame_under_fifty_updates_a_second(
    tmp_path: Path, browser: Browser, record_property: Callable[[str, object], None]
) -> None:
    async with running(tmp_path) as system:
        await write(system, *small_market.market())
        page = await browser.new_page(viewport={"width": 1280, "height": 2400})
        await page.goto(f"{system.page}#zone=GR")
        await connected(page)
        renewable = page.locator(RENEWABLE)
        await expect(renewable).to_have_text("67 %")
        quiet = await frames(page)
        enough = asyncio.Event()
        received = 0
        async with asyncio.TaskGroup() as updating, asyncio.timeout(PATIENCE_S):
            updating.create_task(fifty_updates_a_second(system, enough))
            # While a process between here and the page stands still, there is nothing to measure.
            while not received:
                before = (await stats(page))["updateFrames"]
                busy = await frames(page)
                received = (await stats(page))["updateFrames"] - before
            enough.set()
        # How many frames a second there are is the machine's affair, and is only recorded.
        figures = {"quiet": quiet, "busy": busy, "updates_a_second": received / SECONDS}
        record_property("frames", figures)
        print(figures)
        assert busy["most"] <= 1, figures
        await write(system, *(small_market.generation("GR", kind, 3000.0) for kind in ("gas", "hydro")))
        await write(system, small_market.generation("GR", "solar", 9000.0))
        await expect(renewable).to_have_text("80 %")
