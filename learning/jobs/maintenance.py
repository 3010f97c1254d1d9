"""Keep the tables of a source small: compaction of past days, and retention.

All of it is done by delta-rs in this process, without Spark: a commit of its own for each change, so that readers see
the tables before it or after it, whatever is killed. The caller holds the source's lock: a removal of files that no
commit names would take those that a running query is writing.
"""

from collections import Counter
from collections.abc import Iterable
from datetime import date, timedelta
from typing import TYPE_CHECKING, Final

from learning.jobs.bucket import Folder
from learning.jobs.delta_table import RETENTION_H, CommittedFile, files_of, is_written, open_table

if TYPE_CHECKING:
    from deltalake import DeltaTable

MIN_FILES: Final = 8
"""Small files of one table and day from which on they are merged."""
SMALL_BYTES: Final = 64 << 20
"""Size from which on a file is left alone."""


def maintain(sink: Folder, today: date, keep_days: int | None = None) -> int:
    """Compact the days before ``today`` (UTC); return by how many files.

    Of days more than ``keep_days`` before it no rows are left; the files are removed a day later, as are those that
    interrupted attempts left behind.

    Raises:
        DeltaError: a day could not be compacted. Raised after all other days have been compacted.
    """
    if not is_written(sink):
        return 0
    table = open_table(sink)
    if keep_days is not None:
        _expire(table, sink, today - timedelta(days=keep_days))
    fewer, faults = 0, list[Exception]()
    for name, day in _compactable(files_of(table, sink), today):
        try:
            done = table.optimize.compact(
                partition_filters=[("table", "=", name), ("day", "=", day.isoformat())], target_size=SMALL_BYTES
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


def _expire(table: "DeltaTable", sink: Folder, first: date) -> None:
    if any(file.day < first for file in files_of(table, sink)):
        table.delete(f"day < '{first.isoformat()}'")


def _compactable(files: Iterable[CommittedFile], today: date) -> list[tuple[str, date]]:
    """Return the tables and days with many small files."""
    small = Counter((file.table, file.day) for file in files if file.day < today and file.size < SMALL_BYTES)
    return sorted(key for key, count in small.items() if count >= MIN_FILES)
