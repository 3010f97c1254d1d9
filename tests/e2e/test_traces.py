"""One trace of a PUT with a caller's context, through real processes to the page that shows it, read from files."""

import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple

import httpx
import pytest
from playwright.async_api import Browser

from tests.e2e.page import becomes
from tests.integration.deploy.running import Running, up
from tests.support.patience import PATIENCE_S
from tests.support.required import in_cluster

pytestmark = [
    pytest.mark.chromium,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.usefixtures("kafka_program"),
    in_cluster(),
]

TRACE: Final = "4bf92f3577b34da6a3ce929d0e0e4736"
CALLER: Final = "00f067aa0ba902b7"
NAME: Final = "/game/42"
KAFKA: Final = ["send diem.updates", "process diem.updates"]
HOPS: Final = {
    "single": [],
    "x-broadcast": ["forward"],
    "x": KAFKA,
    "z-proxy": KAFKA,
    "xz": KAFKA,
}
"""Spans between the commit and the fan-out, by mode."""
PAGE: Final = """
import { createDiem } from "./diem.js";
const diem = createDiem();
let context;
window.shown = [];
diem.watch("/game/42", ({ value }) => {
  const start = performance.timeOrigin + performance.now();
  document.body.textContent = value.home;
  const traceparent = context;
  requestAnimationFrame(() => setTimeout(() =>
    shown.push({ value: value.home, traceparent, start, end: performance.timeOrigin + performance.now() })));
});
diem.updates.subscribe("/game/42", (change) => { context = change.traceparent; });
"""


class Span(NamedTuple):
    process: str
    name: str
    trace: str
    id: str
    parent: str
    start_ms: float
    end_ms: float
    attributes: dict[str, Any]


def spans_in(directory: Path) -> Iterator[Span]:
    """Read OTLP/JSON lines of all processes."""
    for file in sorted(directory.glob("*.jsonl")):
        for line in file.read_text().splitlines():
            for resource in json.loads(line)["resourceSpans"]:
                of = {each["key"]: each["value"] for each in resource["resource"]["attributes"]}
                for scope in resource["scopeSpans"]:
                    for span in scope["spans"]:
                        start_ms, end_ms = (int(span[f"{which}TimeUnixNano"]) / 1e6 for which in ("start", "end"))
                        found = {each["key"]: next(iter(each["value"].values())) for each in span.get("attributes", [])}
                        process = of["service.instance.id"]["stringValue"]
                        ids = (span["traceId"], span["spanId"], span.get("parentSpanId", ""))
                        yield Span(process, span["name"], *ids, start_ms, end_ms, found)


async def put(running: Running, value: int, **headers: str) -> None:
    key = (running.cwd / ".diem" / "write.key").read_text().strip()
    async with httpx.AsyncClient(timeout=PATIENCE_S, trust_env=False) as http:
        url = f"{running.described()['urls']['rest']}/data{NAME}"
        (
            await http.put(url, json={"home": value}, headers={"Authorization": f"Bearer {key}", **headers})
        ).raise_for_status()


@pytest.mark.takes(20)
@pytest.mark.parametrize("mode", [*HOPS])
async def test_one_trace_leads_from_the_caller_to_the_page(mode: str, tmp_path: Path, browser: Browser) -> None:
    pages = tmp_path / "pages"
    pages.mkdir()
    (pages / "traced.html").write_text('<!doctype html><body><script type="module" src="traced.js"></script>')
    (pages / "traced.js").write_text(PAGE)
    for path in (pages, *pages.iterdir()):
        path.chmod(0o755)
    size = [] if mode == "single" else ["--servers", "1"]
    async with up(
        tmp_path, "--mode", mode, *size, "--pages", str(pages), launcher=("env", "DIEM_TRACES=traces")
    ) as running:
        await put(running, 1)
        page = await browser.new_page()
        await page.goto(f"{running.described()['urls']['page']}traced.html")
        await becomes(page, "window.shown?.at(-1)?.value === 1")
        await put(running, 2, traceparent=f"00-{TRACE}-{CALLER}-01")
        await becomes(page, "shown.at(-1).value === 2")
        await put(running, 3, traceparent=f"00-{TRACE}-{CALLER}-00")
        await becomes(page, "shown.at(-1).value === 3")
        shown = {each["value"]: each for each in await page.evaluate("shown")}
    found = sorted(spans_in(tmp_path / "traces"), key=lambda span: span.start_ms)
    assert {span.trace for span in found} == {TRACE}
    assert shown[1]["traceparent"] is None
    assert shown[3]["traceparent"] is None
    show = shown[2]
    _, trace, parent, _ = show["traceparent"].split("-")
    hops = [Span("page", "show", trace, "", parent, show["start"], show["end"], {})]
    by_id = {span.id: span for span in found}
    while (before := by_id.get(hops[0].parent)) is not None:
        hops.insert(0, before)
    write, fan_out = hops[0], hops[-2]
    (commit,) = (span for span in found if span.name == "commit")
    for span in (write, commit, *hops[1:]):
        start_ms, took_ms = span.start_ms - write.start_ms, span.end_ms - span.start_ms
        print(f"{span.process:12} {span.name:22} {start_ms:8.2f} {took_ms:8.2f}")
    assert [span.name for span in hops] == ["write", *HOPS[mode], "fan out", "show"]
    assert (write.parent, commit.parent) == (CALLER, write.id)
    assert write.start_ms <= commit.start_ms <= commit.end_ms <= hops[1].start_ms
    # A page's clock has 0.1 ms at best.
    assert all(before.start_ms <= after.start_ms + 1 for before, after in pairwise(hops))
    assert int(fan_out.attributes["diem.receivers"]) == 1
    # Each clone of xz has its own.
    assert {span.name for span in found} == {"write", "commit", *HOPS[mode], "fan out"}
    texts = "".join(file.read_text() for file in (tmp_path / "traces").iterdir())
    assert (running.cwd / ".diem" / "write.key").read_text().strip() not in texts
    assert "home" not in texts
    assert all(file.stat().st_mode & 0o077 == 0 for file in (tmp_path / "traces").iterdir())
