"""Computes the statistics of a window of a warehouse, and puts them there."""

import json
import shutil
import time
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

from diem.errors import DiemError
from diem.process.faults import ConfigurationError
from metadata.jobs import tables
from metadata.jobs.statistics import CachedFrames, Tables, statistics
from metadata.jobs.warehouse import Warehouse
from metadata.statistics.constants import HISTORY_MS
from metadata.statistics.model import window_json
from metadata.statistics.window import Window

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

WINDOW_FILE: Final = "window.json"
ORDERS: Final = {
    "endpoints": ("endpoint",),
    "sets": ("endpoints",),
    "pairs": ("weight", "first", "second"),
    "waste": ("edge",),
}
"""Of the rows of each table, which is one file; weights descend."""


@dataclass(eq=False)
class NoTraffic(DiemError):
    """There are no events to compute statistics of."""

    template = "no event has been recorded yet in {warehouse}: start `diem up` with traffic recorded, then read it"
    retriable = True

    warehouse: Path


@dataclass(eq=False)
class BadStatistics(ConfigurationError):
    """A folder of statistics is not complete."""

    template = "the statistics in {folder} cannot be used ({reason}): remove the folder, and compute them anew"

    folder: Path
    reason: str


def last_window(spark: "SparkSession", warehouse: Warehouse, span_ms: int) -> Window:
    """Return the window of that length which ends with the last event (or now, if an event is ahead of our clock).

    Raises:
        NoTraffic: there is no event.
    """
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    last = tables.events(spark, warehouse).agg(F.unix_millis(F.max("time")).alias("at")).first()
    if last is None or last["at"] is None:
        raise NoTraffic(warehouse.root)
    end = min(last["at"] + 1, time.time_ns() // 1_000_000)
    return Window(end - span_ms, end)


def compute(spark: "SparkSession", warehouse: Warehouse, window: Window, name: str | None = None) -> Path:
    """Compute the statistics of a window; returns their folder, which is there when it is complete.

    Args:
        spark: a session.
        warehouse: whose events.
        window: which.
        name: of the folder; what is there under it is replaced.
    """
    kept = CachedFrames()
    try:
        found = statistics(_events(spark, warehouse, window), window, kept)
        return write(found, window, warehouse.statistics / (name or window.name))
    finally:
        kept.free()


def _events(spark: "SparkSession", warehouse: Warehouse, window: Window) -> "DataFrame":
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    first, last = _day(window.start - HISTORY_MS), _day(window.end) + timedelta(days=1)
    return tables.events(spark, warehouse).where(F.col("day").between(F.lit(first), F.lit(last)))


def _day(ms: int) -> date:
    return datetime.fromtimestamp(ms / 1000, UTC).date()


def write(found: Tables, window: Window, folder: Path) -> Path:
    """Write statistics; what was there is there until they are complete."""
    new, old = folder.with_name(f".{folder.name}.new"), folder.with_name(f".{folder.name}.old")
    for leftover in (new, old):
        shutil.rmtree(leftover, ignore_errors=True)
    new.mkdir(parents=True)
    for name, order in ORDERS.items():
        frame = (
            getattr(found, name).repartition(1).sortWithinPartitions(*order, ascending=[c != "weight" for c in order])
        )
        frame.write.parquet(str(new / f"{name}.parquet"))
    content = json.dumps(window_json(window, found.summary), indent=2)
    (new / WINDOW_FILE).write_text(f"{content}\n", encoding="utf-8")
    if folder.exists():
        folder.rename(old)
    new.rename(folder)
    shutil.rmtree(old, ignore_errors=True)
    return folder


def all_statistics(warehouse: Warehouse) -> list[Path]:
    """Return the folders of all statistics, by the end of their window; needs no Spark."""
    found = [file.parent for file in warehouse.statistics.glob(f"[!.]*/{WINDOW_FILE}")]
    return sorted(found, key=lambda folder: (read_window(folder)["to"], folder.name))


def read_window(folder: Path) -> dict[str, str | int]:
    """Return the content of `window.json`; needs no Spark.

    Raises:
        BadStatistics: there is none, or it is not whole.
    """
    try:
        read: dict[str, str | int] = json.loads((folder / WINDOW_FILE).read_text(encoding="utf-8"))
        read["to"]
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise BadStatistics(folder, f"{WINDOW_FILE}: {error}") from error
    return read
