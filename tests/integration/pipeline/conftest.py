"""One JVM for all tests, except those that kill it."""

import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from deploy.jars import JarsUnavailable
from deploy.kafka import java
from deploy.kafka.java import NoJava
from learning.jobs.bucket import BucketPath
from learning.jobs.spark_options import NoSpark, SparkOptions, SparkSettings
from learning.jobs.spark_session import open_spark
from learning.spark.jars import JARS, S3_JARS
from tests.integration.pipeline.s3_server import NoServer, S3Server, s3_server
from tests.support.required import unavailable
from tests.support.spark_session import INTERPRETED

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[S3Server]":
    """An S3 service; without moto, tests are skipped, or fail where it is required."""
    try:
        with s3_server(tmp_path_factory.mktemp("s3") / "log") as running:
            yield running
    except NoServer as error:
        unavailable("an S3 service", error)


@pytest.fixture
def bucket(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> BucketPath:
    """A place in a new bucket, at the service that the environment names."""
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    name = f"bucket-{uuid.uuid4().hex}"
    s3.create(name)
    return BucketPath(name, "warehouse")


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[SparkSession]":
    """A session with the connectors to Kafka and S3; without Spark, tests are skipped, or fail where it is required."""
    try:
        options = SparkOptions(
            tmp_path_factory.mktemp("spark"),
            SparkSettings(memory="768m", cores=1, conf=tuple(INTERPRETED.items())),
            JARS.prepare() + S3_JARS.prepare(),
            java.find(),
            shuffle_partitions=1,
        )
        with open_spark(options) as session:
            yield session
    except (NoJava, NoSpark, JarsUnavailable) as error:
        unavailable("Spark", error)
