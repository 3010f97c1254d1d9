"""Condensed history: the few events before a time that affect the statistics of later windows.

A session may begin 7 days before a window. To avoid reading a week of events for every window, the statistics of a
window come with a condensed history (docs/traffic.md section 3.5): a table with the columns of ``events``, some of its
rows, and signs of processes and endpoints. A later window reads it instead of the events before its time, with
bit-identical statistics.

Each is a folder, named by its time in Unix ms. It is valid while the table ``events`` has the same number of rows
before that time as at its creation. An invalid or damaged one is removed, and the window is computed from all events.
"""

import hashlib
import json
import shutil
import time
from collections.abc import Callable, Iterable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from diem.protocol.update import iso
from learning.jobs import tables
from learning.jobs.delta_table import CommittedFile, row_groups
from learning.jobs.spark_options import spark_path
from learning.jobs.spark_session import SparkFailed, adapt_to_size
from learning.jobs.tables import EVENT_COLUMNS
from learning.jobs.warehouse import Warehouse
from learning.statistics.constants import DAY_MS, ENDED_MS, HISTORY_MS
from learning.statistics.reference import Sign
from learning.statistics.window import Window

FORMAT: Final = "diem.history/2"
LATENESS_MS: Final = 600_000
"""Time before its window at which a history ends: later arrivals invalidate it."""
STEPS: Final = 4
"""Histories in the length of a window, at most: windows that overlap need an older one than the last."""
_META: Final = "history.json"
_ROWS: Final = "events.parquet"
_SIGN: Final = pa.schema(
    {
        "type": pa.string(),
        "edge": pa.string(),
        "boot": pa.string(),
        "time": pa.timestamp("us", "UTC"),
        "updates": pa.list_(pa.struct({"endpoint": pa.string()})),
    }
)
"""Columns of signs, as counts of no time."""


def condense(events: DataFrame, at: int) -> DataFrame:
    """Return the events before a time that affect windows from then on, with the columns of the table ``events``.

    These are the events of open sessions, and counts whose middle is not before the time, with repeats. The same as
    those of :func:`learning.statistics.reference.condense`.

    Args:
        events: with repeats: all from 7 days before the time on, or those of an earlier condensed history and all
            since.
        at: Unix ms.
    """
    before = events.withColumn("at", F.unix_millis("time")).where(F.col("at").between(at - HISTORY_MS, at - 1))
    is_end, is_client = F.col("type") == "disconnect", F.col("connection").isNotNull()
    # Open connections are as many as there were clients at that time; connections, as many as there were in 7 days.
    connections = before.where(is_client).groupBy("connection").agg(F.bool_or(is_end).alias("ended"))
    lasting = connections.where(~F.col("ended")).select("connection", F.lit(True).alias("lasts"))
    is_open = F.col("lasts").isNotNull() | (is_client & is_end & (F.col("at") >= at - ENDED_MS))
    middle = F.floor((F.unix_millis("since") + F.unix_millis("until")) / 2)
    is_ahead = F.coalesce((F.col("type") == "counts") & (middle >= at), F.lit(False))
    return before.join(F.broadcast(lasting), "connection", "left").where(is_open | is_ahead).select(*EVENT_COLUMNS)


def read(
    spark: SparkSession, warehouse: Warehouse, files: list[CommittedFile], window: Window, warn: Callable[[str], None]
) -> DataFrame:
    """Return the input events of a window's statistics, with repeats; adapt the session to their size.

    Args:
        spark: the session.
        warehouse: the warehouse.
        files: those of the table ``events``. The same for this and :func:`save`.
        window: the window.
        warn: called with a sentence for each invalid history.
    """
    found = find(files, warehouse, window, warn)
    since = window.start - HISTORY_MS if found is None else int(found.name)
    last = _day(window.end) + timedelta(days=1)
    near = [file for file in files if _day(since) <= file.day <= last]
    groups = row_groups(file.path for file in near)
    adapt_to_size(spark, sum(group.size for group in groups if group.last >= since and group.first < window.end))
    table = tables.events(spark, warehouse, near)
    if found is None:
        return table
    # Skips earlier row groups.
    later = table.where(F.col("time") >= F.timestamp_millis(F.lit(since)))
    return spark.read.schema(table.schema).parquet(spark_path(found / _ROWS)).unionByName(later)


def find(files: list[CommittedFile], warehouse: Warehouse, window: Window, warn: Callable[[str], None]) -> Path | None:
    """Return the folder of the latest valid history for a window, if any; remove invalid ones."""
    for folder in reversed(histories(warehouse)):
        at = int(folder.name)
        if window.start - HISTORY_MS < at <= window.start:
            if (fault := _fault(folder, files)) is None:
                return folder
            warn(f"the condensed history of {iso(at)} is not used ({fault}): events of before then are read again")
            shutil.rmtree(folder, ignore_errors=True)
    return None


