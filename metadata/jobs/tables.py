"""Reads the tables of a warehouse, through the logs of their sinks."""

from functools import reduce
from typing import TYPE_CHECKING

from metadata.jobs import rows
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

    reader = spark.read.schema(rows.SCHEMA)
    # Given the folder itself, Spark reads what the log in it names and nothing else.
    found = [reader.parquet(str(warehouse.sink(source))) for source in warehouse.sources()]
    empty = spark.createDataFrame([], rows.SCHEMA)
    return reduce(DataFrame.unionByName, found, empty).where(F.col("table") == table)
