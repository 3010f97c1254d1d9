"""The epochs of a served topic, in a topic of their own whose first record of each number counts (docs/adr/0037)."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import structlog
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.client import AIOKafkaClient

from diem.errors import ConfigurationError, DiemError
from diem.kafka.client import close_all, connected_client
from diem.kafka.config import KafkaOptions, ServedTopic
from diem.kafka.errors import KafkaUnavailable, WrongTopic
from diem.kafka.map_reader import MapRecord
from diem.kafka.metadata import describe
from diem.kafka.topic_config import LOG_APPEND_TIME, TIMESTAMP_TYPE
from diem.kafka.topics import DEFAULT_REPLICATION, TopicSpec, create, min_insync, settings_in_force
from diem.process.backoff import Backoff
from diem.protocol.keys import encode_keys
from diem.protocol.partition_map import Head, PartitionMap
from diem.protocol.served_topic import Epoch, encode_epoch, latest

TIMEOUT_S: Final = 10.0
POLL_MS: Final = 500
ATTEMPTS: Final = 5
FOLLOW_S: Final = 2.0
RETRY_BASE_S: Final = 0.2
RETRY_CAP_S: Final = 3.0
_PRODUCER: Final[dict[str, Any]] = {"acks": "all", "enable_idempotence": True, "request_timeout_ms": 5000}
CONSUMER: Final[dict[str, Any]] = {"enable_auto_commit": False, "auto_offset_reset": "none", "request_timeout_ms": 4000}


def epochs_spec(options: KafkaOptions, brokers: int) -> TopicSpec:
    """Return the specification of the topic; nothing in it is ever compacted or deleted."""
    replication = options.replication or min(DEFAULT_REPLICATION, brokers)
    config = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
    config |= {TIMESTAMP_TYPE: LOG_APPEND_TIME, "min.insync.replicas": str(min_insync(replication))}
    return TopicSpec(options.names.epochs, 1, replication, config)


class EpochLog:
    """Reads the epochs with a consumer, and appends new ones. There is a record a year, and one a mishap."""

    def __init__(self, options: KafkaOptions, consumer: AIOKafkaConsumer) -> None:
        self._options = options
        self._consumer = consumer
        self._partition = TopicPartition(options.names.epochs, 0)
        self._values: list[bytes | None] = []
        self._next: int | None = None

    async def read(self) -> Epoch | None:
        """Return the epoch in force; None before the first.

        Raises:
            KafkaError, TimeoutError: the topic cannot be read.
        """
        part, consumer = self._partition, self._consumer
        async with asyncio.timeout(TIMEOUT_S):
            begin = (await consumer.beginning_offsets([part]))[part]
            end = (await consumer.end_offsets([part]))[part]
            if self._next is None or not begin <= self._next <= end:
                self._next, self._values = begin, []
            if self._next < end:
                consumer.assign([part])
                consumer.seek(part, self._next)
                while self._next < end:
                    fetched = await consumer.getmany(part, timeout_ms=POLL_MS)
                    self._values += [record.value for record in fetched.get(part, ())]
                    self._next = await consumer.position(part)
                consumer.assign([])
        return latest(iter(self._values))

    async def agree(self, propose: Callable[[Epoch | None], Epoch | None]) -> Epoch:
        """Return the epoch in force once ``propose`` has nothing to replace it with; its proposals are appended.

        Raises:
            KafkaError, TimeoutError: the topic cannot be read or written.
            KafkaUnavailable: others replace every proposal.
        """
        for _ in range(ATTEMPTS):
            current = await self.read()
            proposed = propose(current)
            if proposed is None and current is not None:
                return current
            if proposed is not None:
                await self._append(proposed)
                structlog.get_logger("kafka").warning("new epoch proposed", **_summary(proposed))
        raise KafkaUnavailable(self._options.bootstrap_servers, f"the epochs in {self._partition.topic} do not settle")

    async def _append(self, epoch: Epoch) -> None:
        producer = AIOKafkaProducer(**self._options.client_arguments(), **_PRODUCER)
        try:
            async with asyncio.timeout(TIMEOUT_S):
                await producer.start()
                await producer.send_and_wait(self._partition.topic, encode_epoch(epoch), partition=0)
        finally:
            await close_all(producer.stop)


def _summary(epoch: Epoch) -> dict[str, Any]:
    return {"number": epoch.number, "topic_id": epoch.topic, "base": epoch.base, "partitions": epoch.partitions}


async def ensure_epochs(client: AIOKafkaClient, options: KafkaOptions) -> None:
    """Create the topic of the epochs if missing, or check that it keeps them.

    Raises:
        KafkaUnavailable: the cluster does not answer, or refuses.
        WrongTopic: the topic loses records with time, as one that brokers made by themselves.
    """
    name, wanted = options.names.epochs, "-1"
    cluster = await describe(client, name)
    if name not in cluster.topics:
        await create(options, epochs_spec(options, len(cluster.brokers)))
        return
    with suppress(KafkaUnavailable):
        # Without the right to see its settings, they are trusted.
        if (found := (await settings_in_force(client, name))[0][name].get("retention.ms")) != wanted:
            remedy = f"kafka-configs.sh --alter --topic {name} --add-config cleanup.policy=delete,retention.ms={wanted}"
            raise WrongTopic(name, [f"retention.ms is {found}, it must be {wanted}: {remedy}"])


def map_of(served: ServedTopic, epoch: Epoch) -> PartitionMap:
    """Return the partition map of a served topic: its producers' partitions."""
    return PartitionMap(Head(epoch.partitions, epoch.number, keys=encode_keys(served.partitioner, served.key)))


