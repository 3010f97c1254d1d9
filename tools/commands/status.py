"""The command ``diem status``: the processes of a running system, and their problems."""

import json
import time
from collections.abc import Iterable, Iterator
from datetime import datetime
from itertools import groupby
from typing import Annotated, Any, Final

import typer
from rich.console import Group
from rich.table import Table
from rich.text import Text

from deploy.cli.options import StateDirOption, run_interactive
from deploy.invocation import diem_command
from deploy.page_address import data_view
from deploy.system import control
from deploy.system.description import with_children
from deploy.system.source_health import next_attempt
from deploy.system.state_dir import StateDir
from deploy.terminal import DEFAULT_STATE_DIR, WIDTH_OF_FILES, amount, plain_console, plain_table
from deploy.topology import Mode
from diem.process.cores import usable_cores
from diem.protocol.compatibility import UNANNOUNCED
from diem.protocol.partition_map import HOT
from tools.commands.options import HostsOption

UNVERIFIED_S: Final = 3600.0
"""Time for which a delivery without a valid signature is shown: it may be of anybody."""
CLOCKS_S: Final = 1.0
"""Clock difference from which it is shown."""


def register(cli: typer.Typer) -> None:
    """Add the command."""
    cli.command()(status)


def status(
    *,
    state_dir: StateDirOption = DEFAULT_STATE_DIR,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    hosts: HostsOption = None,
) -> int:
    """Show the processes that `diem up` runs, or those on several hosts, with their state."""
    console = plain_console()

    async def read() -> dict[str, Any]:
        if hosts is None:
            return await control.request(StateDir(state_dir), "status")
        from tools.hosts.status import read_status  # noqa: PLC0415  # of several hosts alone

        return await read_status(hosts)

    async def show() -> None:
        answer = await read()
        if as_json:
            typer.echo(json.dumps(answer))
        else:
            console.print(Group(*status_tables(answer, console.width), *fault_lines(answer), *page_lines(answer)))
            if hosts is not None:
                return
            from learning.recommend.advice import remark  # noqa: PLC0415  # not needed for --json

            if cheaper := remark(answer, usable_cores()):
                console.print(f"{cheaper}; `{diem_command('recommend')}` compares all modes", soft_wrap=True)

    return run_interactive(show)


WIDE: Final = 100
"""Width from which tables have wider gaps."""


def status_tables(status: dict[str, Any], width: int = WIDTH_OF_FILES) -> list[Table]:
    """Render the reply of ``status`` for ``width`` columns: the processes, their partitions, and the sources.

    The children of a composite are indented below it. Refused clients have a column if there are any, and so do
    differing releases and versions of the internal protocol.
    """
    gap = 2 if width >= WIDE else 1
    sources: list[dict[str, Any]] = []
    rows = [(name, process["report"] or {}, process) for name, process in with_children(status["processes"])]
    refused = ("refused",) if any(report.get("refused") for _, report, _ in rows) else ()
    versions = _differing(report for _, report, _ in rows if report)
    numbers = (*versions, "pid", "uptime", "restarts", "clients", *refused, "subs", "live", "position", "lag")
    processes = plain_table("process", "state", *numbers, right=numbers, gap=gap)
    for name, report, process in rows:
        sources += report.get("sources", [])
        processes.add_row(
            _indented(name),
            _state(process["state"], report),
            *(_versions(report)[column] if report else "-" for column in versions),
            _cell(process["pid"]),
            _span(process["uptime_seconds"]) if process["pid"] else "-",
            _cell(process["restarts"]),
            _cell(report.get("clients")),
            *(_refused(report) for _ in refused),
            _cell(report.get("subscriptions")),
            _cell(report.get("live")),
            _cell(report.get("position", report.get("sequence"))),
            _lag(report),
        )
    parts = [_parts(((name, report) for name, report, _ in rows), gap)] if _is_partitioned(status) else []
    return [processes, *parts, *([_sources(sources, gap)] if sources else [])]


def fault_lines(status: dict[str, Any]) -> Iterator[Text]:
    """Yield the failures and refusals reported by processes, and why some are not ready: a line each."""
    for name, process in with_children(status["processes"]):
        report = process["report"] or {}
        publisher = report.get("publisher") or {}
        failures = (report.get("why_not_ready"), report.get("failure"), publisher.get("failure"))
        for text in dict.fromkeys((_clock(report), *failures, *(publisher.get("warnings") or ()))):
            if text:
                yield Text(f"{name}: {text}")


def _clock(report: dict[str, Any]) -> str | None:
    """Return the offset of a process's clock from this machine's; None if negligible or not reported."""
    difference = report.get("clock_difference") or 0.0
    if abs(difference) < CLOCKS_S:
        return None
    off = f"{abs(difference):,.0f} s {'ahead of' if difference > 0 else 'behind'} this machine's"
    return f"its clock is {off}: versions, tokens and delays depend on it; set both by NTP"


def page_lines(status: dict[str, Any]) -> list[Text]:
    """Return lines with the addresses of the page and of its view of any endpoint, if in the status."""
    page = status.get("urls", {}).get("page")
    return [Text(f"page  {page}"), Text(f"data  {data_view(page)}")] if page else []


def _is_partitioned(status: dict[str, Any]) -> bool:
    mode = status.get("mode")
    return mode in set(Mode) and Mode(mode).partitioned


