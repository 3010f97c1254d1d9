"""The commands ``diem pipeline run``, ``status`` and ``usage``: tables, statistics and reports of recorded traffic.

``diem pipeline erase`` is in ``erase``.
"""

import asyncio
import json
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.table import Table
from rich.text import Text

from deploy.cli.options import EXIT_NOTHING, NoCluster, StateDirOption, find_cluster, with_kafka_options
from deploy.invocation import diem_command
from deploy.system.state_dir import StateDir
from deploy.terminal import DEFAULT_STATE_DIR, Terminal, plain_console, plain_table
from deploy.topology.kafka_users import KafkaUser
from diem.errors import DiemError
from diem.kafka.config import KafkaOptions
from diem.process import log
from learning.commands.erase import erase_command
from learning.commands.options import parse_window
from learning.commands.spark_options import WarehouseOption, with_spark_options
from learning.jobs.sources import FileSource, SourceLag, TopicSource
from learning.jobs.spark_options import SparkSettings
from learning.jobs.warehouse import NoTraffic, SourceStatus, Warehouse, all_statistics, read_report, read_window, status
from learning.spark import pipeline
from learning.statistics.model import UsageRow

DEFAULT_WINDOW: Final = "1h"
DEFAULT_KEEP_DAYS: Final = 35
"""The 31 days of a usage report, plus some to make it."""
MIN_KEEP_DAYS: Final = 9
"""Statistics of a window of a day use the 7 days before it."""
_SOURCES: Final = ("kafka", "files", "none")


