"""The Delta table of a source, via delta-rs without Spark: its valid files, and the commit of a batch.

Both tables of docs/traffic.md section 2 are partitions of one Delta table, so that a batch is one commit. A file is
valid if listed in the log; all others are leftovers of interrupted attempts, or await removal. Spark reads and writes
the files as plain Parquet.
"""

import json
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from diem.errors import ConfigurationError, DiemError

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from deltalake.transaction import AddAction, RemoveAction

LOG: Final = "_delta_log"
"""Subfolder of the log."""
STAGING: Final = "_staging"
"""Path for the files of a batch in progress; readers skip names that begin with an underscore."""
RETENTION_H: Final = 24
"""Hours until a file dropped from the log is removed, as a reader may still use it."""
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
KIND: Final = "kind"
"""Column by which rows are partitioned before their day. Tables of earlier releases have and keep ``table``, which SQL
must quote: Delta has no other name for it without other files."""
DESCRIPTION: Final = (
    "Recorded traffic: rows of the {column} events are valid lines, those of the {column} quarantine all others "
    "(docs/traffic.md section 2). Times are UTC. Events may repeat: id is unique."
)


@dataclass(eq=False)
class TableUnusable(ConfigurationError):
    """The log of a table is damaged, or one of its files is missing."""

    template = "the tables in {folder} cannot be used ({reason}): restore them, or remove them with their checkpoint"

    folder: Path
    reason: str


class RowsMissing(DiemError):
    """Files of a batch are missing where the driver expects them."""


class CommittedFile(NamedTuple):
    """A file listed in the log."""

    path: Path
    size: int
    """Size in bytes when committed."""
    rows: int
    kind: str
    """``events`` or ``quarantine``."""
    day: date


class RowGroup(NamedTuple):
    """A row group of a Parquet file of events."""

    file: Path
    number: int
    rows: int
    size: int
    """Uncompressed, in bytes."""
    first: int
    """Time of the earliest event (Unix ms)."""
    last: int

    def read(self, column: str) -> Any:  # noqa: ANN401  # PyArrow has no types
        """Return a column of timestamps as an array in Unix ms."""
        import pyarrow as pa  # noqa: PLC0415  # an extra

        with open_parquet(self.file) as opened:
            values = opened.read_row_group(self.number, columns=[column])[column]
        return values.cast(pa.timestamp("ms", "UTC"), safe=False).cast(pa.int64())


def row_groups(files: Iterable[Path]) -> Iterator[RowGroup]:
    """Yield the row groups with rows of files of events; only footers are read."""
    for file in files:
        with open_parquet(file) as opened:
            footer = opened.metadata
        place = footer.schema.names.index("time")
        for number in range(footer.num_row_groups):
            group = footer.row_group(number)
            if group.num_rows:
                times = group.column(place).statistics
                yield RowGroup(
                    file, number, group.num_rows, group.total_byte_size, *map(_unix_ms, (times.min, times.max))
                )


def _unix_ms(at: datetime) -> int:
    return (at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)


@contextmanager
def open_parquet(file: Path) -> Iterator[Any]:
    """Open a Parquet file with PyArrow."""
    from pyarrow import parquet  # noqa: PLC0415  # an extra

    with parquet.ParquetFile(file) as opened:
        yield opened


def is_written(sink: Path) -> bool:
    """Return whether there is a Delta table in a folder."""
    return (sink / LOG).is_dir()


def _delta_rs() -> Any:  # noqa: ANN401  # a module
    import deltalake  # noqa: PLC0415  # an extra of the driver: executors import this module, too

    return deltalake


@contextmanager
def clear_errors(sink: Path) -> Iterator[None]:
    """Raise errors of delta-rs as :class:`TableUnusable`."""
    try:
        yield
    except _delta_rs().exceptions.DeltaError as error:
        # The rest is a stack.
        raise TableUnusable(sink, str(error).partition("\n")[0][:300]) from error


def open_table(sink: Path) -> "DeltaTable":
    """Return the latest version of the Delta table in a folder, which must have a log.

    Raises:
        TableUnusable: the log is damaged.
    """
    with clear_errors(sink):
        table: DeltaTable = _delta_rs().DeltaTable(str(sink))
        return table


def kind_column(opened: "DeltaTable") -> str:
    """Return the name of the partition column of kinds."""
    return str(opened.metadata().partition_columns[0])


