"""The command ``diem top``: the operator page's document in a terminal, every second, with short curves."""

import asyncio
from collections import deque
from collections.abc import Collection, Mapping
from typing import Any, Final

import orjson
import typer
from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from deploy.admin.collector import EVERY_S, Collector, PlanReader
from deploy.cli.options import StateDirOption, run_interactive
from deploy.clients.metadata import metadata_service
from deploy.system import control
from deploy.system.state_dir import StateDir
from deploy.terminal import DEFAULT_STATE_DIR, plain_console, plain_table
from diem.process.clock import SystemClock
from diem.process.key_ring import KeyRing

LENGTH: Final = 40
"""Values in a curve, a second or more each."""
SHOWN_EVENTS: Final = 5
CURVES: Final = {
    "clients": "clients",
    "updates a second": "updates_per_second",
    "deliveries a second": "deliveries_per_second",
}
"""Curves by their titles, and the totals that they show."""
_BARS: Final = " ▁▂▃▄▅▆▇█"
_STYLES: Final = {"well": "green", "ok": "green", "starting": "yellow", "warning": "yellow", "critical": "bold red"}


def register(cli: typer.Typer) -> None:
    """Add the command."""
    cli.command("top")(top_command)


def top_command(*, state_dir: StateDirOption = DEFAULT_STATE_DIR) -> int:
    """Show what runs, how fast, and what is wrong, every second until Ctrl-C.

    Where the output is not a terminal, print it once.
    """
    state, console = StateDir(state_dir), plain_console()

    async def show() -> None:
        keys = KeyRing.load(state.internal_key_file)
        plans = PlanReader(lambda urls: metadata_service(urls, keys))
        collector = Collector(lambda: control.request(state, "status"), plans, state.logs, SystemClock())
        curves = Curves()
        try:
            curves.add(orjson.loads(await collector.latest()))
            await asyncio.sleep(EVERY_S)  # rates have a second poll
            if not console.is_terminal:
                console.print(screen(curves.add(orjson.loads(await collector.latest())), curves))
                return
            with Live(console=console, auto_refresh=False, screen=True) as live:
                while True:
                    document = curves.add(orjson.loads(await collector.latest()))
                    live.update(screen(document, curves), refresh=True)
                    await asyncio.sleep(EVERY_S)
        finally:
            await collector.close()

    return run_interactive(show)


class Curves:
    """The last :data:`LENGTH` values of each of :data:`CURVES`."""

    def __init__(self) -> None:
        self._values = {title: deque[float](maxlen=LENGTH) for title in CURVES}

    def add(self, document: dict[str, Any]) -> dict[str, Any]:
        """Append the totals of a document, as far as they are known; return it."""
        for title, name in CURVES.items():
            if (value := document["totals"][name]) is not None:
                self._values[title].append(value)
        return document

    def lines(self) -> list[tuple[str, str, str]]:
        """Return title, latest value and curve of each that has one; the greatest value is a full bar."""
        return [(title, f"{found[-1]:,.0f}", curve(found)) for title, found in self._values.items() if found]


def curve(values: Collection[float]) -> str:
    """Return values as bars, the greatest a full one."""
    most = max(values) or 1
    return "".join(_BARS[round(value / most * (len(_BARS) - 1))] for value in values)


def screen(document: Mapping[str, Any], curves: Curves) -> RenderableType:
    """Return the screen of a document: verdict, curves, processes, findings and the last events."""
    heading = Text.assemble(
        (f"DIEM {document['mode']}  ", "bold"),
        (document["headline"], _STYLES.get(document["state"], "")),
        f"  {document['impact']}",
    )
    totals = plain_table("", "", "", right=("now",))
    for line in curves.lines():
        totals.add_row(*line)
    numbers = ("clients", "subs", "sent/s", "lag", "restarts")
    processes = plain_table("process", "state", *numbers, right=numbers)
    for row in document["processes"]:
        seconds = row["lag_seconds"]
        processes.add_row(
            row["name"],
            Text(row["word"], style=_STYLES[row["level"]]),
            *map(_number, (row["clients"], row["subscriptions"], row["deliveries_per_second"])),
            _number(row["lag"]) if seconds is None else f"{seconds:.1f} s",
            str(row["restarts"]),
        )
    findings = [
        Text.assemble((f"{each['title']}. ", _STYLES[each["level"]]), each["detail"], f"\n  -> {each['action']}")
        for each in document["findings"]
    ]
    events = [Text(f"{each['time']}  {each['process']}  {each['text']}") for each in document["events"][:SHOWN_EVENTS]]
    parts: list[RenderableType] = [heading, totals, processes, *findings, *events]
    return Group(*(each for part in parts for each in (part, Text())))


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}"
