"""Tries every configured source once, without a store: the data it would publish, or the reason why not.

Separate from its only caller, ``diem sources check``, as it needs no terminal.
"""

import os
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import orjson

from diem.process.clock import Clock
from services.data.files.reader import FileReader
from services.data.kinds import SERIES, Representation
from services.data.sources.config import Config
from services.data.sources.runner import SourceRunner
from services.data.sources.source import Fault, Health
from services.data.sources.tables import DataTable, DirectoryConfig, HttpConfig, SourceTable
from services.data.sources.webhook.table import WebhookConfig


class PublishedData(NamedTuple):
    """Data of an endpoint, ready to publish; other kinds than series have media type and size alone."""

    endpoint: str
    media_type: str
    bytes: int
    points: int = 0
    unit: str = ""
    resolution: str = ""
    first: str = ""
    """Time of the first point, ISO 8601, like ``last``."""
    last: str = ""


class SourceTrial(NamedTuple):
    """The outcome of one source."""

    name: str
    type: str
    error: str | None
    """None without a failure."""
    remedy: str | None
    """Remedy for the error, or for a source without data; None if unknown or unneeded."""
    endpoints: tuple[PublishedData, ...]
    """Sorted by name."""
    errors: tuple[str, ...] = ()
    """Every error, if several, such as one per file; bounded (``MAX_ERRORS``)."""

    @property
    def points(self) -> int:
        """Number of points of all endpoints."""
        return sum(each.points for each in self.endpoints)


async def try_sources(config: Config, clock: Clock, watched: Iterable[str] = ()) -> list[SourceTrial]:
    """Read all sources of a configuration once, and return their outcomes in its order; nothing is stored.

    A unit or resolution different from the store's goes unnoticed: no store is opened. ``watched``: endpoints that are
    only polled while they are watched.

    Raises:
        ConfigurationError: two sources claim the same endpoint, a type is unusable, or no source polls a watched one.
    """
    found: dict[str, dict[str, PublishedData]] = {each.name: {} for each in config.source}

    async def record(datasets: Sequence[Representation], *, source: str) -> None:
        found[source].update((each.endpoint, _summary(each)) for each in datasets)

    async with FileReader() as reader:
        runner = SourceRunner.configured(config, clock, convert=reader.convert)
        for name in watched:
            runner.watch(name)
        await runner.try_once(record)
    return [
        _outcome(table, health, found[table.name]) for table, health in zip(config.source, runner.health(), strict=True)
    ]


def _summary(made: Representation) -> PublishedData:
    summary = PublishedData(made.endpoint, made.media_type, len(made.content))
    if made.media_type != SERIES:
        return summary
    times = [point["time"] for point in orjson.loads(made.content)["points"]]
    first, last = (times[0], times[-1]) if times else ("", "")
    unit, resolution = made.label("unit"), made.label("resolution")
    return summary._replace(points=len(times), unit=unit, resolution=resolution, first=first, last=last)


def _outcome(table: SourceTable, health: Health, found: dict[str, PublishedData]) -> SourceTrial:
    works = None if found else _where_data_comes_from(table)
    remedy = works if health.error is None else _remedy(table, health.fault)
    published = tuple(found[name] for name in sorted(found))
    return SourceTrial(table.name, table.type, health.error, remedy, published, health.errors)


def _remedy(table: SourceTable, fault: Fault | None) -> str | None:
    match table, fault:
        # ``Path.is_dir`` raises PermissionError below an inaccessible directory.
        case DirectoryConfig(), Fault.UNREACHABLE if not os.path.isdir(table.path):  # noqa: PTH112
            return "create the directory or correct `path`; it is read within seconds once it is there"
        case DirectoryConfig(), Fault.UNREACHABLE:
            return "let this user read the directory and its files"
        case HttpConfig(), Fault.UNREACHABLE:
            return "correct `url`, or check its server; a running DIEM tries again by itself"
        case WebhookConfig(), Fault.UNREACHABLE:
            return "put the secret that the sender shows into the file, readable by its owner alone"
        case DataTable(), Fault.INVALID:
            return "correct the data, or what diem.toml says of it (unit, resolution, quantity, zone, mapping)"
    return None


def _where_data_comes_from(table: SourceTable) -> str | None:
    """Return the reason why a working source has no data."""
    if isinstance(table, DirectoryConfig):
        wanted = f"no file *{', *'.join(table.suffixes)}" if table.file is None else f"no {table.file}"
        return f"no data yet: there is {wanted} in {table.path}"
    if isinstance(table, HttpConfig) and table.is_watched:
        return f"endpoints are polled while they are watched: `--watch {table.prefix}/NAME` reads one"
    if isinstance(table, WebhookConfig):
        return f"no data yet: it comes with requests to POST /v1/hooks/{table.name}"
    return "no data yet"