def committed_files(sink: Path, kind: str | None = None) -> list[CommittedFile]:
    """Return the valid files, sorted by path; none without a log.

    Args:
        sink: the folder of a source in the warehouse.
        kind: restricts the files to those of one kind of rows.
    """
    if not is_written(sink):
        return []
    return sorted(file for file in files_of(open_table(sink), sink) if kind is None or file.kind == kind)


def files_of(opened: "DeltaTable", sink: Path) -> list[CommittedFile]:
    """Return the valid files in an opened version of the table, in any order."""
    added = opened.get_add_actions(flatten=True)
    columns = ("path", "size_bytes", "num_records", f"partition.{kind_column(opened)}", "partition.day")
    values = (added.column(name).to_pylist() for name in columns)
    return [CommittedFile(sink / path, *others) for path, *others in zip(*values, strict=True)]


def data_files(sink: Path, kind: str | None = None) -> list[Path]:
    """Return the paths of :func:`committed_files`."""
    return [file.path for file in committed_files(sink, kind)]


def prepare(sink: Path, schema: str) -> None:
    """Create the table, or add missing columns, name and description; remove staged files of an interrupted batch.

    Args:
        sink: the folder; created if missing. Its name is that of the table.
        schema: schema of the table in JSON, in which Delta and Spark have the same types.

    Raises:
        TableUnusable: the log is damaged, or another machine has created the table at the same time.
    """
    shutil.rmtree(sink / STAGING, ignore_errors=True)
    wanted = _delta_rs().Schema.from_json(schema)
    if not is_written(sink):
        with clear_errors(sink):
            _delta_rs().DeltaTable.create(
                str(sink),
                wanted,
                partition_by=[KIND, "day"],
                name=sink.name,
                description=DESCRIPTION.format(column=KIND),
                configuration=PROPERTIES,
            )
        return
    table = open_table(sink)
    # A column of a partition cannot be added.
    known = {KIND, *(field.name for field in table.schema().fields)}
    if new := [field for field in wanted.fields if field.name not in known]:
        table.alter.add_columns(new)
    if table.metadata().description != (description := DESCRIPTION.format(column=kind_column(table))):
        table.alter.set_table_name(sink.name)
        table.alter.set_table_description(description)


def is_committed(sink: Path, query: str, batch: int) -> bool:
    """Return whether a batch of a streaming query is committed."""
    last: int | None = open_table(sink).transaction_version(query)
    return last is not None and last >= batch


def commit(sink: Path, staged: Path, query: str, batch: int, rows: int) -> None:
    """Commit the files of a batch, all or none.

    Args:
        sink: the folder of the table.
        staged: folder within it that Spark has written, partitioned by kind and day; removed.
        query: identity of the streaming query.
        batch: number of the batch.
        rows: number of rows that Spark has written.

    Raises:
        RowsMissing: the files have another number of rows.
    """

    def count(file: Path) -> int:
        with open_parquet(file) as opened:
            return int(opened.metadata.num_rows)

    files = {file: count(file) for file in staged.glob(f"{KIND}=*/day=*/*.parquet")}
    if (found := sum(files.values())) != rows:
        raise RowsMissing(
            f"{found:,} of the {rows:,} rows of a batch are in {staged}, so nothing of it counts: do all workers have "
            "the warehouse at this path?"
        )
    table = open_table(sink)
    column = kind_column(table)
    added: list[AddAction | RemoveAction] = [_move(file, count, sink, column) for file, count in files.items()]
    lineage = json.dumps({"query": query, "batch": batch, "rows": rows})
    properties = _delta_rs().CommitProperties(
        custom_metadata={"userMetadata": lineage}, app_transactions=[_delta_rs().Transaction(query, batch)]
    )
    table.create_write_transaction(added, "append", table.schema(), [column, "day"], commit_properties=properties)
    shutil.rmtree(staged, ignore_errors=True)


def _move(file: Path, rows: int, sink: Path, column: str) -> "AddAction":
    """Move a file to its place, under its unique name; return its entry in the log."""
    kind, day = (folder.name.partition("=")[2] for folder in (file.parents[1], file.parent))
    values: dict[str, Any] = {column: kind, "day": day}
    path = "/".join((*(f"{name}={value}" for name, value in values.items()), file.name))
    placed = sink / path
    placed.parent.mkdir(parents=True, exist_ok=True)
    file.rename(placed)
    status = placed.stat()
    modified_ms, statistics = status.st_mtime_ns // 1_000_000, json.dumps({"numRecords": rows})
    new = _delta_rs().transaction.AddAction
    added: AddAction = new(path, status.st_size, values, modified_ms, True, statistics)
    return added
