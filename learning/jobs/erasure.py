"""Erases clients, by their pseudonyms, from everything the pipeline keeps: tables, histories, unread files.

Statistics, usage reports and plans have no pseudonyms. Like all maintenance of tables, without Spark.
"""

import os
import shutil
from collections.abc import Collection
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from learning.jobs.delta_table import LOG, LOG_RETENTION, PROPERTIES, clear_errors, is_written, open_table
from learning.jobs.sources import FileSource, complete_files
from learning.jobs.warehouse import Warehouse

if TYPE_CHECKING:
    from deltalake import DeltaTable


class Erased(NamedTuple):
    """Counts of removed data."""

    rows: int
    """Rows of both tables, of all sources."""
    lines: int
    """Lines of unread or kept files."""


def erase(warehouse: Warehouse, folder: Path, pseudonyms: Collection[str]) -> Erased:
    """Erase clients from a warehouse and from a folder of files, at once.

    Queries that read the tables meanwhile may miss a file, and fail.

    Args:
        warehouse: the warehouse.
        folder: files of traffic.
        pseudonyms: hexadecimal, as in the column ``client``; at least one.

    Raises:
        DiemError: a pipeline reads one of the sources.
        TableUnusable: a table is damaged.
        OSError: a file cannot be rewritten.
    """
    with ExitStack() as locks:
        for source in sorted({*warehouse.sources(), FileSource(folder).name}):
            locks.enter_context(warehouse.lock(source))
        rows = sum(erase_rows(warehouse.sink(source), pseudonyms) for source in warehouse.sources())
        # With all clients' open sessions: the next window reads its preceding week, and writes a new one.
        shutil.rmtree(warehouse.history, ignore_errors=True)
        return Erased(rows, sum(erase_lines(file, pseudonyms) for file in complete_files(folder)))


def erase_rows(sink: Path, pseudonyms: Collection[str]) -> int:
    """Remove the rows of clients, and quarantined lines containing a pseudonym; return their number.

    Their files are removed, as are all files without a commit. The caller holds the source's lock.

    Raises:
        TableUnusable: a file of the table is missing.
    """
    if not is_written(sink):
        return 0
    table = open_table(sink)
    listed = ", ".join(f"'{name}'" for name in sorted(pseudonyms))
    quoted = " OR ".join(f"contains(raw, '{name}')" for name in sorted(pseudonyms))
    with clear_errors(sink):
        removed: int = table.delete(f"client IN ({listed}) OR {quoted}")["num_deleted_rows"]
        # Even with nothing left to remove: an erasure may have been interrupted.
        table.vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)
        _forget_versions(table, sink)
    return removed


def _forget_versions(table: "DeltaTable", sink: Path) -> None:
    """Remove earlier versions from the log, which contain the search terms."""
    # A separate commit: an interrupted erasure's may be the last, and the last one stays.
    table.alter.set_table_properties({LOG_RETENTION: PROPERTIES[LOG_RETENTION]})
    table.create_checkpoint()
    # Not by a shorter retention in the table, which an interruption would leave there, removing versions in use.
    last = f"{table.version():020}"
    for file in sorted((sink / LOG).glob("[0-9]*")):
        if file.name < last:
            file.unlink()


def erase_lines(file: Path, pseudonyms: Collection[str]) -> int:
    """Remove lines with a pseudonym from a file; return their number. Its time is kept, so that it is not reread."""
    names = [name.encode("ascii") for name in pseudonyms]
    lines = file.read_bytes().split(b"\n")
    kept = [line for line in lines if not any(name in line for name in names)]
    if len(kept) < len(lines):
        status, new = file.stat(), file.with_name(f".{file.name}.erased")
        new.touch(mode=status.st_mode & 0o777)
        new.write_bytes(b"\n".join(kept))
        os.utime(new, ns=(status.st_atime_ns, status.st_mtime_ns))
        new.replace(file)
    return len(lines) - len(kept)
