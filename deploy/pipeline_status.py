"""Output of `diem pipeline status`."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from rich.table import Table
from rich.text import Text

from diem.errors import DiemError
from diem.kafka.config import KafkaOptions
from metadata.jobs import behind, windows
from metadata.jobs.behind import SourceLag
from metadata.jobs.logs import read_offsets
from metadata.jobs.sources import FileSource
from metadata.jobs.status import SourceStatus, status
from metadata.jobs.warehouse import Warehouse


@dataclass(frozen=True, slots=True)
class RenderedStatus:
    """A source, and how far behind it is read; None where that is not known."""

    source: SourceStatus
    unread: int | None
    lost: int | None


@dataclass(frozen=True, slots=True)
class PipelineReport:
    """All that there is."""

    warehouse: str
    sources: list[RenderedStatus]
    statistics: list[dict[str, str | int]]
    """The content of each `window.json`, with its name."""


async def report(here: Warehouse, folder: Path, cluster: KafkaOptions | None) -> PipelineReport:
    """Return the status of a warehouse.

    Args:
        here: the warehouse.
        folder: of files that are not read yet.
        cluster: where traffic is recorded in Kafka.
    """
    unread = await _unread(here, folder, cluster)
    names = sorted({*here.sources(), *(name for name, some in unread.items() if some.unread)})
    sources = [_shown(status(here, name), unread.get(name)) for name in names]
    statistics = [{"name": each.name, **windows.read_window(each)} for each in windows.all_statistics(here)]
    return PipelineReport(str(here.root), sources, statistics)


def _shown(source: SourceStatus, unread: SourceLag | None) -> RenderedStatus:
    return RenderedStatus(source, unread and unread.unread, unread and unread.lost)


async def _unread(here: Warehouse, folder: Path, cluster: KafkaOptions | None) -> dict[str, SourceLag]:
    files = FileSource(folder)
    found = {files.name: behind.unread_files(folder, here.checkpoint(files.name))}
    if cluster is not None:
        from metadata.jobs import topic  # noqa: PLC0415  # its client is an extra

        try:
            source = await topic.kafka_source(cluster)
            offsets = read_offsets(here.checkpoint(source.name)).get(source.topic, {})
            found[source.name] = await topic.unread_records(cluster, offsets)
        except DiemError:
            return found  # then it is not known
    return found


def status_lines(read: PipelineReport) -> Iterator[Table | Text]:
    """Render a report."""
    if not read.sources:
        yield Text(f"nothing was read into {read.warehouse}: diem pipeline run")
        return
    yield _sources(read.sources)
    if any(shown.source.quarantine for shown in read.sources):
        yield Text()
        yield _quarantine(read.sources)
    if read.statistics:
        yield Text()
        yield _statistics(read.statistics)


def _sources(sources: list[RenderedStatus]) -> Table:
    table = _table("source", "events", "quarantine", "unread", "lost", "last batch", "lines", "files", "size")
    for shown in sources:
        source = shown.source
        bad = None if source.quarantine is None else sum(source.quarantine.values())
        table.add_row(
            source.where if source.where != "-" else source.name,
            *map(_number, (source.events, bad, shown.unread, shown.lost)),
            _ago(source.at),
            *map(_number, (source.lines, source.files)),
            f"{source.size / 2**20:.1f} MiB",
        )
    return table


def _quarantine(sources: list[RenderedStatus]) -> Table:
    table = _table("quarantine", "lines")
    reasons: dict[str, int] = {}
    for shown in sources:
        for reason, count in (shown.source.quarantine or {}).items():
            reasons[reason] = reasons.get(reason, 0) + count
    for reason, count in sorted(reasons.items(), key=lambda item: (-item[1], item[0])):
        table.add_row(Text(reason), _number(count))
    return table


def _statistics(found: list[dict[str, str | int]]) -> Table:
    columns = ("from", "to", "events", "clients", "endpoints", "sets")
    table = _table("statistics", *columns)
    for each in found:
        table.add_row(str(each["name"]), *(_number(each[column]) for column in columns))
    return table


def _table(first: str, *others: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column(first, overflow="fold")
    for heading in others:
        table.add_column(heading, justify="right")
    return table


def _number(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _ago(at: str | None) -> str:
    if at is None:
        return "-"
    seconds = max(0, round(time.time() - datetime.fromisoformat(at).timestamp()))
    return f"{seconds} s ago" if seconds < 600 else f"{seconds // 60} min ago"
