"""Erase clients, by their pseudonyms, from all that the pipeline keeps of them: tables, histories, files not yet read.

Statistics, usage reports and plans have no pseudonyms. Like all maintenance of tables, without Spark.
"""

import os
from collections.abc import Collection
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from learning.jobs.bucket import Folder, remove_tree
from learning.jobs.delta_table import LOG, LOG_RETENTION, PROPERTIES, clear_errors, is_written, open_table
from learning.jobs.sources import FileSource, complete_files
from learning.jobs.warehouse import Warehouse

if TYPE_CHECKING:
    from deltalake import DeltaTable


class Erased(NamedTuple):
    """What was removed."""

    rows: int
    """Of both tables, of all sources."""
    lines: int
    """Of files that were not yet read, or are kept."""


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
        # Of all clients with open sessions: the next window reads the week before it, and writes another.
        remove_tree(warehouse.history)
        return Erased(rows, sum(erase_lines(file, pseudonyms) for file in complete_files(folder)))


def erase_rows(sink: Folder, pseudonyms: Collection[str]) -> int:
    """Remove the rows of clients, and lines in the quarantine that have a pseudonym in their text; return how many.

    The files that had them are removed, as are all that no commit names. The caller holds the source's lock.

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
        # Also if there is nothing to remove any more: an erasure may have been interrupted.
        table.vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)
        _forget_versions(table, sink)
    return removed


def _forget_versions(table: "DeltaTable", sink: Folder) -> None:
    """Remove earlier versions from the log: they name what was searched for."""
    # A commit of its own: that of an interrupted erasure may be the last, and the last one stays.
    table.alter.set_table_properties({LOG_RETENTION: PROPERTIES[LOG_RETENTION]})
    table.create_checkpoint()
    # Not by a shorter retention in the table: an interruption would leave it there, and readers without their versions.
    last = f"{table.version():020}"
    for file in sorted(list[Folder]((sink / LOG).glob("[0-9]*")), key=lambda file: file.name):
        if file.name < last:
            file.unlink()


def erase_lines(file: Path, pseudonyms: Collection[str]) -> int:
    """Remove the lines that have a pseudonym from a file; return how many. Its time stays: it is not read again."""
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
