"""The Delta table of a source, via delta-rs without Spark: its valid files, and the commit of a batch.

Both tables of docs/traffic.md section 2 are partitions of one Delta table, so that a batch is one commit. A file is
valid if listed in the log; all others are leftovers of interrupted attempts, or await removal. Spark reads and writes
the files as plain Parquet.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from diem.errors import ConfigurationError, DiemError
from learning.jobs.bucket import Folder, clear_bucket_errors, delta_location, open_parquet, remove_tree

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from deltalake.transaction import AddAction, RemoveAction

LOG: Final = "_delta_log"
"""Subfolder of the log."""
STAGING: Final = "_staging"
"""Folder for the files of a batch in progress; readers skip names that begin with an underscore."""
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
WRITER: Final = "diem.writer"
"""Property of a table in a bucket: identity of its writer's state."""
_PARTITIONED_BY: Final = ("table", "day")


@dataclass(eq=False)
class TableUnusable(ConfigurationError):
    """The log of a table is damaged, or one of its files is missing."""

    template = "the tables in {folder} cannot be used ({reason}): restore them, or remove them with their checkpoint"

    folder: Folder
    reason: str


@dataclass(eq=False)
class OtherWriter(ConfigurationError):
    """The tables in a bucket belong to the read positions of another machine or state directory."""

    template = (
        "the tables in {folder} are written by a pipeline with another state directory, which knows what is read: use "
        "that one, or another path in the bucket"
    )

    folder: Folder


class RowsMissing(DiemError):
    """Files of a batch are missing where the driver expects them."""


class CommittedFile(NamedTuple):
    """A file listed in the log."""

    path: Folder
    size: int
    """Size in bytes when committed."""
    rows: int
    table: str
    day: date


def is_written(sink: Folder) -> bool:
    """Return whether there is a Delta table in a folder."""
    return (sink / LOG).is_dir()


def _delta_rs() -> Any:  # noqa: ANN401  # a module
    import deltalake  # noqa: PLC0415  # an extra of the driver: executors import this module, too

    return deltalake


@contextmanager
def clear_errors(sink: Folder) -> Iterator[None]:
    """Raise errors of delta-rs as :class:`TableUnusable`."""
    try:
        with clear_bucket_errors(sink):
            yield
    except _delta_rs().exceptions.DeltaError as error:
        # The rest is a stack.
        raise TableUnusable(sink, str(error).partition("\n")[0][:300]) from error


def open_table(sink: Folder) -> "DeltaTable":
    """Return the latest version of the Delta table in a folder, which must have a log.

    Raises:
        TableUnusable: the log is damaged.
    """
    with clear_errors(sink):
        uri, options = delta_location(sink)
        table: DeltaTable = _delta_rs().DeltaTable(uri, storage_options=options)
        return table


def committed_files(sink: Folder, table: str | None = None) -> list[CommittedFile]:
    """Return the valid files, sorted by path; none without a log.

    Args:
        sink: the folder of a source in the warehouse.
        table: restricts the files to one table.
    """
    if not is_written(sink):
        return []
    return sorted(file for file in files_of(open_table(sink), sink) if table is None or file.table == table)


def files_of(opened: "DeltaTable", sink: Folder) -> list[CommittedFile]:
    """Return the valid files in an opened version of the table, in any order."""
    added = opened.get_add_actions(flatten=True)
    columns = ("path", "size_bytes", "num_records", "partition.table", "partition.day")
    values = (added.column(name).to_pylist() for name in columns)
    return [CommittedFile(sink / path, *others) for path, *others in zip(*values, strict=True)]


def data_files(sink: Folder, table: str | None = None) -> list[Folder]:
    """Return the paths of :func:`committed_files`."""
    return [file.path for file in committed_files(sink, table)]


