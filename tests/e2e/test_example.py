"""The pages of README.md and "Get started": each shows what is written, without a reload."""

import asyncio
import os
import re
import shlex
import shutil
import sys
from asyncio.subprocess import PIPE
from pathlib import Path
from typing import Final

import pytest
from playwright.async_api import Browser, Page, expect

from tests.e2e.axe import nothing_is_found
from tests.e2e.test_page_kinds import write
from tests.support.guides import Block, blocks
from tests.support.running import ROOT, Running, running

pytestmark = pytest.mark.chromium

README: Final = ROOT / "README.md"
GET_STARTED: Final = ROOT / "docs" / "guide" / "get-started.md"
SDK: Final = ROOT / "docs" / "sdk.md"
EXAMPLES: Final = ROOT / "examples"


def files(guide: Path) -> list[Block]:
    return [block for block in blocks(guide) if block.names_file]


async def run_writes(guide: Path, containing: str, system: Running) -> None:
    """Run the commands of a guide that write, and contain a text."""
    found = [command for block in blocks(guide) if block.words == ("sh",) for command in block.commands]
    writes = [command for command in found if containing in command and ("curl" in command or "diem p" in command)]
    assert writes
    for command in writes:
        here = command.replace("http://localhost:8080/", system.page).replace(".diem/", f"{system.state_dir}/")
        environment = {**os.environ, "DIEM_STATE_DIR": str(system.state_dir)}
        piped = re.fullmatch(r"echo '(.*)' \| diem (.*)", here)
        # Tests start processes of DIEM by a fork.
        argv = [sys.executable, "-m", "deploy", *shlex.split(piped[2])] if piped else ["bash", "-c", here]
        process = await asyncio.create_subprocess_exec(*argv, stdin=PIPE, cwd=ROOT, env=environment)
        await process.communicate(piped[1].encode() if piped else None)
        assert process.returncode == 0, command


@pytest.mark.asyncio(loop_scope="session")
async def test_the_pages_of_the_first_guides_show_what_is_written(tmp_path: Path, browser: Browser) -> None:
    pages = tmp_path / "examples"
    shutil.copytree(EXAMPLES, pages)
    for block in files(GET_STARTED):
        (tmp_path / block.words[1]).write_text(block.text)
    errors: list[str] = []

    async def opened(name: str) -> Page:
        page = await browser.new_page()
        page.on("pageerror", lambda error: errors.append(str(error)))
        await page.goto(f"{system.page}{name}")
        return page

    async with running(tmp_path, options=("--pages", str(pages))) as system:
        scores, book, van = [await opened(name) for name in ("scores.html", "book.html", "van.html")]
        await run_writes(GET_STARTED, "/scores/42", system)
        await expect(scores.locator("#games li")).to_have_text(["Ajax 1:0 Porto"])
        await run_writes(README, "/book/ACME", system)
        await expect(book.locator("#book")).to_have_text("100.5  20\n----  \n99.4  310", use_inner_text=True)
        await expect(book.locator("#state")).to_have_text("live")
        await run_writes(GET_STARTED, "diem put /vans/7", system)
        await expect(van.locator("#van")).to_have_text("30 km/h in Main St")
        await run_writes(GET_STARTED, "diem patch /vans/7", system)
        await expect(van.locator("#van")).to_have_text("50 km/h in Main St")

        # The playground, of the endpoint just written.
        playground = await opened("playground.html")
        await playground.locator("#endpoint").fill("vans")
        await playground.locator("#endpoint").press("Enter")
        await expect(playground.locator("#state")).to_have_text("open, stale: not an endpoint name: vans")
        await playground.locator("#endpoint").fill("/vans/7")
        await playground.get_by_role("button").click()
        await expect(playground.locator("#state")).to_have_text("open, live")
        await expect(playground.locator("#value")).to_contain_text('"speed": 50')
        version = await write(system, "/vans/7", {"speed": 60})
        await expect(playground.locator("#value")).to_have_text('{ "speed": 60 }')
        row = re.compile(rf"^\d\d:\d\d:\d\d\.\d{{3}}update{version}\d+live$")
        await expect(playground.locator("tbody tr").filter(has_text=row)).to_have_count(1)
        await nothing_is_found(playground, "phone")
        assert errors == []
    await expect(playground.locator("#state")).to_contain_text(re.compile("^reconnecting.*stale"))


def test_the_documentation_shows_the_examples_that_run() -> None:
    shown = {block.words[1]: f"{block.text}\n" for guide in (README, SDK) for block in files(guide)}
    assert [*shown] == [
        *(f"examples/{name}" for name in ("book.js", "book.py")),
        *(f"client/examples/{name}" for name in ("react/src/Load.tsx", "next/app/page.tsx")),
    ]
    assert shown == {name: (ROOT / name).read_text() for name in shown}
