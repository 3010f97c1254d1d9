"""Ingests new traffic of a source into the warehouse: one query parses each line once and writes both tables.

Exactly once, despite kills: Spark logs the offsets of a batch before it begins, its rows in both tables are one commit
with its number, and repeating a committed batch writes nothing. First job of the pipeline, which ``learning.spark``
runs.
"""

import json
import shutil
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, Final

import structlog
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery

from diem.errors import DiemError
from diem.process.files import replace_file
from learning.jobs import delta_table, tables
from learning.jobs.checkpoint import begin_anew, query_id, remove_ingested
from learning.jobs.delta_table import KIND, STAGING, RowsMissing
from learning.jobs.maintenance import maintain
from learning.jobs.sources import TrafficSource
from learning.jobs.spark_options import spark_path
from learning.jobs.spark_session import SparkFailed
from learning.jobs.warehouse import Warehouse

_POLL_INTERVAL_S: Final = 0.25
_UNIQUE: Final = ("id", "number", "time")
"""Columns for which Parquet would begin a dictionary in vain."""

Progress = Callable[["CommittedBatch"], None]


@dataclass(frozen=True, slots=True)
class CommittedBatch:
    """One committed batch."""

    number: int
    at: str
    """Start, ISO 8601."""
    lines: int
    seconds: float

    @classmethod
    def of(cls, progress: dict[str, Any], written: Mapping[int, int]) -> "CommittedBatch":
        """Convert Spark's progress report.

        Args:
            progress: the report, which counts lines each time they are read.
            written: number of lines of each batch that was written.
        """
        number, seconds = progress["batchId"], progress["durationMs"].get("triggerExecution", 0) / 1000
        return cls(number, progress["timestamp"], written.get(number, 0), seconds)


def ingest(
    spark: SparkSession,
    source: TrafficSource,
    warehouse: Warehouse,
    on_batch: Progress = lambda _batch: None,
    *,
    follow_s: float | None = None,
    remove: bool = False,
    keep_days: int | None = None,
    proof: Path | None = None,
) -> int:
    """Read a source in batches, holding its lock; return the number of lines read.

    First, and at the end of each day, the files of past days are compacted, and those of old days are dropped.

    Args:
        spark: the session.
        source: source of the lines.
        warehouse: destination.
        on_batch: called with every committed batch.
        follow_s: seconds between batches, until interrupted; None to return once all lines are read.
        remove: whether to remove files once their lines are committed.
        keep_days: age of the oldest day that stays in the tables; None: all stay.
        proof: the file by which executors prove that they share the warehouse; None in local mode.

    Raises:
        DiemError: another pipeline holds the source.
        SparkFailed: the source could not be read, or the warehouse not written.
    """

    def committed(batch: CommittedBatch, since: int) -> None:
        _write_progress(warehouse.progress(source.name), source, batch)
        if remove:
            remove_ingested(warehouse.checkpoint(source.name), since)
        on_batch(batch)

    with warehouse.lock(source.name):
        if remove:
            remove_ingested(warehouse.checkpoint(source.name))
        sink = warehouse.sink(source.name)
        delta_table.prepare(sink, tables.schema_json())
        lines, ended = 0, False
        while not ended:
            today, writer = _today(), BatchWriter(sink, warehouse.checkpoint(source.name), proof)
            if remove:
                begin_anew(writer.checkpoint)
            _maintain(sink, today, keep_days)
            query = _start(spark, source, writer, follow_s)
            try:
                day = None if follow_s is None else today
                read, ended = _await_end(query, writer, day, committed)
            except StreamingQueryException as error:
                raise writer.error or SparkFailed(f"{source.name} could not be read: {_cause(error)}") from error
            finally:
                # An interrupted batch is repeated later. With a dead JVM there is nothing to stop.
                with suppress(Exception):
                    query.stop()
            lines += read
        return lines


def _maintain(sink: Path, today: date, keep_days: int | None) -> None:
    try:
        maintain(sink, today, keep_days)
    except Exception as error:  # noqa: BLE001  # faults of old files must not keep new traffic from being read
        structlog.get_logger("pipeline").error("the files of past days cannot be compacted", reason=_cause(error))


