"""The page with data of every kind: documents and their changes, text and images in which nothing runs, collections."""

import asyncio
import json
import re
import sys
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

import orjson
import pytest
from playwright.async_api import Browser, Page, expect

from tests.e2e.axe import SIZES, nothing_is_found
from tests.e2e.embedding import PNG
from tests.e2e.page import MINUS, becomes, connected
from tests.e2e.payloads import DOCUMENTS, SERIES, csv
from tests.support.required import in_cluster
from tests.support.running import ROOT, Running

# The browser and the system are started once, by the worker that runs all of these.
pytestmark = [
    in_cluster("it takes 5 s of CPU time"),
    pytest.mark.chromium,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.xdist_group("page-kinds"),
    pytest.mark.takes(15),
]

SCORE = {"home": {"name": "AEK", "goals": 1}, "away": {"name": "PAOK", "goals": 0}, "live": True, "events": [12, 30]}
OWNED = "document.title = 'owned'; window.owned = true"
HTML = f'<!doctype html><title>Hi</title><script>{OWNED}</script><img src=x onerror="{OWNED}">'
SVG = f'<svg xmlns="http://www.w3.org/2000/svg" onload="{OWNED}"><script>{OWNED}</script></svg>'
JSON = "application/json"
OF_SERIES = "application/vnd.diem.series+json"
MERGE = "application/merge-patch+json"
# The commands of standard input, in one process, for its start takes longer than they do.
COMMANDS: Final = """
import json, sys
from deploy.cli.commands import main
for line in sys.stdin:
    sys.argv = ["diem", *json.loads(line)]
    if main():
        sys.exit(1)
"""
WATCH: Final = """(names) => {
  window.shown = {};
  for (const name of names) diem.watch(name, ({ version, value }) => { shown[name] = { version, value }; });
}"""


async def write(system: Running, endpoint: str, body: Any, media_type: str = JSON, method: str = "PUT") -> int:
    """Write content of any kind, JSON if it is neither text nor bytes; it must succeed. Returns its version."""
    response = await system.http.request(
        method,
        f"{system.page}v1/data{endpoint}",
        content=body if isinstance(body, str | bytes) else orjson.dumps(body),
        headers={"Authorization": f"Bearer {system.write_key}", "Content-Type": media_type},
    )
    return int(response.raise_for_status().json()["version"])


async def put_by_command(system: Running, directory: Path) -> dict[str, int]:
    """Store all payloads by ``diem put``; returns their versions."""
    commands: list[list[str]] = []
    for name, (value, _) in (DOCUMENTS | SERIES).items():
        file = directory / f"{name}.{'csv' if name in SERIES else 'json'}"
        file.write_text(csv(value) if name in SERIES else json.dumps(value, indent=1))
        terms = ["--unit", value["unit"], "--resolution", value["resolution"]] if name in SERIES else []
        commands.append(["put", f"/command/{name}", str(file), *terms, "--state-dir", str(system.state_dir)])
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", COMMANDS, cwd=ROOT, stdin=pipe, stdout=pipe, stderr=pipe
    )
    out, err = await process.communicate("\n".join(map(json.dumps, commands)).encode())
    assert process.returncode == 0, err.decode()
    return {name: int(version) for name, version in re.findall(r"(\S+) stored as version (\d+)", out.decode())}


async def put_and_patch(system: Running) -> dict[str, int]:
    """Store all payloads by PUT, and again by PATCH of something small; returns their versions."""
    versions: dict[str, int] = {}
    for name, (value, _) in DOCUMENTS.items():
        versions[f"/put/{name}"] = await write(system, f"/put/{name}", value)
        await write(system, f"/patch/{name}", ["nothing yet"])
        patch = [{"op": "replace", "path": "", "value": value}] if name == "match" else value
        kind = "application/json-patch+json" if name == "match" else MERGE
        versions[f"/patch/{name}"] = await write(system, f"/patch/{name}", patch, kind, "PATCH")
    for name, (value, _) in SERIES.items():
        versions[f"/put/{name}"] = await write(system, f"/put/{name}", value, OF_SERIES)
        first, second, *others = value["points"]
        await write(system, f"/patch/{name}", {**value, "points": [second]}, OF_SERIES)
        points = {"points": [first, *others]}
        patched = await write(system, f"/patch/{name}", points, "application/vnd.diem.points+json", "PATCH")
        versions[f"/patch/{name}"] = patched
    return versions


