"""A real Kafka for tests: one broker for a whole run, with separate topics for each test."""

import secrets
from typing import NamedTuple

import pytest

from deploy.jars import JarsUnavailable
from deploy.kafka.java import NoJava
from deploy.kafka.program import KafkaProgram, prepare
from diem.kafka.config import KafkaOptions
from tests.support.required import unavailable
from tests.support.shared import SharedServicesPlugin, Unavailable


class SharedBroker(NamedTuple):
    """The broker of the run. Do not kill it: other tests use it."""

    bootstrap_servers: str


@pytest.fixture(scope="session")
def kafka_program() -> KafkaProgram:
    """The programs of a broker; without them the test is skipped, or fails where they are required."""
    try:
        return prepare()
    except (NoJava, JarsUnavailable) as error:
        unavailable("Kafka", error)


@pytest.fixture(scope="session")
def kafka(shared_services: SharedServicesPlugin) -> SharedBroker:
    """One broker for the whole run, started at the first use."""
    try:
        return SharedBroker(**shared_services.ask("kafka"))
    except Unavailable as error:
        unavailable("Kafka", error)


@pytest.fixture
def kafka_options(kafka: SharedBroker) -> KafkaOptions:
    """Options of the broker, with a new prefix for all topics and groups of the test."""
    prefix = f"t{secrets.token_hex(3)}."
    return KafkaOptions(kafka.bootstrap_servers, topic_prefix=prefix, partitions=4, replication=1)


@pytest.fixture
def on_kafka(kafka: SharedBroker) -> tuple[str, ...]:
    """Options of `diem up` to use the broker of the run instead of its own."""
    return options_on(kafka)


def options_on(broker: SharedBroker) -> tuple[str, ...]:
    """Return options of `diem up` to use a broker, with a new prefix.

    Few partitions: each has watermarks and a reader, and the usual 12 cost three times as much.
    """
    prefix = f"u{secrets.token_hex(3)}."
    return ("--bootstrap-servers", broker.bootstrap_servers, "--topic-prefix", prefix, "--partitions", "4")
