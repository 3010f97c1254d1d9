"""Parse all lines of the pipeline in Python, as if none were canonical."""

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING
from unittest.mock import patch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def no_canonical_lines() -> AbstractContextManager[object]:
    """Have Spark parse no line itself: rows are the same."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415  # an extra

    from learning.jobs import tables  # noqa: PLC0415  # it needs Spark

    def none(lines: "DataFrame") -> "DataFrame":
        return lines.withColumn("json", F.lit(None).cast(tables.JSON_SCHEMA))

    return patch.object(tables, "read_canonical", none)
