"""Condensed history: the few events before a time that affect the statistics of later windows.

A session may begin 7 days before a window. To avoid reading a week of events for every window, the statistics of a
window come with a condensed history (docs/traffic.md section 3.5): a table with the columns of ``events`` and some of
its rows. A later window reads it instead of the events before its time, with bit-identical statistics.

Each is a folder, named by its time in Unix ms. It is valid while the table ``events`` has the same number of rows
before that time as at its creation. An invalid or damaged one is removed, and the window is computed from all events.
"""

import hashlib
import json
import shutil
import time
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from diem.protocol.update import iso
from learning.jobs.spark_options import spark_path
from learning.jobs.spark_session import SparkFailed
from learning.jobs.tables import EVENT_COLUMNS, confirmed_names
from learning.jobs.warehouse import Warehouse
from learning.statistics.constants import DAY_MS, ENDED_MS, HISTORY_MS
from learning.statistics.window import Window

FORMAT: Final = "diem.history/1"
LATENESS_MS: Final = 600_000
"""Time before its window at which a history ends: later arrivals invalidate it."""
STEPS: Final = 4
"""Histories in the length of a window, at most: windows that overlap need an older one than the last."""
_META: Final = "history.json"
_ROWS: Final = "events.parquet"


def condense(events: DataFrame, at: int) -> DataFrame:
    """Return the events before a time that affect windows from then on, with the columns of the table ``events``.

    These are the events of open sessions, the last event of each life (a sign of life), the last event that confirms
    each endpoint, and counts whose middle is not before the time. The same as
    :func:`learning.statistics.reference.condense`.

    Args:
        events: distinct, with ``at``: all from 7 days before the time on, or those of an earlier condensed history and
            all since.
        at: Unix ms.
    """
    before = events.where((F.col("at") >= at - HISTORY_MS) & (F.col("at") < at))
    is_end = F.col("type") == "disconnect"
    ended = before.where(is_end).select("connection").distinct().withColumn("ended", F.lit(True))
    # The name of a life is hexadecimal, that of an endpoint begins with a slash.
    subjects = F.explode(F.concat(F.array("boot"), confirmed_names())).alias("subject")
    latest = (
        before.select("id", "at", subjects)
        .groupBy("subject")
        .agg(F.max(F.struct("at", "id")).alias("last"))
        .select(F.col("last.id").alias("id"))
        .distinct()
        .withColumn("latest", F.lit(True))
    )
    is_open = F.col("connection").isNotNull() & (F.col("ended").isNull() | (is_end & (F.col("at") >= at - ENDED_MS)))
    middle = F.floor((F.unix_millis("since") + F.unix_millis("until")) / 2)
    is_ahead = F.coalesce((F.col("type") == "counts") & (middle >= at), F.lit(False))
    return (
        before.join(ended, "connection", "left")
        .join(latest, "id", "left")
        .withColumn("open", is_open)
        .where(F.col("open") | is_ahead | F.col("latest").isNotNull())
        # Other events of an ended session would restart it.
        .withColumns({name: F.when(F.col("open"), F.col(name)) for name in ("client", "connection")})
        .select(*EVENT_COLUMNS)
    )


def read(table: DataFrame, warehouse: Warehouse, window: Window, warn: Callable[[str], None]) -> DataFrame:
    """Return the input events of a window's statistics, with repeats.

    Args:
        table: the table ``events``. One frame for this and :func:`save`, so that both see the same files.
        warehouse: the warehouse.
        window: the window.
        warn: called with a sentence for each invalid history.
    """
    last = F.col("day") <= F.lit(_day(window.end) + timedelta(days=1))
    found = find(table, warehouse, window, warn)
    if found is None:
        return table.where((F.col("day") >= F.lit(_day(window.start - HISTORY_MS))) & last)
    at = int(found.name)
    # Skips earlier days and earlier row groups.
    since = (F.col("day") >= F.lit(_day(at))) & (F.col("time") >= F.timestamp_millis(F.lit(at)))
    return table.sparkSession.read.parquet(spark_path(found / _ROWS)).unionByName(table.where(since & last))