async def open_page(browser: Browser, system: Running, endpoint: str = "", **options: Any) -> tuple[Page, list[str]]:
    """Open the page at an endpoint; returns its errors, too, which go on being added."""
    page = await browser.new_page(**options)
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    query = urlencode({"view": "data", "endpoint": endpoint}, safe="/") if endpoint else ""
    await page.goto(f"{system.page}?{query}")
    await connected(page)
    return page, errors


async def test_with_documents_alone_the_first_screen_is_the_newest_one(
    browser: Browser, module_system: Running
) -> None:
    await write(module_system, "/first/document", {"hello": "world"})
    page, errors = await open_page(browser, module_system)
    await expect(page.get_by_role("treeitem", name='hello: "world"')).to_be_visible()
    await expect(page.get_by_test_id("price-view")).to_be_hidden()
    await expect(page.get_by_test_id("to-market")).to_be_hidden()
    assert await page.evaluate("window.diem.updates.isWatched('/dam/prices/GR')") is False
    # A document by the name of a price makes no market.
    await write(module_system, "/dam/prices/GR", {"price": "none"})
    await page.get_by_role("link", name="/dam/prices/GR").click()
    await expect(page.get_by_role("treeitem", name='price: "none"')).to_be_visible()
    await expect(page.get_by_test_id("to-market")).to_be_hidden()
    await page.goto(f"{module_system.page}?view=market")
    explanation = page.get_by_test_id("price-view").locator(".empty")
    await expect(explanation).to_have_text('/dam/prices/GR is not a series. "Data" has all endpoints.')
    assert errors == []


async def test_payloads_of_all_fields_go_in_by_every_way_and_are_shown_with_right_values(
    tmp_path: Path, browser: Browser, module_system: Running
) -> None:
    payloads = DOCUMENTS | SERIES
    names = [f"/{way}/{name}" for way in ("command", "put", "patch") for name in payloads]
    page, errors = await open_page(browser, module_system)
    await page.evaluate(WATCH, names)
    by_command, others = await asyncio.gather(put_by_command(module_system, tmp_path), put_and_patch(module_system))
    versions = by_command | others
    assert versions.keys() == {*names}
    await page.evaluate("(versions) => { window.versions = versions; }", versions)
    await becomes(page, "Object.keys(versions).every((name) => shown[name]?.version === versions[name])")
    # As text: Playwright takes seconds for so many objects.
    values = json.loads(await page.evaluate("JSON.stringify(shown)"))
    for name in names:
        assert values[name]["value"] == payloads[name.rpartition("/")[2]].value, name

    errors.clear()  # watched before there was anything to fetch
    # Every other one, of each way some.
    for number, (name, (value, shown)) in enumerate([*payloads.items()][::2]):
        way = ("command", "put", "patch")[number % 3]
        await page.goto(f"{module_system.page}?view=data&endpoint=/{way}/{name}")
        if name in DOCUMENTS:
            await expect(page.get_by_role("treeitem", name=shown).first).to_be_visible()
            continue
        await expect(page.get_by_test_id("data-view").locator(".endpoint-facts")).to_have_text(shown)
        last = str(value["points"][-1]["value"]).replace("-", MINUS)
        await expect(page.get_by_test_id("values").locator("td").first).to_have_text(last)
    assert errors == []


async def test_a_patch_of_a_document_is_marked_where_it_changed_something(
    browser: Browser, module_system: Running
) -> None:
    await write(module_system, "/game/42/score", SCORE)
    page, errors = await open_page(browser, module_system, "/game/42/score")
    tree = page.get_by_role("tree", name="/game/42/score")
    await expect(tree.get_by_role("treeitem", name="goals: 1")).to_be_visible()
    await expect(page.get_by_test_id("differences")).to_be_hidden()

    await write(module_system, "/game/42/score", {"home": {"goals": 2}, "live": None, "minute": 46}, MERGE, "PATCH")
    await expect(page.get_by_test_id("differences")).to_have_text(
        re.compile("^With the last update: 1 changed, 1 added, 1 removed")
    )
    # By its name for assistive technology, and by a sign beside the colour.
    changed = tree.get_by_role("treeitem", name="changed: goals: was 1 now 2")
    await expect(changed).to_be_visible()
    await expect(changed.locator(".sign")).to_have_text("\N{NOT EQUAL TO}")
    await expect(tree.get_by_role("treeitem", name="removed: live: true")).to_be_visible()
    await expect(tree.get_by_role("treeitem", name="added: minute: 46")).to_be_visible()

    await page.get_by_test_id("history").locator("summary").click()
    await page.get_by_role("button", name="View the version").click()
    await expect(page.locator(".old-version")).to_contain_text("not the current one")
    await expect(tree.get_by_role("treeitem", name="live: true")).to_be_visible()
    await page.get_by_role("button", name="Show the current version").click()
    await expect(changed).to_be_visible()
    await write(module_system, "/game/42/score", {"minute": 47}, MERGE, "PATCH")
    await expect(tree.get_by_role("treeitem", name="changed: minute: was 46 now 47")).to_be_visible()
    await page.get_by_role("button", name="Compare with the version").last.click()
    await expect(changed).to_be_visible()
    await expect(page.get_by_test_id("differences")).to_contain_text("1 changed, 1 added, 1 removed")
    assert errors == []


