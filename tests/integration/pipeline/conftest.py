"""One JVM for all tests, except those that kill it."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from deploy.jars import JarsUnavailable
from deploy.kafka import java
from deploy.kafka.java import NoJava
from deploy.spark.jars import JARS
from metadata.jobs.spark_options import SparkOptions, SparkSettings
from metadata.jobs.spark_session import NoSpark, open_spark
from tests.support.required import unavailable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[SparkSession]":
    """A session with the connector to Kafka; without Spark, tests are skipped, or fail where Spark is required."""
    try:
        options = SparkOptions(
            tmp_path_factory.mktemp("spark"),
            SparkSettings(memory="768m", cores=2),
            JARS.prepare(),
            java.find(),
            shuffle_partitions=2,
        )
        with open_spark(options) as session:
            yield session
    except (NoJava, NoSpark, JarsUnavailable) as error:
        unavailable("Spark", error)
