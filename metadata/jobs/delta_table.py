"""The Delta table of a source, by delta-rs and without Spark: which files count, and the commit of a batch.

Both tables of docs/traffic.md section 2 are partitions of one Delta table, so that a batch is one commit. A file counts
if the log names it; all others are leftovers of interrupted attempts, or wait for their removal. Spark reads and writes
the files as plain Parquet.
"""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from diem.errors import ConfigurationError, DiemError

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from deltalake.transaction import AddAction, RemoveAction

LOG: Final = "_delta_log"
"""Folder of the log in that of the table."""
STAGING: Final = "_staging"
"""Folder of files that a batch is writing; readers skip names that begin with an underscore."""
RETENTION_H: Final = 24
"""Hours before a file that left the log is removed: a reader may still use it."""
LOG_RETENTION: Final = "delta.logRetentionDuration"
PROPERTIES: Final = {
    "delta.deletedFileRetentionDuration": f"interval {RETENTION_H} hours",
    LOG_RETENTION: f"interval {RETENTION_H} hours",
    # A batch a minute; the log since the last checkpoint is read by every reader.
    "delta.checkpointInterval": "100",
    # No values of columns in the log, such as pseudonyms.
    "delta.dataSkippingNumIndexedCols": "0",
}
"""Properties of every table."""
_PARTITIONED_BY: Final = ("table", "day")


@dataclass(eq=False)
class TableUnusable(ConfigurationError):
    """The log of a table is damaged, or one of its files is missing."""

    template = "the tables in {folder} cannot be used ({reason}): restore them, or remove them with their checkpoint"

    folder: Path
    reason: str


class RowsMissing(DiemError):
    """Files of a batch are not where the driver looks for them."""


class CommittedFile(NamedTuple):
    """A file that the log names."""

    path: Path
    size: int
    """Bytes, when it was committed."""
    rows: int
    table: str
    day: date


def is_written(sink: Path) -> bool:
    """Return whether there is a Delta table in a folder."""
    return (sink / LOG).is_dir()


@contextmanager
def clear_errors(sink: Path) -> Iterator[None]:
    """Raise errors of delta-rs as :class:`TableUnusable`."""
    from deltalake.exceptions import DeltaError  # noqa: PLC0415  # an extra

    try:
        yield
    except DeltaError as error:
        # The rest is a stack.
        raise TableUnusable(sink, str(error).partition("\n")[0][:300]) from error


def open_table(sink: Path) -> "DeltaTable":
    """Return the latest version of the Delta table in a folder, which must have a log.

    Raises:
        TableUnusable: the log is damaged.
    """
    from deltalake import DeltaTable  # noqa: PLC0415  # an extra

    with clear_errors(sink):
        return DeltaTable(sink)


def committed_files(sink: Path, table: str | None = None) -> list[CommittedFile]:
    """Return the files that count, sorted by path; none if there is no log.

    Args:
        sink: the folder of a source in the warehouse.
        table: restricts the files to one table.
    """
    if not is_written(sink):
        return []
    return sorted(file for file in files_of(open_table(sink), sink) if table is None or file.table == table)


def files_of(opened: "DeltaTable", sink: Path) -> list[CommittedFile]:
    """Return the files that count in an opened version of the table, in any order."""
    added = opened.get_add_actions(flatten=True)
    columns = ("path", "size_bytes", "num_records", "partition.table", "partition.day")
    values = (added.column(name).to_pylist() for name in columns)
    return [CommittedFile(sink / path, *others) for path, *others in zip(*values, strict=True)]


def data_files(sink: Path, table: str | None = None) -> list[Path]:
    """Return the paths of :func:`committed_files`."""
    return [file.path for file in committed_files(sink, table)]


def prepare(sink: Path, schema: str) -> None:
    """Create the table, or add the columns that it does not have yet; remove what an interrupted batch has staged.

    Args:
        sink: the folder; created if missing.
        schema: schema of the table in JSON, in which Delta and Spark have the same types.

    Raises:
        TableUnusable: the log is damaged.
    """
    from deltalake import DeltaTable, Schema  # noqa: PLC0415  # an extra

    shutil.rmtree(sink / STAGING, ignore_errors=True)
    wanted = Schema.from_json(schema)
    if not is_written(sink):
        with clear_errors(sink):
            DeltaTable.create(sink, wanted, partition_by=list(_PARTITIONED_BY), configuration=PROPERTIES)
        return
    table = open_table(sink)
    known = {field.name for field in table.schema().fields}
    if new := [field for field in wanted.fields if field.name not in known]:
        table.alter.add_columns(new)


def is_committed(sink: Path, query: str, batch: int) -> bool:
    """Return whether a batch of a streaming query is committed."""
    last: int | None = open_table(sink).transaction_version(query)
    return last is not None and last >= batch


def commit(sink: Path, staged: Path, query: str, batch: int, rows: int) -> None:
    """Commit the files of a batch, all or none.

    Args:
        sink: the folder of the table.
        staged: folder within it that Spark has written, partitioned as the table; removed.
        query: identity of the streaming query.
        batch: number of the batch.
        rows: number of rows that Spark has written.

    Raises:
        RowsMissing: there are fewer or more in these files.
    """
    from deltalake import CommitProperties, Transaction  # noqa: PLC0415  # an extra
    from pyarrow import parquet  # noqa: PLC0415  # another one

    files = {file: int(parquet.read_metadata(file).num_rows) for file in staged.glob("table=*/day=*/*.parquet")}
    if (found := sum(files.values())) != rows:
        raise RowsMissing(
            f"{found:,} of the {rows:,} rows of a batch are in {staged}, so nothing of it counts: do all workers have "
            "the warehouse at this path?"
        )
    added: list[AddAction | RemoveAction] = [_move(file, count, staged, sink) for file, count in files.items()]
    table = open_table(sink)
    properties = CommitProperties(app_transactions=[Transaction(query, batch)])
    table.create_write_transaction(added, "append", table.schema(), list(_PARTITIONED_BY), commit_properties=properties)
    shutil.rmtree(staged, ignore_errors=True)


def _move(file: Path, rows: int, staged: Path, sink: Path) -> "AddAction":
    """Move a file to its place, under its unique name; return its entry in the log."""
    from deltalake.transaction import AddAction  # noqa: PLC0415  # an extra

    place = file.relative_to(staged)
    (sink / place).parent.mkdir(parents=True, exist_ok=True)
    file.rename(sink / place)
    status = (sink / place).stat()
    values: dict[str, Any] = dict(part.split("=", 1) for part in place.parts[:-1])
    statistics = json.dumps({"numRecords": rows})
    return AddAction(str(place), status.st_size, values, status.st_mtime_ns // 1_000_000, True, statistics)
