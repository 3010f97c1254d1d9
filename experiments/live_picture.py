"""``make picture``: docs/images/live.gif, the page of README.md while its server hangs, in real time.

The system is real (mode ``single`` with the simulated market), and so is the page, in headless Chromium. The server
is stopped (SIGSTOP); the page notices by itself, and ``diem up`` replaces the server. Only the line above the page is
added: the command, and the seconds since.
"""

import asyncio
import base64
import io
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from time import monotonic
from typing import Final, NamedTuple

from PIL import Image
from playwright.async_api import Browser, Page, expect

from packs.energy import DEFAULT_CONFIG
from tests.e2e.chromium import chromium
from tests.e2e.page import connected
from tests.support.commandline import parser
from tests.support.patience import PATIENCE_S
from tests.support.running import ROOT, running

SIZE: Final = {"width": 1140, "height": 810}
BEFORE_S: Final = 3
AFTER_S: Final = 4
COLOURS: Final = 128
LARGEST_BYTES: Final = 200_000
COMMAND: Final = "pkill -STOP -f '^diem websocket'"
LINE_PX: Final = 36
LAST_S: Final = 3.0
STAGE: Final = f"""<!doctype html><meta charset="utf-8"><style>
body {{ margin: 0; background: #10201c; color: #d3eae7; font: 15px/{LINE_PX}px monospace; }}
p {{ margin: 0; padding: 0 16px; height: {LINE_PX}px; }} b {{ float: right; }} img {{ display: block; }}
</style><p><b></b><span></span></p><img>"""
SHOW: Final = """async ([url, command, time]) => {
  document.querySelector("span").textContent = command;
  document.querySelector("b").textContent = time;
  const image = document.querySelector("img");
  image.src = url;
  await image.decode();
}"""


class Shot(NamedTuple):
    """The page at a time."""

    at: float
    """In seconds since the server was stopped; before, negative."""
    png: bytes


async def shoot(page: Page, start: float, shots: list[Shot]) -> None:
    """Take a picture of the page each second, until cancelled."""
    while True:
        at = monotonic() - start
        shots.append(Shot(at, await page.screenshot()))
        await asyncio.sleep(max(0.0, start + at + 1 - monotonic()))


async def record(browser: Browser, directory: Path) -> list[Shot]:
    """Stop the server under a page, and wait until the page is live again by its successor."""
    shots: list[Shot] = []
    async with running(directory, config=DEFAULT_CONFIG.read_text()) as system:
        context = await browser.new_context(viewport=SIZE, color_scheme="light", reduced_motion="reduce")
        page = await context.new_page()
        await page.goto(system.page)
        await connected(page)
        await expect(page.get_by_test_id("load-table").get_by_test_id("load-value").first).not_to_be_empty()
        start = monotonic() + BEFORE_S
        shooting = asyncio.create_task(shoot(page, start, shots))
        await asyncio.sleep(start - monotonic())
        pid = system.kill("websocket-1", signal.SIGSTOP)
        badge = page.get_by_test_id("connection")
        await expect(badge).to_have_attribute("data-live", "false", timeout=PATIENCE_S * 1000)
        await connected(page)
        assert system.pid("websocket-1") != pid
        await asyncio.sleep(AFTER_S)
        shooting.cancel()
    return shots


async def framed(browser: Browser, shots: Sequence[Shot]) -> list[Image.Image]:
    """Return the pictures with the line above."""
    stage = await browser.new_page(viewport={"width": SIZE["width"], "height": SIZE["height"] + LINE_PX})
    await stage.set_content(STAGE)
    frames = []
    for at, png in shots:
        url = f"data:image/png;base64,{base64.b64encode(png).decode()}"
        command, time = (f"$ {COMMAND}", f"{at:.0f} s") if at >= 0 else ("$", "")
        await stage.evaluate(SHOW, [url, command, time])
        frames.append(Image.open(io.BytesIO(await stage.screenshot())).convert("RGB"))
    return frames


def encode(frames: Sequence[Image.Image], shots: Sequence[Shot], out: Path) -> int:
    """Write the frames as an animation with one palette; return its length in bytes."""
    sheet = Image.new("RGB", (frames[0].width, sum(frame.height for frame in frames)))
    for index, frame in enumerate(frames):
        sheet.paste(frame, (0, index * frame.height))
    # From the most different colours, as the median cut loses accents of few pixels, to the nearest of all.
    palette = sheet.quantize(COLOURS, Image.Quantize.MAXCOVERAGE, kmeans=3, dither=Image.Dither.NONE)
    first, *others = [frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames]
    ends = [*(shot.at for shot in shots[1:]), shots[-1].at + LAST_S]
    durations = [round(1000 * (end - shot.at)) for shot, end in zip(shots, ends, strict=True)]
    first.save(out, save_all=True, append_images=others, duration=durations, loop=0)
    return out.stat().st_size


async def draw(out: Path) -> int:
    """Record and write the picture."""
    with tempfile.TemporaryDirectory() as directory:
        async with chromium() as browser:
            shots = await record(browser, Path(directory))
            frames = await framed(browser, shots)
    size = encode(frames, shots, out)
    print(f"{out}: {len(shots)} frames, {size:,} bytes")
    return int(size > LARGEST_BYTES)


def main(argv: Sequence[str] | None = None) -> int:
    """Draw the picture."""
    command = parser(__spec__, __doc__)
    command.add_argument(
        "--out", type=Path, default=ROOT / "docs" / "images" / "live.gif", metavar="FILE", help="the picture"
    )
    return asyncio.run(draw(command.parse_args(argv).out))


if __name__ == "__main__":
    sys.exit(main())