class BatchWriter:
    """Writes the batches of a streaming query to a Delta table.

    Args:
        sink: folder of the table.
        checkpoint: that of the query.
        proof: the file by which executors prove that they share the warehouse; None in local mode.
    """

    def __init__(self, sink: Path, checkpoint: Path, proof: Path | None = None) -> None:
        self._sink = sink
        self._proof = proof
        self.checkpoint = checkpoint
        self.error: DiemError | None = None
        """Why the last batch is not committed, if that is not Spark's error."""
        self.written: dict[int, int] = {}
        """Lines of each batch that is not reported yet, by its number."""

    def write(self, lines: DataFrame, number: int) -> None:
        """Write the rows of a batch of lines unless already committed. Called by Spark in this process."""
        try:
            self._write(lines, number)
        except RowsMissing as error:
            self.error = SparkFailed(str(error))
            raise

    def _write(self, lines: DataFrame, number: int) -> None:
        query = query_id(self.checkpoint)
        if delta_table.is_committed(self._sink, query, number):
            return
        # At most one file per batch, day and core.
        lines = lines.coalesce(lines.sparkSession.sparkContext.defaultParallelism)
        staged, observed = self._sink / STAGING / uuid.uuid4().hex, Observation()
        read, others = tables.read_canonical(lines), F.count_if(F.col("json").isNull())
        counted = read.observe(observed, F.count(F.lit(1)).alias("rows"), others.alias("others"))
        _stage(tables.staged_rows(counted), staged)
        # Only for these lines a Python worker starts. Without the folder, workers have another disk: no commit.
        counts = observed.get
        if counts["others"] and tables.staged_folder(staged).is_dir():
            odd = tables.staged_lines(lines.sparkSession, staged)
            _stage(tables.other_rows(odd, self._proof), staged)
            shutil.rmtree(tables.staged_folder(staged))
        delta_table.commit(self._sink, staged, query, number, counts["rows"])
        self.written[number] = counts["rows"]


def _stage(rows: DataFrame, folder: Path) -> None:
    plain = {f"parquet.enable.dictionary#{name}": False for name in _UNIQUE}
    rows.write.options(**plain).mode("append").partitionBy(KIND, "day").parquet(spark_path(folder))


def _start(spark: SparkSession, source: TrafficSource, writer: BatchWriter, follow_s: float | None) -> StreamingQuery:
    stream = (
        source.lines(spark)
        .writeStream.foreachBatch(writer.write)
        .option("checkpointLocation", spark_path(writer.checkpoint))
    )
    if follow_s is None:
        return stream.trigger(availableNow=True).start()
    return stream.trigger(processingTime=f"{round(follow_s * 1000)} milliseconds").start()


def _await_end(
    query: StreamingQuery, writer: BatchWriter, day: date | None, on_batch: Callable[[CommittedBatch, int], None]
) -> tuple[int, bool]:
    """Wait for the end of the query or the day; return the number of lines read, and whether the query ended.

    ``on_batch`` is called with every batch of lines, and the number of the first batch since the last such call.
    """
    lines, seen, ended = 0, -1, False
    while not ended and (day is None or _today() <= day):
        ended = bool(query.awaitTermination(_POLL_INTERVAL_S))  # type: ignore[arg-type]  # a fraction will do
        # PySpark converts up to a hundred reports, each for a quarter of a second while the JVM interprets: the ends of
        # iterators in it are exceptions of Java, whose type is compared with fifteen classes, sought in all jars.
        for progress in query._jsq.recentProgress() if writer.written else ():  # noqa: SLF001
            batch = CommittedBatch.of(json.loads(progress.json()), writer.written)
            # A trigger without new lines reports the next batch's number, each time.
            if batch.number > seen and batch.lines:
                on_batch(batch, seen + 1)
                seen, lines = batch.number, lines + writer.written.pop(batch.number)
    return lines, ended


def _today() -> date:
    return datetime.now(UTC).date()


def _cause(error: Exception) -> str:
    """Return the cause in Spark's error text, in one line."""
    first = str(error).partition("\n")[0]
    before, _, cause = first.partition("terminated with exception: ")
    return (cause or before).partition(" SQLSTATE")[0][:500]


def _write_progress(file: Path, source: TrafficSource, batch: CommittedBatch) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    content = {"where": source.where, **asdict(batch)}
    replace_file(file, f"{json.dumps(content)}\n".encode())
