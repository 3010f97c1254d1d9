"""The operator page: sign-in, a killed server, an outage and a plan, as an operator sees them."""

import os
import re
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, expect

from deploy.clients.metadata import MetadataService, metadata_service
from diem.process.key_ring import KeyRing
from metadata.plans.plan import Plan, encode
from tests.e2e.axe import RULES, SCHEMES, violations
from tests.support.kafka import SharedBroker, options_on
from tests.support.nginx import front_nginx, needs_nginx
from tests.support.ports import free_port
from tests.support.required import in_cluster
from tests.support.running import Running, running

# One system for all of these.
pytestmark = [
    pytest.mark.chromium,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.xdist_group("operator-page"),
    pytest.mark.takes(50),
]

SCREENSHOTS: Final = os.environ.get("OPERATOR_SCREENSHOTS")
"""Directory for pictures of the page, for people."""
MOVE_S: Final = 10
"""So long that no refresh of the page misses the phase, however slow the machine is."""
ENDPOINTS: Final = [f"/load/{zone}" for zone in ("AT", "BG", "DE", "FR", "GR", "IT", "RO", "RS")]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def system(tmp_path_factory: pytest.TempPathFactory, kafka: SharedBroker) -> AsyncIterator[Running]:
    """A system with endpoints that a plan can move."""
    move = ("--set", f"metadata:DIEM_METADATA_MOVE_SECONDS={MOVE_S}")
    directory = tmp_path_factory.mktemp("operator")
    async with running(directory, "z-client", servers=2, options=(*options_on(kafka), *move)) as started:
        await started.put(dict.fromkeys(ENDPOINTS, 100))
        yield started


def url_of(system: Running) -> str:
    return str(system.described["urls"]["operator"])


async def sign_in(page: Page, system: Running, url: str | None = None) -> None:
    await page.goto(url or url_of(system))
    await page.get_by_label("Operator key").fill((system.state_dir / "operator.key").read_text().strip())
    await page.get_by_role("button", name="Sign in").click()
    await expect(page.get_by_test_id("mode")).to_have_text("z-client")


async def opened(browser: Browser, system: Running) -> Page:
    """Open the page in a browser of its own, signed in."""
    context = await browser.new_context(color_scheme="light", viewport={"width": 1280, "height": 900})
    page = await context.new_page()
    await sign_in(page, system)
    return page


async def is_well(page: Page) -> None:
    await expect(page.get_by_test_id("headline")).to_have_text("All well")
    await expect(page.get_by_test_id("verdict")).to_have_attribute("data-state", "well")


async def is_up(page: Page) -> None:
    """Everything runs; that one was killed again and again may still be a finding."""
    await expect(page.get_by_test_id("headline")).to_have_text(
        re.compile("^(All well|websocket-1 dies again and again)$")
    )
    await expect(page.locator("[data-node]:not([data-level='ok'])")).to_have_count(0)


SHORTER: Final = """document.querySelectorAll(".do").forEach(({ lastChild: text }) => {
    text.textContent = text.textContent.replace(/\\S*\\/logs\\//g, "/var/lib/diem/logs/");
})"""
"""Names the logs of a service, not those of the test."""


async def picture(page: Page, name: str) -> None:
    if SCREENSHOTS:
        await page.evaluate(SHORTER)
        await page.screenshot(path=Path(SCREENSHOTS) / f"{name}.png", full_page=True)


async def test_sign_in_takes_the_key_and_ends_with_sign_out(browser: Browser, system: Running) -> None:
    page = await (await browser.new_context()).new_page()
    # The address that people know leads there.
    await page.goto(f"{system.page}admin")
    await expect(page).to_have_url(f"{url_of(system)}/login")
    assert await violations(page) == []
    await picture(page, "login")
    await page.get_by_label("Operator key").fill("not the key of this page")
    await page.get_by_role("button", name="Sign in").click()
    await expect(page.get_by_text("That is not the key.")).to_be_visible()

    await sign_in(page, system)
    await expect(page).to_have_url(f"{url_of(system)}/")
    assert await page.evaluate("document.cookie") == "", "scripts do not see the session"
    await page.get_by_role("button", name="Sign out").click()
    await expect(page).to_have_url(f"{url_of(system)}/login")
    await page.goto(url_of(system))
    await expect(page.get_by_label("Operator key")).to_be_visible()


