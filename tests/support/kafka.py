"""A real Kafka for tests: one broker for a whole run, and topics of their own for each test."""

import secrets
from typing import NamedTuple

import pytest

from deploy.kafka.jars import JarsUnavailable
from deploy.kafka.java import NoJava
from deploy.kafka.program import KafkaProgram, prepare
from diem.kafka.config import KafkaOptions
from tests.support.required import unavailable
from tests.support.shared import SharedServicesPlugin, Unavailable


class SharedBroker(NamedTuple):
    """The broker of the run. Do not kill it: others use it."""

    bootstrap_servers: str


@pytest.fixture(scope="session")
def kafka_program() -> KafkaProgram:
    """What brokers are run with; a test that takes it is skipped where it cannot be had, and fails where it must be."""
    try:
        return prepare()
    except (NoJava, JarsUnavailable) as error:
        unavailable("Kafka", error)


@pytest.fixture(scope="session")
def kafka(shared_services: SharedServicesPlugin) -> SharedBroker:
    """One broker, started when the first test of the run asks for it."""
    try:
        return SharedBroker(**shared_services.ask("kafka"))
    except Unavailable as error:
        unavailable("Kafka", error)


@pytest.fixture
def kafka_options(kafka: SharedBroker) -> KafkaOptions:
    """How to reach the broker, with a fresh prefix for every topic and group of the test."""
    prefix = f"t{secrets.token_hex(3)}."
    return KafkaOptions(kafka.bootstrap_servers, topic_prefix=prefix, partitions=4, replication=1)


@pytest.fixture
def on_kafka(kafka: SharedBroker) -> tuple[str, ...]:
    """Options with which `diem up` runs on the broker of the run instead of one of its own."""
    return options_on(kafka)


def options_on(broker: SharedBroker) -> tuple[str, ...]:
    """Options with which `diem up` runs on a broker, under a fresh prefix.

    Every partition has marks and is read by some bridge: the usual 12 cost three times as much.
    """
    prefix = f"u{secrets.token_hex(3)}."
    return ("--bootstrap-servers", broker.bootstrap_servers, "--topic-prefix", prefix, "--partitions", "4")
