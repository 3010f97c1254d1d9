"""A real JVM's errors are reported in one line; tests/unit/learning/jobs/test_spark_session.py."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from learning.jobs.spark_options import spark_path
from learning.jobs.spark_session import jvm_error

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_an_error_of_a_method_is_its_text(spark: "SparkSession") -> None:
    from py4j.protocol import Py4JJavaError  # noqa: PLC0415  # an extra

    with pytest.raises(Py4JJavaError) as raised:
        spark.sparkContext.textFile("file:/nowhere").getNumPartitions()
    assert jvm_error(raised.value) == "Input path does not exist: file:/nowhere"


def test_an_error_of_a_task_names_the_file_that_it_could_not_read(spark: "SparkSession", tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.parquet"
    damaged.write_bytes(b"PAR1 and no footer")
    with pytest.raises(Exception, match="damaged") as raised:
        spark.read.schema("id string").parquet(spark_path(damaged)).collect()
    text = jvm_error(raised.value)
    assert text is not None
    assert "damaged.parquet" in text
    assert "\n" not in text
