"""One JVM for all tests, except those that kill it."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from deploy.jars import JarsUnavailable
from deploy.kafka import java
from deploy.kafka.java import NoJava
from learning.jobs.spark_options import NoSpark, SparkOptions, SparkSettings
from learning.jobs.spark_session import open_spark
from learning.spark.jars import JARS
from tests.support.required import unavailable
from tests.support.spark_session import INTERPRETED

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[SparkSession]":
    """A session with the connector to Kafka; without Spark, tests are skipped, or fail where it is required."""
    try:
        options = SparkOptions(
            tmp_path_factory.mktemp("spark"),
            SparkSettings("local[1]", (("spark.driver.memory", "768m"), *INTERPRETED.items())),
            JARS.prepare(),
            java.find(),
            shuffle_partitions=1,
        )
        with open_spark(options) as session:
            yield session
    except (NoJava, NoSpark, JarsUnavailable) as error:
        unavailable("Spark", error)