def find(table: DataFrame, warehouse: Warehouse, window: Window, warn: Callable[[str], None]) -> Path | None:
    """Return the folder of the latest valid history for a window, if any; remove invalid ones."""
    for folder in reversed(histories(warehouse)):
        at = int(folder.name)
        if window.start - HISTORY_MS < at <= window.start:
            if (fault := _fault(folder, table)) is None:
                return folder
            warn(f"the condensed history of {iso(at)} is not used ({fault}): events of before then are read again")
            shutil.rmtree(folder, ignore_errors=True)
    return None


def histories(warehouse: Warehouse) -> list[Path]:
    """Return the folders of all histories, the earliest first."""
    folders = warehouse.history.glob("*")
    return sorted((each for each in folders if each.name.isdecimal()), key=lambda each: int(each.name))


def _fault(folder: Path, table: DataFrame) -> str | None:
    """Return the reason why a history is unusable, or None."""
    try:
        content = json.loads((folder / _META).read_text(encoding="utf-8"))
        is_whole = (content["format"], content["files"]) == (FORMAT, _digests(folder / _ROWS))
        rows = int(content["rows"])
    except (OSError, ValueError, LookupError, TypeError):
        is_whole, rows = False, 0
    if not is_whole:
        return "it is damaged, or of another release"
    change = _count_rows(table, int(folder.name)) - rows
    return f"rows of its time since it was made: {change:+,}" if change else None


def _digests(folder: Path) -> dict[str, str]:
    digests = {}
    for file in sorted(folder.glob("part-*")):
        with file.open("rb") as opened:
            digests[file.name] = hashlib.file_digest(opened, "sha256").hexdigest()
    return digests


def save(table: DataFrame, warehouse: Warehouse, events: DataFrame, window: Window) -> Path | None:
    """Write the history for the windows after this one, and remove unneeded ones; return its folder.

    None is written if there is a later one, or one that is a quarter of the window older at most. One of a clock that
    was ahead is none of these.

    Args:
        table: the table ``events``.
        warehouse: the warehouse.
        events: the distinct ones that the statistics of the window were computed from, with ``at``.
        window: the window.

    Raises:
        SparkFailed: an executor wrote to its own folder.
    """
    now = time.time_ns() // 1_000_000
    old = [each for each in histories(warehouse) if int(each.name) <= now]
    at = max(window.start, min(window.end, now) - LATENESS_MS)
    if at > now or (old and at < int(old[-1].name) + window.ms // STEPS):
        return None
    root = warehouse.history
    folder = root / str(at)
    _remove_leftovers(root)
    new = root / f".{at}.new"
    for existing in (new, folder):
        shutil.rmtree(existing, ignore_errors=True)
    new.mkdir(parents=True)
    condensed = condense(events, at).coalesce(table.sparkSession.sparkContext.defaultParallelism)
    condensed.write.parquet(spark_path(new / _ROWS))
    if not (files := _digests(new / _ROWS)):
        raise SparkFailed(f"the history is not in {new}: do all workers have the warehouse at this path?")
    content = {"format": FORMAT, "rows": _count_rows(table, at), "files": files}
    (new / _META).write_text(json.dumps(content) + "\n", encoding="utf-8")
    new.rename(folder)
    for each in old:
        # The next windows of this length begin later.
        if int(each.name) < window.start - window.ms:
            shutil.rmtree(each, ignore_errors=True)
    return folder


def _remove_leftovers(root: Path) -> None:
    for leftover in root.glob(".*"):
        if time.time() - leftover.stat().st_mtime > DAY_MS / 1000:
            shutil.rmtree(leftover, ignore_errors=True)


def _count_rows(table: DataFrame, at: int) -> int:
    """Return the rows of the table ``events`` on the 7 days before that of a time, and on that day before the time."""
    day, today = F.col("day"), _day(at)
    # Of whole days only the footers of the files are read.
    whole = table.where(day.between(F.lit(_day(at - HISTORY_MS)), F.lit(today - timedelta(days=1))))
    begun = table.where((day == F.lit(today)) & (F.col("time") < F.timestamp_millis(F.lit(at))))
    return whole.select("day").union(begun.select("day")).count()


def _day(ms: int) -> date:
    return datetime.fromtimestamp(ms / 1000, UTC).date()