def register(cli: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(no_args_is_help=True, help="Turn recorded traffic into tables and statistics with Spark.")
    group.command("run")(with_spark_options(with_kafka_options(run_command)))
    group.command("status")(with_kafka_options(status_command))
    group.command("usage")(with_spark_options(usage_command))
    group.command("erase")(erase_command)
    cli.add_typer(group, name="pipeline")


def run_command(
    *,
    kafka: Mapping[str, object],
    settings: SparkSettings,
    state_dir: StateDirOption = DEFAULT_STATE_DIR,
    warehouse: WarehouseOption = None,
    source: Annotated[
        str | None,
        typer.Option(
            help="What to read: kafka, files or none. Default: kafka if traffic is recorded there or a cluster is "
            "named, else files."
        ),
    ] = None,
    folder: Annotated[
        Path | None, typer.Option("--input", help="Folder of files. Default: traffic/in in the state directory.")
    ] = None,
    keep: Annotated[
        bool | None,
        typer.Option(
            "--keep/--remove",
            help="Keep or remove files after they have been read. Default: keep those of --input only.",
        ),
    ] = None,
    keep_days: Annotated[
        int, typer.Option(min=MIN_KEEP_DAYS, help="Days to keep rows in the tables.")
    ] = DEFAULT_KEEP_DAYS,
    follow: Annotated[
        bool, typer.Option("--follow", help="Keep reading until Ctrl-C, and replace the statistics after batches.")
    ] = False,
    every: Annotated[float, typer.Option(min=0.1, help="Seconds between batches (with --follow).")] = 60.0,
    statistics: Annotated[bool, typer.Option("--statistics/--no-statistics", help="Compute the statistics.")] = True,
    window: Annotated[
        str, typer.Option(help="How much of the most recent traffic the statistics cover, such as 15m.")
    ] = DEFAULT_WINDOW,
    begin: Annotated[str | None, typer.Option("--from", help="Start of the window (ISO 8601).")] = None,
    end: Annotated[str | None, typer.Option("--to", help="End of the window (ISO 8601).")] = None,
    name: Annotated[
        str | None, typer.Option(hidden=True, help="Name of the statistics. Default: the end of the window.")
    ] = None,
) -> int:
    """Read recorded traffic into tables, and compute the statistics of a window."""
    if source not in {None, *_SOURCES}:
        raise typer.BadParameter(f"--source is kafka, files or none, not {source}")
    if name is not None and re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", name) is None:
        raise typer.BadParameter("--name has letters, digits, '.', '_' and '-'")
    if follow and (begin, end) != (None, None):
        raise typer.BadParameter("--follow goes with --window: its statistics are of the last one")
    wanted = pipeline.WindowOptions(parse_window(window, begin, end), name) if statistics else None
    state = StateDir(state_dir)
    chosen = _source(source, state, folder, kafka)
    # Records of a topic are not removed.
    remove = isinstance(chosen, FileSource) and (not keep if keep is not None else folder is None)
    reading = None if chosen is None else pipeline.ReadOptions(chosen, remove, every if follow else None, keep_days)
    try:
        pipeline.run(pipeline.warehouse(state.path, warehouse), reading, wanted, Terminal(), settings)
    except NoTraffic as error:
        log.fail(str(error))
        return EXIT_NOTHING
    except KeyboardInterrupt:
        if not follow:
            raise
    return 0


def status_command(
    *,
    kafka: Mapping[str, object],
    state_dir: StateDirOption = DEFAULT_STATE_DIR,
    warehouse: WarehouseOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> int:
    """Show what has been read, what is unread, which lines were invalid and why, and the statistics there are."""
    state = StateDir(state_dir)
    here = pipeline.warehouse(state.path, warehouse)
    try:
        cluster = find_cluster(state, kafka, KafkaUser.PIPELINE).options
    except NoCluster:
        cluster = None
    read = asyncio.run(report(here, _folder(state), cluster))
    if as_json:
        typer.echo(json.dumps(asdict(read)))
        return 0
    console = plain_console()
    for each in status_lines(read):
        console.print(each)
    return 0


def _source(
    kind: str | None, state: StateDir, folder: Path | None, kafka: Mapping[str, Any]
) -> FileSource | TopicSource | None:
    if kind == "none":
        return None
    if kind == "files" or (kind is None and (folder is not None or _records_files(state, kafka))):
        return FileSource(_folder(state) if folder is None else folder.absolute())
    try:
        cluster = find_cluster(state, kafka, KafkaUser.PIPELINE)
    except NoCluster:
        if kind == "kafka":
            raise
        return FileSource(_folder(state))
    return asyncio.run(_kafka_source(cluster.options))


async def _kafka_source(cluster: KafkaOptions) -> TopicSource:
    from learning.jobs.traffic_topic import kafka_source  # noqa: PLC0415  # its client is an extra

    return await kafka_source(cluster)


def _records_files(state: StateDir, kafka: Mapping[str, Any]) -> bool:
    """Return whether the local ``diem up`` records traffic to files although it uses Kafka; a named cluster wins."""
    sink = state.read_processes().get("traffic", {}).get("sink")
    return sink == "files" and "kafka_bootstrap_servers" not in kafka


def _folder(state: StateDir) -> Path:
    return state.path / "traffic" / "in"


DEFAULT_DAYS: Final = 31
MAX_ROWS: Final = 100
"""Rows shown, those with the most requests; ``--json`` has all."""
_DAY: Final = "%Y-%m-%d"


def usage_command(
    *,
    settings: SparkSettings,
    state_dir: StateDirOption = DEFAULT_STATE_DIR,
    warehouse: WarehouseOption = None,
    begin: Annotated[
        datetime | None,
        typer.Option("--from", formats=[_DAY], help=f"First day (UTC). Default: {DEFAULT_DAYS} days before --to."),
    ] = None,
    end: Annotated[
        datetime | None, typer.Option("--to", formats=[_DAY], help="Last day (UTC). Default: today.")
    ] = None,
    key: Annotated[str | None, typer.Option(help="Show only the API key with this id.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object with all rows.")] = False,
) -> int:
    """Show requests by API key and endpoint, from the traffic that `diem pipeline run` has read."""
    last = end.date() if end is not None else datetime.now(UTC).date()
    first = begin.date() if begin is not None else last - timedelta(days=DEFAULT_DAYS - 1)
    if first > last:
        raise typer.BadParameter(f"--from {first} is after --to {last}")
    here = pipeline.warehouse(StateDir(state_dir).path, warehouse)
    file = pipeline.run_usage(here, (first, last), Terminal(quiet=as_json), settings)
    found = [row for row in read_report(file) if key is None or row.key == key]
    if as_json:
        typer.echo(json.dumps({"from": str(first), "to": str(last), "file": str(file), "usage": as_objects(found)}))
        return 0
    console = plain_console()
    if not found:
        console.print(f"no requests from {first} to {last} are recorded in {here.root}")
        return 0
    largest = largest_rows(found, MAX_ROWS)
    console.print(usage_table(largest))
    left = f"; {len(found) - len(largest):,} more rows" if len(found) > len(largest) else ""
    console.print(f"{sum(row.answered for row in found):,} requests answered{left}: {file}")
    return 0


def largest_rows(found: list[UsageRow], rows: int) -> list[UsageRow]:
    """Return the rows with most requests, in the given order."""
    if len(found) <= rows:
        return found
    return sorted(sorted(found, key=lambda row: (-row.answered - row.refused, row))[:rows])


def usage_table(rows: Iterable[UsageRow]) -> Table:
    """Return rows as a table."""
    numbers = ("answered", "refused")
    table = plain_table("day", "key", "plan", "endpoint", *numbers, right=numbers, wrap=("endpoint",))
    for row in rows:
        counts = (f"{row.answered:,}", f"{row.refused:,}")
        table.add_row(row.day.isoformat(), row.key or "-", row.plan, row.endpoint or "-", *counts)
    return table


def as_objects(rows: Iterable[UsageRow]) -> list[dict[str, str | int]]:
    """Return rows as JSON objects."""
    return [{name: _plain(value) for name, value in row._asdict().items()} for row in rows]


def _plain(value: date | str | int) -> str | int:
    return value.isoformat() if isinstance(value, date) else value


@dataclass(frozen=True, slots=True)
class SourceReport:
    """A source and its lag, None if unknown."""

    source: SourceStatus
    unread: int | None
    lost: int | None


@dataclass(frozen=True, slots=True)
class PipelineReport:
    """Status of a warehouse: its sources and its statistics."""

    warehouse: str
    sources: list[SourceReport]
    statistics: list[dict[str, str | int]]
    """The content of each ``window.json``, with its name."""


async def report(here: Warehouse, folder: Path, cluster: KafkaOptions | None) -> PipelineReport:
    """Return the status of a warehouse.

    Args:
        here: the warehouse.
        folder: input folder of files.
        cluster: the Kafka cluster that has recorded traffic.
    """
    unread = await _unread(here, folder, cluster)
    names = sorted({*here.sources(), *(name for name, some in unread.items() if some.unread)})
    sources = [_source_report(status(here, name), unread.get(name)) for name in names]
    statistics = [{"name": each.name, **read_window(each)} for each in all_statistics(here)]
    return PipelineReport(str(here.root), sources, statistics)


def _source_report(source: SourceStatus, unread: SourceLag | None) -> SourceReport:
    return SourceReport(source, unread and unread.unread, unread and unread.lost)


async def _unread(here: Warehouse, folder: Path, cluster: KafkaOptions | None) -> dict[str, SourceLag]:
    files = FileSource(folder)
    lag = {files.name: await pipeline.unread_of(here, files)}
    if cluster is not None:
        with suppress(DiemError):  # leave out the topic's lag
            source = await _kafka_source(cluster)
            lag[source.name] = await pipeline.unread_of(here, source)
    return lag


def status_lines(read: PipelineReport) -> Iterator[Table | Text]:
    """Render a report."""
    if not read.sources:
        yield Text(f"nothing has been read into {read.warehouse} yet: run {diem_command('pipeline', 'run')}")
        return
    yield _sources(read.sources)
    if any(each.source.quarantine for each in read.sources):
        yield Text()
        yield _quarantine(read.sources)
    if read.statistics:
        yield Text()
        yield _statistics(read.statistics)


def _sources(sources: list[SourceReport]) -> Table:
    table = _table("source", "events", "quarantine", "unread", "lost", "last batch", "lines", "files", "size")
    for each in sources:
        source = each.source
        bad = None if source.quarantine is None else sum(source.quarantine.values())
        table.add_row(
            source.where if source.where != "-" else source.name,
            *map(_number, (source.events, bad, each.unread, each.lost)),
            _ago(source.at),
            *map(_number, (source.lines, source.files)),
            "-" if source.size is None else f"{source.size / 2**20:.1f} MiB",
        )
    return table


def _quarantine(sources: list[SourceReport]) -> Table:
    table = _table("quarantine", "lines")
    reasons: dict[str, int] = {}
    for each in sources:
        for reason, count in (each.source.quarantine or {}).items():
            reasons[reason] = reasons.get(reason, 0) + count
    for reason, count in sorted(reasons.items(), key=lambda item: (-item[1], item[0])):
        table.add_row(Text(reason), _number(count))
    return table


def _statistics(computed: list[dict[str, str | int]]) -> Table:
    columns = ("from", "to", "events", "clients", "endpoints", "sets")
    table = _table("statistics", *columns)
    for each in computed:
        table.add_row(str(each["name"]), *(_number(each[column]) for column in columns))
    return table


def _table(first: str, *numbers: str) -> Table:
    return plain_table(first, *numbers, right=numbers, wrap=(first,))


def _number(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _ago(at: str | None) -> str:
    if at is None:
        return "-"
    seconds = max(0, round(time.time() - datetime.fromisoformat(at).timestamp()))
    return f"{seconds} s ago" if seconds < 600 else f"{seconds // 60} min ago"
