"""A real Kafka for tests: one broker for a whole run, with separate topics for each test."""

import asyncio
import contextlib
import os
import secrets
import signal
import time
from collections.abc import AsyncIterator, Iterator
from typing import Final, NamedTuple

import pytest

from deploy.jars import JarsUnavailable
from deploy.kafka.java import NoJava
from deploy.kafka.program import KafkaProgram, prepare
from diem.kafka.client import connected_client
from diem.kafka.config import KafkaOptions
from diem.kafka.errors import KafkaUnavailable
from diem.kafka.metadata import describe
from tests.support.local_cluster import LocalCluster
from tests.support.patience import FACTOR, PATIENCE_S
from tests.support.required import unavailable
from tests.support.shared import SharedServicesPlugin, Unavailable, on_own_loop


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


@pytest.fixture(scope="session")
def own_broker(kafka_program: KafkaProgram, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """A broker of the one worker that runs all tests that kill or stop it; each leaves it running."""
    cluster = LocalCluster(tmp_path_factory.mktemp("kafka"), prepare=lambda: kafka_program, time_factor=FACTOR)
    on_own_loop(cluster.start())
    yield cluster
    on_own_loop(cluster.stop())


@contextlib.asynccontextmanager
async def killed(broker: LocalCluster) -> AsyncIterator[None]:
    """Kill it; it is running again afterwards."""
    broker.kill(1)
    try:
        yield
    finally:
        await broker.restart(1)


@contextlib.contextmanager
def stopped(broker: LocalCluster) -> Iterator[None]:
    """Stop it (SIGSTOP) for a time."""
    pid = broker.pid(1)
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


_USUAL_S: Final = 0.1
"""Time in which a broker that gets the CPU answers a small request."""


class BrokerStalls:
    """``seconds`` is the time for which the broker has not answered, the current request included."""

    def __init__(self) -> None:
        self._before = 0.0
        self._asked: float | None = None

    @property
    def seconds(self) -> float:
        return self._before + self._late()

    def _late(self) -> float:
        return 0.0 if self._asked is None else max(0.0, time.monotonic() - self._asked - _USUAL_S)

    async def count(self, options: KafkaOptions) -> None:
        """Measure until cancelled."""
        # The connection counts as a request: a broker that stands still now does not answer it, either.
        self._asked = time.monotonic()
        async with connected_client(options, PATIENCE_S) as client:
            while True:
                self._before, self._asked = self.seconds, None
                await asyncio.sleep(0.02)
                self._asked = time.monotonic()
                with contextlib.suppress(KafkaUnavailable):
                    await describe(client, options.names.updates)


@contextlib.asynccontextmanager
async def broker_stalls(options: KafkaOptions) -> AsyncIterator[BrokerStalls]:
    """Measure stalls of a broker in a block, as ``stalls`` does those of the test's own process."""
    counted = BrokerStalls()
    counting = asyncio.create_task(counted.count(options))
    try:
        yield counted
    finally:
        counting.cancel()
        await asyncio.wait([counting])


@pytest.fixture
def own_broker_options(own_broker: LocalCluster) -> KafkaOptions:
    """Options of that broker, with a new prefix for all topics and groups of the test."""
    # The test before may have stopped it.
    on_own_loop(own_broker.wait_until_ready())
    prefix = f"o{secrets.token_hex(3)}."
    return KafkaOptions(own_broker.bootstrap_servers, topic_prefix=prefix, partitions=4, replication=1)


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