async def test_the_keyboard_alone_walks_through_a_document(browser: Browser, module_system: Running) -> None:
    await write(module_system, "/game/42/score", SCORE)
    page, _ = await open_page(browser, module_system, "/game/42/score")
    tree = page.get_by_test_id("tree")
    await expect(tree.get_by_role("treeitem")).to_have_count(10)
    await page.get_by_test_id("parent").focus()
    await page.keyboard.press("Tab")
    focus = page.locator(":focus")
    await expect(focus).to_have_attribute("data-id", "/home")
    await page.keyboard.press("ArrowLeft")
    await expect(focus).to_have_attribute("aria-expanded", "false")
    await expect(tree.get_by_role("treeitem")).to_have_count(8)
    await page.keyboard.press("End")
    await expect(focus).to_have_attribute("data-id", "/events/1")
    await write(module_system, "/game/42/score", {**SCORE, "events": [9, 12, 30]})
    await expect(tree.get_by_role("treeitem", name="added: 0: 9")).to_be_visible()
    await expect(focus).to_have_attribute("data-id", "/events/1")
    await page.keyboard.press("Tab")
    await expect(focus).to_have_class("copy")


async def test_html_and_svg_are_shown_as_their_source_and_nothing_of_them_runs(
    browser: Browser, module_system: Running
) -> None:
    for endpoint, media_type, text in (("/own/page", "text/html", HTML), ("/own/drawing", "image/svg+xml", SVG)):
        await write(module_system, endpoint, text, media_type)
        page, errors = await open_page(browser, module_system, endpoint)
        await expect(page.get_by_test_id("text")).to_have_text(text)
        await expect(page.get_by_test_id("image")).to_be_hidden()
        # The next version is marked by its lines, which are text as well.
        await write(module_system, endpoint, f"{text}\n<b onclick='x'>", media_type)
        await expect(page.get_by_test_id("text").locator("ins")).to_have_text("added: <b onclick='x'>")
        assert await page.get_by_test_id("text").locator(":scope > :not(.line), .line > :not(.sr)").count() == 0

        async with page.expect_download() as saved:
            await page.get_by_test_id("download").click()
        file = await saved.value
        assert file.suggested_filename == {"/own/page": "page.html", "/own/drawing": "drawing.svg"}[endpoint]
        assert (await file.path()).read_text() == f"{text}\n<b onclick='x'>"
        # What the browser would run is saved by the address of the API, too.
        async with page.expect_download():
            await page.get_by_role("link", name="Open its URL").click()
        assert await page.evaluate("[window.owned ?? null, document.title]") == [None, f"{endpoint} \N{EN DASH} DIEM"]
        assert errors == []


async def test_images_are_decoded_other_bytes_are_saved_and_notices_lead_on(
    browser: Browser, module_system: Running
) -> None:
    await write(module_system, "/own/logo", PNG, "image/png")
    page, errors = await open_page(browser, module_system, "/own/logo")
    await expect(page.get_by_role("img", name="The image /own/logo")).to_be_visible()
    await expect(page.locator("figcaption")).to_have_text("2 \N{MULTIPLICATION SIGN} 3 pixels")
    await write(module_system, "/own/blob", bytes(range(256)), "application/x-protobuf")
    await page.goto(f"{module_system.page}?view=data&endpoint=/own/blob")
    await expect(page.get_by_test_id("file")).to_have_text("There is no view for this type: 256 B to download.")
    async with page.expect_download() as saved:
        await page.get_by_test_id("download").click()
    assert (await (await saved.value).path()).read_bytes() == bytes(range(256))
    response = await module_system.http.post(
        f"{module_system.page}v1/data/own/order", headers={"Authorization": f"Bearer {module_system.write_key}"}
    )
    version = response.raise_for_status().json()["version"]
    await page.goto(f"{module_system.page}?view=data&endpoint=/own/order")
    await expect(page.get_by_test_id("notice")).to_contain_text(str(version))
    assert errors == []