def histories(warehouse: Warehouse) -> list[Path]:
    """Return the folders of all histories, the earliest first."""
    folders = warehouse.history.glob("*")
    return sorted((each for each in folders if each.name.isdecimal()), key=lambda each: int(each.name))


def _fault(folder: Path, files: list[CommittedFile]) -> str | None:
    """Return the reason why a history is unusable, or None."""
    try:
        content = json.loads((folder / _META).read_text(encoding="utf-8"))
        is_whole = (content["format"], content["files"]) == (FORMAT, _digests(folder / _ROWS))
        rows = int(content["rows"])
    except (OSError, ValueError, LookupError, TypeError):
        is_whole, rows = False, 0
    if not is_whole:
        return "it is damaged, or of another release"
    change = _count_rows(files, int(folder.name)) - rows
    return f"rows of its time since it was made: {change:+,}" if change else None


def _digests(folder: Path) -> dict[str, str]:
    digests = {}
    for file in sorted(folder.glob("part-*")):
        with file.open("rb") as opened:
            digests[file.name] = hashlib.file_digest(opened, "sha256").hexdigest()
    return digests


def due(warehouse: Warehouse, window: Window) -> int | None:
    """Return the time of the history for the windows after this one (Unix ms).

    None if there is a later one, or one that is a quarter of the window older at most. One of a clock that was ahead is
    none of these.
    """
    now = time.time_ns() // 1_000_000
    at = max(window.start, min(window.end, now) - LATENESS_MS)
    old = [each for each in (int(folder.name) for folder in histories(warehouse)) if each <= now]
    return None if at > now or (old and at < old[-1] + window.ms // STEPS) else at


def save(
    warehouse: Warehouse,
    files: list[CommittedFile],
    events: DataFrame,
    window: Window,
    *,
    at: int,
    signs: Iterable[Sign],
) -> Path:
    """Write the history of a time, and remove those that windows after this one do not need; return its folder.

    Args:
        warehouse: the warehouse.
        files: those of the table ``events``.
        events: those that the statistics of the window were computed from.
        window: the window.
        at: the time (:func:`due`).
        signs: those before it.

    Raises:
        SparkFailed: an executor wrote to its own folder.
    """
    root = warehouse.history
    folder = root / str(at)
    _remove_leftovers(root)
    new = root / f".{at}.new"
    for existing in (new, folder):
        shutil.rmtree(existing, ignore_errors=True)
    new.mkdir(parents=True)
    condensed = condense(events, at).coalesce(events.sparkSession.sparkContext.defaultParallelism)
    condensed.write.parquet(spark_path(new / _ROWS))
    if not any((new / _ROWS).glob("part-*")):
        raise SparkFailed(f"the history is not in {new}: do all workers have the warehouse at this path?")
    rows = [
        {
            "type": "counts",
            "edge": edge,
            "boot": boot,
            "time": time_ms * 1000,
            "updates": [{"endpoint": each} for each in endpoints],
        }
        for edge, boot, time_ms, endpoints in signs
    ]
    pq.write_table(pa.Table.from_pylist(rows, _SIGN), new / _ROWS / "part-signs.parquet")
    content = {"format": FORMAT, "rows": _count_rows(files, at), "files": _digests(new / _ROWS)}
    (new / _META).write_text(json.dumps(content) + "\n", encoding="utf-8")
    new.rename(folder)
    for each in histories(warehouse):
        # The next windows of this length begin later.
        if int(each.name) < window.start - window.ms:
            shutil.rmtree(each, ignore_errors=True)
    return folder


def _remove_leftovers(root: Path) -> None:
    for leftover in root.glob(".*"):
        if time.time() - leftover.stat().st_mtime > DAY_MS / 1000:
            shutil.rmtree(leftover, ignore_errors=True)


def _count_rows(files: list[CommittedFile], at: int) -> int:
    """Return the rows of the table ``events`` on the 7 days before that of a time, and on that day before the time."""
    today, first = _day(at), _day(at - HISTORY_MS)
    count = sum(file.rows for file in files if first <= file.day < today)
    for group in row_groups(file.path for file in files if file.day == today):
        if group.last < at:
            count += group.rows
        elif group.first < at:
            count += pc.sum(pc.less(group.read("time"), at)).as_py()
    return count


def _day(ms: int) -> date:
    return datetime.fromtimestamp(ms / 1000, UTC).date()
