"""A real Kafka for tests: one broker for a whole run, and topics of their own for each test."""

import asyncio
import os
import secrets
import shutil
from collections.abc import Coroutine, Iterator

import pytest

from deploy.kafka.cluster import LocalCluster
from deploy.kafka.jars import JarsUnavailable
from deploy.kafka.java import NoJava
from deploy.kafka.program import Program, prepare
from diem.kafka.options import KafkaOptions


@pytest.fixture(scope="session")
def kafka_program() -> Program:
    """What brokers are run with; a test that takes it is skipped where it cannot be had, and fails where it must be."""
    try:
        return prepare()
    except (NoJava, JarsUnavailable) as error:
        if os.environ.get("CI"):
            pytest.fail(f"the run is the one that must have Kafka: {error}")
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def kafka(kafka_program: Program, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """One broker, started when the first test asks for it. Do not kill it: others use it."""
    cluster = LocalCluster(tmp_path_factory.mktemp("kafka"), prepare=lambda: kafka_program)
    # In this thread, for the broker ends with the thread that started it.
    _run(cluster.start())
    yield cluster
    _run(cluster.stop())
    shutil.rmtree(cluster.directory)


@pytest.fixture
def kafka_options(kafka: LocalCluster) -> KafkaOptions:
    """How to reach the broker, with a fresh prefix for every topic and group of the test."""
    prefix = f"t{secrets.token_hex(3)}."
    return KafkaOptions(kafka.bootstrap_servers, topic_prefix=prefix, partitions=4, replication=1)


def _run(work: Coroutine[object, object, None]) -> None:
    """Run on a loop of its own that is nobody's current loop: the tests' loops come and go with each test."""
    loop = asyncio.new_event_loop()
    try:
        loop.run_until_complete(work)
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.run_until_complete(loop.shutdown_default_executor())
    finally:
        loop.close()