def prepare(sink: Folder, schema: str, writer: str | None = None) -> None:
    """Create the table, or add missing columns; remove staged files of an interrupted batch.

    Args:
        sink: the folder; created if missing.
        schema: schema of the table in JSON, in which Delta and Spark have the same types.
        writer: see :func:`require_writer`.

    Raises:
        TableUnusable: the log is damaged, or another machine has created the table at the same time.
    """
    remove_tree(sink / STAGING)
    wanted = _delta_rs().Schema.from_json(schema)
    if not is_written(sink):
        with clear_errors(sink):
            uri, options = delta_location(sink)
            _delta_rs().DeltaTable.create(
                uri,
                wanted,
                partition_by=list(_PARTITIONED_BY),
                configuration=PROPERTIES if writer is None else {**PROPERTIES, WRITER: writer},
                storage_options=options,
                # The writer is a property of ours.
                raise_if_key_not_exists=False,
            )
        return
    table = open_table(sink)
    if table.metadata().configuration.get(LOG_RETENTION) != PROPERTIES[LOG_RETENTION]:
        # Of an earlier release, whose erasure was interrupted: readers would lose the version that they read.
        table.alter.set_table_properties({LOG_RETENTION: PROPERTIES[LOG_RETENTION]})
    known = {field.name for field in table.schema().fields}
    if new := [field for field in wanted.fields if field.name not in known]:
        table.alter.add_columns(new)


def require_writer(sink: Folder, writer: str | None) -> None:
    """Raise ``OtherWriter`` if the table exists with another writer, which a local lock cannot exclude.

    Args:
        sink: the folder of a source in the warehouse.
        writer: identity of the state with the read positions; None: the lock suffices.
    """
    if writer is not None and is_written(sink) and open_table(sink).metadata().configuration.get(WRITER) != writer:
        raise OtherWriter(sink)


def is_committed(sink: Folder, query: str, batch: int) -> bool:
    """Return whether a batch of a streaming query is committed."""
    last: int | None = open_table(sink).transaction_version(query)
    return last is not None and last >= batch


def commit(sink: Folder, staged: Folder, query: str, batch: int, rows: int) -> None:
    """Commit the files of a batch, all or none.

    Args:
        sink: the folder of the table.
        staged: folder within it that Spark has written, partitioned as the table; removed.
        query: identity of the streaming query.
        batch: number of the batch.
        rows: number of rows that Spark has written.

    Raises:
        RowsMissing: the files have another number of rows.
    """

    def count(file: Folder) -> int:
        with open_parquet(file) as opened:
            return int(opened.metadata.num_rows)

    files = {file: count(file) for file in staged.glob("table=*/day=*/*.parquet")}
    if (found := sum(files.values())) != rows:
        raise RowsMissing(
            f"{found:,} of the {rows:,} rows of a batch are in {staged}, so nothing of it counts: do all workers have "
            "the warehouse at this path?"
        )
    added: list[AddAction | RemoveAction] = [_move(file, count, staged, sink) for file, count in files.items()]
    table = open_table(sink)
    properties = _delta_rs().CommitProperties(app_transactions=[_delta_rs().Transaction(query, batch)])
    with clear_bucket_errors(sink):
        table.create_write_transaction(
            added, "append", table.schema(), list(_PARTITIONED_BY), commit_properties=properties
        )
    remove_tree(staged)


def _move(file: Folder, rows: int, staged: Folder, sink: Folder) -> "AddAction":
    """Move a file to its place, under its unique name; return its entry in the log."""
    parts = file.relative_to(staged).parts
    placed = sink.joinpath(*parts)
    placed.parent.mkdir(parents=True, exist_ok=True)
    file.rename(placed)  # type: ignore[arg-type]  # both are of one kind
    status = placed.stat()
    values: dict[str, Any] = dict(part.split("=", 1) for part in parts[:-1])
    modified_ms, statistics = status.st_mtime_ns // 1_000_000, json.dumps({"numRecords": rows})
    new = _delta_rs().transaction.AddAction
    added: AddAction = new("/".join(parts), status.st_size, values, modified_ms, True, statistics)
    return added
