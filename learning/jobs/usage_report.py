"""Compute the usage report in Spark (docs/traffic.md section 4), equal to :func:`learning.statistics.reference.usage`.

Separate from ``statistics``, as it reads other events, over days instead of a window.
"""

import shutil
from datetime import date, timedelta
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from learning.jobs import tables
from learning.jobs.delta_table import row_groups
from learning.jobs.spark_options import spark_path
from learning.jobs.spark_session import adapt_to_size
from learning.jobs.warehouse import Warehouse
from learning.statistics.model import UsageRow

FOLDER: Final = "usage"
"""Folder in the warehouse. Without a log of a Delta table it does not count as a source."""
_SORTED: Final = ("day", "key", "plan", "endpoint")


def usage(events: DataFrame, first: date, last: date) -> DataFrame:
    """Return the report of the days from ``first`` to ``last``, both included, in any order.

    Args:
        events: the table ``events``, with repeats.
        first: UTC.
        last: UTC.
    """
    # An event's time is the end of its interval, which for the last event of a day is in the next one.
    near = F.col("day").between(F.lit(first), F.lit(last + timedelta(days=1)))
    distinct = events.where((F.col("type") == "access") & near).dropDuplicates(["id"])
    middle = F.floor((F.unix_millis("since") + F.unix_millis("until")) / 2)
    entries = distinct.select(F.to_date(F.timestamp_millis(middle)).alias("day"), F.inline("requests"))
    return (
        entries.where(F.col("day").between(F.lit(first), F.lit(last)))
        .groupBy(*_SORTED)
        .agg(F.sum("answered").alias("answered"), F.sum("refused").alias("refused"))
        .select(*UsageRow._fields)
    )


def report(spark: SparkSession, warehouse: Warehouse, first: date, last: date) -> Path:
    """Write the report of these days (UTC, both included) as one Parquet file, replacing an earlier one; return it."""
    folder = warehouse.root / FOLDER
    file, new = folder / f"{first.isoformat()}_{last.isoformat()}.parquet", folder / ".new"
    shutil.rmtree(new, ignore_errors=True)
    files = [each for each in tables.event_files(warehouse) if first <= each.day <= last + timedelta(days=1)]
    adapt_to_size(spark, sum(group.size for group in row_groups(each.path for each in files)))
    rows = usage(tables.events(spark, warehouse, files), first, last)
    rows.repartition(1).sortWithinPartitions(*_SORTED).write.parquet(spark_path(new))
    (part,) = new.glob("*.parquet")
    part.replace(file)
    shutil.rmtree(new)
    return file
