"""The command ``diem top``: the operator page's document in a terminal, every second, with short curves."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import orjson
import typer
from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from deploy.admin.collector import EVERY_S, Collector, PlanReader
from deploy.cli.options import StateDirOption, run_interactive
from deploy.clients.metadata import MetadataService
from deploy.system import control
from deploy.system.state_dir import StateDir
from deploy.terminal import DEFAULT_STATE_DIR, plain_console, plain_table
from diem.process.clock import SystemClock
from tools.commands.options import HostsOption

PER_BAR: Final = 2
"""Samples of the history in a bar."""
SHOWN_EVENTS: Final = 5
TIMEOUT_S: Final = 3.0
"""Longest wait for plans."""
CURVES: Final = {
    "clients": ("clients", 1, ",.0f"),
    "updates a second": ("updates_per_second", 1, ",.1f"),
    "deliveries a second": ("deliveries_per_second", 1, ",.0f"),
    "longest delay, ms": ("delay_seconds", 1000, ",.0f"),
    "CPU, cores": ("cores", 1, ".2f"),
    "refused in a minute": ("refused", 1, ",.0f"),
}
"""Curves by their titles: the totals that they show, a factor, and a format."""
_BARS: Final = " ▁▂▃▄▅▆▇█"
_STYLES: Final = {"well": "green", "ok": "green", "starting": "yellow", "warning": "yellow", "critical": "bold red"}


def register(cli: typer.Typer) -> None:
    """Add the command."""
    cli.command("top")(top_command)


def top_command(*, state_dir: StateDirOption = DEFAULT_STATE_DIR, hosts: HostsOption = None) -> int:
    """Show what runs, how fast, and what is wrong, every second until Ctrl-C, with curves of 15 minutes.

    Where the output is not a terminal, print it once.
    """
    console = plain_console()

    async def show() -> None:
        documents = partial(control.request, StateDir(state_dir), "overview") if hosts is None else documents_of(hosts)

        async def read() -> RenderableType:
            return screen(await documents())

        if not console.is_terminal:
            console.print(await read())
            return
        with Live(await read(), console=console, auto_refresh=False, screen=True) as live:
            while True:
                await asyncio.sleep(EVERY_S)
                live.update(await read(), refresh=True)

    return run_interactive(show)


def documents_of(hosts: Path) -> Callable[[], Awaitable[dict[str, Any]]]:
    """Return what reads the operator page's document from several hosts; its history begins now."""
    from tools.hosts.status import hosts_client, read_status  # noqa: PLC0415  # of several hosts alone

    plans = PlanReader(lambda urls: MetadataService(urls, partial(hosts_client, hosts, TIMEOUT_S)))
    collector = Collector(partial(read_status, hosts), plans, None, SystemClock())

    async def read() -> dict[str, Any]:
        return dict(orjson.loads(await collector.latest()))

    return read


def curve(values: Sequence[float | None]) -> str:
    """Return values as bars of the greatest of :data:`PER_BAR` each, the greatest of all a full one; a gap is empty."""
    found = [value or 0 for value in values]
    bars = [max(found[at : at + PER_BAR]) for at in range(len(found) % PER_BAR, len(found), PER_BAR)]
    most = max(bars, default=0) or 1
    return "".join(_BARS[round(value / most * (len(_BARS) - 1))] for value in bars)


def screen(document: Mapping[str, Any]) -> RenderableType:
    """Return the screen of a document: verdict, curves, processes, findings and the last events."""
    heading = Text.assemble(
        (f"DIEM {document['mode']}  ", "bold"),
        (document["headline"], _STYLES.get(document["state"], "")),
        f"  {document['impact']}",
    )
    totals = plain_table("", "now", "15 minutes", right=("now",))
    for title, (name, factor, style) in CURVES.items():
        value = document["totals"][name]
        shown = "-" if value is None else format(value * factor, style)
        totals.add_row(title, shown, curve(document["history"].get(name, ())))
    numbers = ("clients", "subs", "sent/s", "CPU", "lag", "restarts")
    processes = plain_table("process", "state", *numbers, right=numbers)
    for row in document["processes"]:
        seconds = row["lag_seconds"]
        processes.add_row(
            row["name"],
            Text(row["word"], style=_STYLES[row["level"]]),
            *map(_number, (row["clients"], row["subscriptions"], row["deliveries_per_second"])),
            "-" if row["cores"] is None else f"{row['cores']:.0%}",
            _number(row["lag"]) if seconds is None else f"{seconds:.1f} s",
            _number(row["restarts"]),
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