@in_cluster("it starts an nginx of its own")
@needs_nginx
async def test_a_proxy_of_the_same_machine_may_have_it_below_a_path(
    browser: Browser, system: Running, tmp_path: Path
) -> None:
    port, own = free_port(), urlsplit(url_of(system)).netloc
    location = f"location /ops/ {{ proxy_pass http://{own}/; proxy_set_header Host $http_host; }}"
    async with front_nginx(tmp_path / "front", f"server {{ listen 127.0.0.1:{port}; {location} }}", port):
        page = await (await browser.new_context()).new_page()
        url = f"http://localhost:{port}/ops/admin/"
        await sign_in(page, system, url)
        await expect(page).to_have_url(url)
        await page.get_by_role("button", name="Sign out").click()
        await expect(page).to_have_url(f"{url}login")
        await page.goto(url)
        await expect(page.get_by_label("Operator key")).to_be_visible()


@in_cluster("it opens each page in each scheme")
async def test_axe_finds_nothing_and_nothing_scrolls_sideways(browser: Browser, system: Running) -> None:
    page = await opened(browser, system)
    await is_well(page)
    # `diem up` keeps the history without a page.
    await expect(page.locator(".curve path[d*='L']")).not_to_have_count(0)
    for width in (1280, 360):
        await page.set_viewport_size({"width": width, "height": 900})
        for scheme in SCHEMES:
            await page.emulate_media(color_scheme=scheme)
            await expect(page.locator("[data-node='websocket-2']")).to_be_visible()
            assert await violations(page, RULES[scheme]) == [], (scheme, width)
            await picture(page, f"well-{scheme}-{width}")
            assert not await page.evaluate("document.documentElement.scrollWidth > innerWidth"), (scheme, width)
    # A table that continues beyond the edge says so, until its end.
    table = page.locator(".scroll", has=page.locator("#processes"))
    await expect(table).not_to_have_css("mask-image", "none")
    await table.evaluate("table => table.scrollLeft = table.scrollWidth")
    await expect(table).to_have_css("mask-image", "none")


async def test_killed_server_is_down_and_then_back(browser: Browser, system: Running) -> None:
    page = await opened(browser, system)
    await is_well(page)
    node, row = page.locator("[data-node='websocket-1']"), page.locator("[data-key='websocket-1']")
    await expect(node).to_have_attribute("data-level", "ok")
    async with system.held_down("websocket-1"):
        await expect(page.get_by_test_id("headline")).to_contain_text("websocket-1 is down")
        await expect(node).to_have_attribute("data-level", "critical")
        await expect(row).to_contain_text("killed by SIGKILL")
        finding = page.locator("[data-kind='down']")
        await expect(finding).to_contain_text("Action: Wait a few seconds.")
        await expect(page.get_by_test_id("events")).to_contain_text("died: killed by SIGKILL")
        assert await violations(page) == []
        await picture(page, "killed")
        if SCREENSHOTS:
            await page.set_viewport_size({"width": 360, "height": 740})
            await picture(page, "killed-phone")
            await page.set_viewport_size({"width": 1280, "height": 900})
    await is_up(page)
    await expect(node).to_have_attribute("data-level", "ok")
    await expect(page.get_by_test_id("events")).to_contain_text("ready again")


async def test_plan_that_is_applied_shows_its_phase_and_its_moves(browser: Browser, system: Running) -> None:
    service = await metadata(system)
    head = (await service.snapshot()).map.head
    plan = Plan(head.epoch, head.partitions, {name: number % 4 for number, name in enumerate(ENDPOINTS)}, (2,))
    page = await opened(browser, system)
    await is_up(page)
    await service.submit(encode(plan))
    await expect(page.get_by_test_id("plans")).to_contain_text("ready")
    begun = await service.apply(plan.id)
    assert begun.moves > 0
    progress = page.get_by_test_id("plan")
    await expect(progress).to_contain_text(f"{plan.id} is applied")
    await expect(progress.locator("[aria-current='step']")).to_contain_text("Move")
    await expect(page.get_by_test_id("moves").locator("li").first).to_contain_text("→")
    await picture(page, "plan")
    await expect(progress).to_be_hidden()
    await expect(page.locator(f"[data-key='{plan.id}']")).to_contain_text("applied")


async def metadata(system: Running) -> MetadataService:
    url = str(system.processes["metadata"]["urls"]["internal"])
    return metadata_service([url], KeyRing.load(system.state_dir / "internal.key"))


async def test_page_says_when_diem_up_does_not_answer_and_goes_on_by_itself(browser: Browser, system: Running) -> None:
    page = await opened(browser, system)
    await is_up(page)
    os.kill(system.up.pid, signal.SIGSTOP)
    try:
        # A request that waits is no answer either; it is given up after some seconds.
        await expect(page.get_by_test_id("headline")).to_have_text("No answer from diem up")
        await picture(page, "silent")
    finally:
        os.kill(system.up.pid, signal.SIGCONT)
    await is_up(page)
