"""Reads the tables of a warehouse, through the logs of their sinks."""

from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING

from metadata.jobs import rows
from metadata.jobs.logs import data_files, is_moved
from metadata.jobs.warehouse import EVENTS, QUARANTINE, Warehouse

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def events(spark: "SparkSession", warehouse: Warehouse) -> "DataFrame":
    """Return the table `events` of all sources, with repeats; filter by `day` to read less."""
    return _table(spark, warehouse, EVENTS).select(*rows.EVENT_COLUMNS)


def quarantine(spark: "SparkSession", warehouse: Warehouse) -> "DataFrame":
    """Return the table `quarantine` of all sources."""
    return _table(spark, warehouse, QUARANTINE).select(*rows.QUARANTINE_COLUMNS)


def _table(spark: "SparkSession", warehouse: Warehouse, table: str) -> "DataFrame":
    from pyspark.sql import DataFrame  # noqa: PLC0415
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    found = [_rows(spark, warehouse.sink(source)) for source in warehouse.sources()]
    empty = spark.createDataFrame([], rows.SCHEMA)
    return reduce(DataFrame.unionByName, found, empty).where(F.col("table") == table)


def _rows(spark: "SparkSession", sink: Path) -> "DataFrame":
    reader = spark.read.schema(rows.SCHEMA)
    if is_moved(sink):
        files = map(str, data_files(sink))
        return reader.option("basePath", str(sink)).parquet(*files)
    # Given the folder itself, Spark reads what the log in it names and nothing else.
    return reader.parquet(str(sink))