async def test_a_collection_shows_its_members_live_and_new_ones(browser: Browser, module_system: Running) -> None:
    await write(module_system, "/match/7/score", {"home": 0})
    await write(module_system, "/match/7/odds/home", 1.8)
    page, errors = await open_page(browser, module_system, "/match/7/score")
    await page.get_by_test_id("parent").click()
    assert page.url.endswith("?view=data&endpoint=/match/7/")
    members = page.get_by_test_id("members").locator("tbody tr")
    await expect(members).to_have_count(2)
    await expect(members.nth(1)).to_contain_text('{"home": 0}')
    await write(module_system, "/match/7/score", {"home": 1})
    await expect(members.nth(1)).to_contain_text('{"home": 1}')
    await write(module_system, "/match/7/clock", "12:00", "text/plain")
    await expect(members).to_have_count(3)
    await expect(members.first).to_contain_text("added: clocktext/plain12:00")
    await members.nth(1).get_by_role("link").click()
    await expect(page.get_by_test_id("members").get_by_role("link")).to_have_text(["home"])
    await page.get_by_test_id("search").fill("collection match")
    await expect(page.get_by_test_id("endpoint-links").locator("b")).to_have_text(
        ["/match/", "/match/7/", "/match/7/odds/"]
    )
    assert errors == []


async def test_a_large_document_is_bounded_and_its_differences_are_found(
    browser: Browser, module_system: Running
) -> None:
    book = {"bids": [[1000 - index, index % 97] for index in range(20_000)]}
    await write(module_system, "/book/big", book)
    page, errors = await open_page(browser, module_system, "/book/big")
    tree = page.get_by_test_id("tree")
    await expect(tree.get_by_role("treeitem")).to_have_count(1)
    operations = [{"op": "replace", "path": "/bids/7000/1", "value": -1}, {"op": "remove", "path": "/bids/3"}]
    await write(module_system, "/book/big", operations, "application/json-patch+json", "PATCH")
    await expect(page.get_by_test_id("differences")).to_contain_text("1 changed, 1 removed")
    await page.get_by_role("button", name="Show all").click()
    await expect(tree.get_by_role("treeitem", name="changed: 1: was 16 now -1")).to_be_visible()
    await expect(tree.get_by_role("treeitem", name="removed: 3: [997, 3]")).to_be_focused()
    await expect(tree.get_by_role("treeitem", name=re.compile("6,900 more|12,999 more"))).to_have_count(2)
    await becomes(page, "document.querySelectorAll('*').length < 8000")
    assert errors == []


async def test_axe_finds_nothing_in_light_dark_and_on_a_phone(browser: Browser, module_system: Running) -> None:
    kinds: dict[str, tuple[str, Any, Any]] = {
        "/axe/scores": (
            JSON,
            [SCORE, {**SCORE, "note": "wide " * 20}],
            [{**SCORE, "home": {"name": "AEK"}, "more": [1], "live": False}, {**SCORE, "note": "wider " * 20}, {}],
        ),
        "/axe/text": ("text/plain", "one\ntwo", "one\nthree"),
        "/axe/logo": ("image/png", PNG, PNG + b"."),
        "/axe/": (JSON, None, None),
    }
    for endpoint, (media_type, first, second) in kinds.items():
        if first is not None:
            await write(module_system, endpoint, first, media_type)
        page, _ = await open_page(browser, module_system, endpoint, reduced_motion="reduce")
        view = page.get_by_test_id("data-view")
        await expect(view.get_by_test_id("age")).to_have_text(re.compile("^updated"))
        # With marks, for the kinds that have them.
        version = await view.get_attribute("data-version")
        await write(module_system, endpoint if second else "/axe/new", second or {"of": "new"}, media_type)
        await expect(view).not_to_have_attribute("data-version", version or "")
        for summary in await page.locator(".endpoint summary:visible").all():
            await summary.click()
        await nothing_is_found(page, *SIZES)
        await page.close()