def _parts(rows: Iterable[tuple[str, dict[str, Any]]], gap: int) -> Table:
    """Render the partitions of each server by its map, and the view of the metadata service and of proxies."""
    numbers, texts = ("epoch", "upstreams"), ("partitions", "groups")
    table = plain_table("process", "partitions", *numbers, "groups", right=numbers, wrap=texts, gap=gap)
    for name, report in rows:
        cells = [
            # A bridge reports its assigned partitions, and as ``partitions`` the topic's number of them.
            _partitions(report.get("assigned", report.get("partitions"))),
            _cell(report.get("epoch")),
            _cell(report.get("upstreams")),
            _clones(report.get("clones")) or _membership(report),
        ]
        if "children" not in report and any(cell != "-" for cell in cells):
            table.add_row(_indented(name), *cells)
    return table


def _partitions(owned: object) -> str:
    if not isinstance(owned, list):
        return _cell(owned)
    numbered = sorted(number for number in owned if number != HOT)
    return ",".join([*_ranges(numbered), *(["hot"] if HOT in owned else [])]) or "none"


def _ranges(numbers: list[int]) -> Iterator[str]:
    for _, run in groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0]):
        first, *others = [number for _, number in run]
        yield f"{first}-{others[-1]}" if others else str(first)


def _clones(clones: object) -> str:
    """Return the state and the number of servers of each group, as far as known."""
    if not isinstance(clones, dict):
        return ""
    return ", ".join(f"{number}: {clone.get('state')}, {_members(clone)}" for number, clone in clones.items())


def _membership(report: dict[str, Any]) -> str:
    if report.get("clone") is None:
        return "-"
    return f"{report.get('group')}, " + (f"generation {report.get('generation')}" if report.get("joined") else "left")


def _members(clone: dict[str, Any]) -> str:
    members = clone.get("members")
    return amount(members if isinstance(members, int) else len(members or ()), "server")


def _indented(name: str) -> str:
    """Return the name of a process, or the indented own name of a composite's child."""
    return f"  {name.rpartition('/')[2]}" if "/" in name else name


def _sources(sources: list[dict[str, Any]], gap: int) -> Table:
    numbers = ("endpoints", "failures")
    headings = ("source", "type", "state", "last success", *numbers, "note")
    table = plain_table(*headings, right=numbers, wrap=("note",), gap=gap)
    now_s = time.time()
    for source in sources:
        table.add_row(
            Text(str(source.get("name"))),
            Text(str(source.get("type") or "")),
            _source_state(source),
            ago(source.get("last_success"), now_s),
            "" if source.get("endpoints") is None else str(source["endpoints"]),
            _cell(source.get("failures")),
            Text("; ".join(_notes(source, now_s))),
        )
    return table


def _notes(source: dict[str, Any], now_s: float) -> Iterator[str]:
    """Yield what there is to say of a source: its error, its next attempt, and what it has read since its start."""
    yield from filter(None, (source.get("error"), next_attempt(source, now_s), source.get("progress")))
    if source.get("records") is not None:
        yield amount(source["records"], "record")
        if source.get("last_record"):
            yield f"the last {ago(source['last_record'], now_s)}"
        for name in ("lag", "lost", "resets"):
            if source.get(name) or (name == "lag" and source.get(name) == 0):
                yield f"{name} {source[name]:,}"
    if refused := source.get("refused"):
        yield f"{refused} refused, the last: {source.get('last_refusal')}"
    at = source.get("last_unverified_at")
    if at and now_s - datetime.fromisoformat(at).timestamp() < UNVERIFIED_S:
        deliveries = f"{source['unverified']} unverified deliver{'y' if source['unverified'] == 1 else 'ies'}"
        yield f"{deliveries}, the last {ago(at, now_s)}: {source.get('last_unverified')}"


def _source_state(source: dict[str, Any]) -> str:
    if source.get("ok"):
        return "ok"
    return "failing" if source.get("error") or source.get("last_success") else "starting"


def ago(time_: object, now_s: float) -> str:
    """Return the age of a time (ISO 8601) at an instant (Unix seconds); any other value as it is."""
    try:
        seconds = now_s - datetime.fromisoformat(str(time_)).timestamp()
    except ValueError:
        return _cell(time_)
    return f"{_span(max(0.0, seconds))} ago"


def _state(state: str, report: dict[str, Any]) -> str:
    if state != "running":
        return state
    if not report:
        return "no answer"
    return "ready" if report.get("ready") else "not ready"


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)


def _lag(report: dict[str, Any]) -> str:
    """Return the lag of a process in seconds, or in records if it reads from or writes to Kafka."""
    seconds = report.get("lag_seconds")
    if seconds is not None:
        return f"{seconds:.1f}s"
    return _cell((report.get("publisher") or report).get("lag"))


def _versions(report: dict[str, Any]) -> dict[str, str]:
    """Return the release of a process, and its newest version of the internal protocol."""
    protocol = report.get("protocol") or UNANNOUNCED._asdict()
    return {"release": _cell(report.get("version")), "protocol": _cell(protocol.get("newest"))}


def _differing(reports: Iterable[dict[str, Any]]) -> tuple[str, ...]:
    """Return the columns of :func:`_versions` that differ between reports."""
    found = [_versions(report) for report in reports]
    return tuple(column for column in ("release", "protocol") if len({versions[column] for versions in found}) > 1)


def _refused(report: dict[str, Any]) -> str:
    """Return the number of clients refused by a process since its start."""
    causes = report.get("refused") or {}
    return str(sum(causes.values())) if causes or "clients" in report else "-"


def _span(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours >= 100:
        return f"{hours // 24}d"
    if hours:
        return f"{hours}h{minutes:02}m"
    return f"{minutes}m{rest:02}s" if minutes else f"{rest}s"
