"""The command `diem pipeline usage`: who read what of the Data Service, by day."""

import json
import re
from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta
from typing import Annotated, Final

import typer
from rich.table import Table

from deploy.cli.options import StateDirOption
from deploy.statedir import StateDir
from deploy.terminal import DEFAULT_STATE_DIR, Terminal, plain_console
from diem.process import log
from metadata.statistics.usage import UsageRow

DEFAULT_DAYS: Final = 31
DEFAULT_ROWS: Final = 100
_DAY: Final = "%Y-%m-%d"
_MEMORY: Final = re.compile(r"[1-9]\d*[mg]")


def usage_command(
    *,
    state_dir: StateDirOption = DEFAULT_STATE_DIR,
    begin: Annotated[
        datetime | None,
        typer.Option("--from", formats=[_DAY], help=f"First day, UTC; default: {DEFAULT_DAYS} days to the last one."),
    ] = None,
    end: Annotated[datetime | None, typer.Option("--to", formats=[_DAY], help="Last day, UTC; default: today.")] = None,
    key: Annotated[str | None, typer.Option(help="Show only the API key with this id.")] = None,
    rows: Annotated[int, typer.Option(min=0, help="Rows that are shown, those of most requests; 0: all.")] = (
        DEFAULT_ROWS
    ),
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object, with all rows.")] = False,
    memory: Annotated[str, typer.Option(help="Heap of the JVM, such as 512m or 4g.")] = "1g",
    cores: Annotated[int, typer.Option(min=1, help="Tasks at a time.")] = 2,
) -> int:
    """Compute who read what and how often, of the traffic that `diem pipeline run` has read; write and show it."""
    from deploy import pipeline  # noqa: PLC0415
    from metadata.jobs.usage import read_report  # noqa: PLC0415

    log.configure("error", "console")
    if _MEMORY.fullmatch(memory) is None:
        raise typer.BadParameter(f"--memory is such as 512m or 4g, not {memory}")
    last = end.date() if end is not None else datetime.now(UTC).date()
    first = begin.date() if begin is not None else last - timedelta(days=DEFAULT_DAYS - 1)
    if first > last:
        raise typer.BadParameter(f"--from {first} is after --to {last}")
    here = pipeline.warehouse(StateDir(state_dir).path)
    file = pipeline.run_usage(here, (first, last), Terminal(quiet=as_json), memory=memory, cores=cores)
    found = [row for row in read_report(file) if key is None or row.key == key]
    if as_json:
        typer.echo(json.dumps({"from": str(first), "to": str(last), "file": str(file), "usage": as_objects(found)}))
        return 0
    console = plain_console()
    if not found:
        console.print(f"no requests from {first} to {last} are recorded in {here.root}")
        return 0
    shown = most(found, rows)
    console.print(table(shown))
    left = f"; {len(found) - len(shown):,} more rows" if len(found) > len(shown) else ""
    console.print(f"{sum(row.answered for row in found):,} requests answered{left}: {file}")
    return 0


def most(found: list[UsageRow], rows: int) -> list[UsageRow]:
    """Return the rows of most requests, in their order; all of them for 0."""
    if not rows or len(found) <= rows:
        return found
    return sorted(sorted(found, key=lambda row: (-row.answered - row.refused, row))[:rows])


def table(rows: Iterable[UsageRow]) -> Table:
    """Return rows as a table."""
    made = Table("day", "key", "plan", "endpoint", box=None, pad_edge=False)
    for name in ("answered", "refused"):
        made.add_column(name, justify="right")
    for row in rows:
        counts = (f"{row.answered:,}", f"{row.refused:,}")
        made.add_row(row.day.isoformat(), row.key or "-", row.plan, row.endpoint or "-", *counts)
    return made


def as_objects(rows: Iterable[UsageRow]) -> list[dict[str, str | int]]:
    """Return rows as JSON has them."""
    return [{name: _plain(value) for name, value in row._asdict().items()} for row in rows]


def _plain(value: date | str | int) -> str | int:
    return value.isoformat() if isinstance(value, date) else value
