"""Keeps the tables of a source small: compaction of past days, and retention.

Done by delta-rs in this process, without Spark: each change is one commit, so that readers see the tables before or
after it, despite kills. The caller holds the source's lock: removing files without a commit would remove those of a
running query.
"""

from collections import Counter
from collections.abc import Iterable
from datetime import date, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

from learning.jobs.delta_table import RETENTION_H, CommittedFile, files_of, is_written, kind_column, open_table

if TYPE_CHECKING:
    from deltalake import DeltaTable

MIN_FILES: Final = 8
"""Number of small files of one kind and day from which they are merged."""
SMALL_BYTES: Final = 64 << 20
"""Size from which a file is not merged."""
MAX_EXPIRED_DAYS: Final = 3
"""Most days that lose their rows at once, since a clock may be years ahead for one run."""


def maintain(sink: Path, today: date, keep_days: int | None = None) -> int:
    """Compact the days before ``today`` (UTC); return the reduction in files.

    Days more than ``keep_days`` before it lose their rows, the oldest :data:`MAX_EXPIRED_DAYS` of them; their files are
    removed a day later, as are leftovers of interrupted attempts.

    Raises:
        DeltaError: a day could not be compacted; raised after compacting all other days.
    """
    if not is_written(sink):
        return 0
    table = open_table(sink)
    if keep_days is not None:
        _expire(table, sink, today - timedelta(days=keep_days))
    fewer, faults, column = 0, list[Exception](), kind_column(table)
    for kind, day in _compactable(files_of(table, sink), today):
        try:
            done = table.optimize.compact(
                partition_filters=[(column, "=", kind), ("day", "=", day.isoformat())], target_size=SMALL_BYTES
            )
        except Exception as error:  # noqa: BLE001  # one unreadable day must not keep the others from being compacted
            faults.append(error)
        else:
            fewer += done["numFilesRemoved"] - done["numFilesAdded"]
    # Full: also files that no commit has ever named.
    table.vacuum(RETENTION_H, dry_run=False, full=True)
    if faults:
        raise faults[0]
    return fewer


def _expire(table: "DeltaTable", sink: Path, first: date) -> None:
    old = sorted({file.day for file in files_of(table, sink) if file.day < first})[:MAX_EXPIRED_DAYS]
    if old:
        table.delete(f"day <= '{old[-1].isoformat()}'")


def _compactable(files: Iterable[CommittedFile], today: date) -> list[tuple[str, date]]:
    """Return the kinds and days with many small files."""
    small = Counter((file.kind, file.day) for file in files if file.day < today and file.size < SMALL_BYTES)
    return sorted(key for key, count in small.items() if count >= MIN_FILES)