class ServedMap:
    """The partition map of a served topic, from its epochs, for those who do not read the topic itself."""

    def __init__(self, options: KafkaOptions, served: ServedTopic) -> None:
        self.on_changed: Callable[[], None] = lambda: None
        self.map: PartitionMap | None = None
        self.records: dict[bytes, MapRecord] = {}
        """Always empty: nothing in this map moves by itself."""
        self.why_not: str | None = "Kafka has not been queried yet"
        """Why the map is not known or may be outdated; None if it is."""
        self._options = options
        self._served = served

    @property
    def caught_up(self) -> bool:
        """True once the map is known."""
        return self.map is not None

    async def run(self) -> None:
        """Follow the epochs until cancelled, through outages of Kafka."""
        backoff = Backoff(RETRY_BASE_S, RETRY_CAP_S)
        while True:
            try:
                await self._follow(backoff)
            except (DiemError, ConfigurationError, OSError, TimeoutError) as error:
                self.why_not = str(error) or type(error).__name__
            except Exception as error:  # noqa: BLE001  # the client library raises more than its own errors
                self.why_not = f"{type(error).__name__} {error}".strip()
            await asyncio.sleep(backoff.next_delay())

    async def _follow(self, backoff: Backoff) -> None:
        async with connected_client(self._options) as client:
            # A consumer's request would make the topic, where brokers are configured so.
            if self._options.names.epochs not in (await describe(client, self._options.names.epochs)).topics:
                self.why_not = f"topic {self._options.names.epochs} does not exist: no bridge runs"
                return
        consumer = AIOKafkaConsumer(group_id=None, **CONSUMER, **self._options.client_arguments())
        try:
            async with asyncio.timeout(TIMEOUT_S):
                await consumer.start()
            log = EpochLog(self._options, consumer)
            while True:
                epoch = await log.read()
                self.why_not = None if epoch else f"topic {self._options.names.epochs} is empty: no bridge runs"
                found = self.map if epoch is None else map_of(self._served, epoch)
                if found != self.map:
                    self.map = found
                    self.on_changed()
                backoff.reset()
                await asyncio.sleep(FOLLOW_S)
        finally:
            await close_all(consumer.stop)
