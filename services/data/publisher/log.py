"""The updates topics as their one writer sees them: batches to a partition, end offsets, the source id. A thin shell.

Partitions are numbered as in the updates topic; the last number is the one partition of the topic of hot updates.
"""

import asyncio
from collections.abc import AsyncIterator, Collection, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import Any, Final, NamedTuple

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.client import AIOKafkaClient, ConnectionGroup
from aiokafka.errors import KafkaError

from diem.kafka.client import abort_producer, close_all, connected_client
from diem.kafka.config import KafkaOptions
from diem.kafka.metadata import describe
from diem.kafka.topics import MAX_MESSAGE_BYTES, compare
from diem.protocol.partition_map import PUBLISHER_ACK, encode_ack

BATCH_BYTES: Final = 96 * 1024
"""Of one request to one partition; the topic takes up to ``MAX_MESSAGE_BYTES``."""
PRODUCER: Final[dict[str, Any]] = {
    # Acknowledged by every replica in sync, and repeated by the client without a second copy in the log.
    "acks": "all",
    "enable_idempotence": True,
    "max_batch_size": BATCH_BYTES,
    "max_request_size": 8 * MAX_MESSAGE_BYTES,
    # Longer than a fail-over: within it the client itself repeats.
    "request_timeout_ms": 40_000,
    "retry_backoff_ms": 100,
    "metadata_max_age_ms": 10_000,
}
"""Settings of the producer (docs/protocol.md section 3); `diem check` looks at them."""
REQUEST_TIMEOUT_S: Final = 5.0


class Place(NamedTuple):
    """The log and its map as they are in Kafka now."""

    source: str | None
    """Cluster and topics that positions belong to; None while one of the topics is not there."""
    map: str | None
    """The map's topic; None while it is not there."""
    leaders: dict[int, int]
    """The leader of each partition."""
    partitions: int
    """Of the updates topic."""


class Log:
    """The open topics. Make it with :func:`open_log`."""

    def __init__(
        self,
        options: KafkaOptions,
        count: int,
        client: AIOKafkaClient,
        producer: AIOKafkaProducer,
        consumer: AIOKafkaConsumer,
    ) -> None:
        # The sizes that are configured count at the start: plans give a topic partitions, operators replicas.
        self._options = replace(options, partitions=None, replication=None)
        self._names = options.names
        self.topic = self._names.updates
        self._partitions = [TopicPartition(self.topic, number) for number in range(count - 1)]
        self._partitions.append(TopicPartition(self._names.hot, 0))
        # Not the producer's: on a connection of its own a metadata request does not wait behind a produce request.
        self._client = client
        self._producer = producer
        self._consumer = consumer

    async def write(self, number: int, records: Sequence[tuple[bytes, bytes | None]]) -> tuple[int, int]:
        """Write as many of ``records`` (key, value or None) as fit into one request; at least the first.

        Returns:
            The offset of the first (negative if the broker does not know it any more), and how many there are.

        Raises:
            KafkaError, OSError: it is not known whether they were written.
        """
        batch = self._producer.create_batch()
        count = 0
        for key, value in records:
            if batch.append(key=key, value=value, timestamp=None) is None:
                break
            count += 1
        topic, partition = self._partitions[number]
        sending = await self._producer.send_batch(batch, topic, partition=partition)
        written = await sending
        return (-1 if written is None else int(written.offset)), count

    async def acknowledge(self, epoch: int, unknown: Iterable[bytes]) -> None:
        """Acknowledge an epoch in the topic of the map: everything it requires is written.

        ``unknown`` are endpoints with entries in the map that the store does not have.

        Raises:
            KafkaError, OSError: it is not known whether that was written.
        """
        value = encode_ack(epoch, unknown)
        await self._producer.send_and_wait(self._names.partition_map, value, PUBLISHER_ACK, partition=0)

    async def end_offsets(self, numbers: Sequence[int]) -> dict[int, int]:
        """Return the end offset of each partition that has a leader; the others are left out."""
        ends = await asyncio.gather(*(self._end_offset(self._partitions[number]) for number in numbers))
        return {number: end for number, end in zip(numbers, ends, strict=True) if end is not None}

    async def _end_offset(self, partition: TopicPartition) -> int | None:
        # One by one: asked together, a partition without a leader would hold up the answer for all.
        with suppress(KafkaError, TimeoutError):
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                return int((await self._consumer.end_offsets([partition]))[partition])
        return None

    def name(self, number: int) -> str:
        """Return the partition's display name."""
        partition = self._partitions[number]
        return f"{partition.topic}/{partition.partition}"

    async def locate(self, avoid: Collection[int] = ()) -> Place:
        """Describe the log in Kafka.

        Raises:
            KafkaUnavailable: the brokers do not answer. Those to ``avoid`` are asked last.
        """
        cluster = await describe(self._client, *self._names.topics, avoid=avoid)
        found = {
            (topic.name, number): part.leader
            for topic in cluster.topics.values()
            for number, part in topic.partitions.items()
        }
        return Place(
            source=cluster.source(*self._names.log),
            map=cluster.source(self._names.partition_map),
            leaders={number: found[part] for number, part in enumerate(self._partitions) if part in found},
            partitions=sum(topic == self._names.updates for topic, _ in found),
        )

    async def check_settings(self) -> None:
        """Check that no topic was altered so that it would lose or refuse updates.

        Raises:
            WrongTopic: one has been.
            KafkaUnavailable: the brokers do not answer.
        """
        cluster = await describe(self._client, *self._names.topics)
        if len(cluster.topics) == len(self._names.topics):
            await compare(self._client, self._options, cluster)

    def disconnect(self, node: int) -> None:
        """Close the producer's connection to a hanging broker: requests in flight there go to the new leader.

        The producer repeats it by itself, under the same id and sequence. A new producer would need a new id, which
        brokers ask the controller for; and that may be the one that hangs.
        """
        connection = self._producer.client._conns.get((node, ConnectionGroup.DEFAULT))  # noqa: SLF001  # no public way
        if connection is not None:
            connection.close()
        self._producer.client.force_metadata_update()


@asynccontextmanager
async def open_log(options: KafkaOptions, count: int) -> AsyncIterator[Log]:
    """Open the topics for one writer, with ``count`` partitions.

    Raises:
        KafkaError, TimeoutError: the brokers are not there.
        KafkaUnavailable: likewise.
    """
    arguments = options.client_arguments()
    producer = AIOKafkaProducer(client_id=f"{options.topic_prefix}publisher", **PRODUCER, **arguments)
    # It consumes nothing: the producer cannot ask for end offsets.
    consumer = AIOKafkaConsumer(group_id=None, request_timeout_ms=int(REQUEST_TIMEOUT_S * 1000), **arguments)
    try:
        async with connected_client(options) as client, asyncio.timeout(REQUEST_TIMEOUT_S) as opening:
            await producer.start()
            await consumer.start()
            opening.reschedule(None)
            yield Log(options, count, client, producer, consumer)
    finally:
        await abort_producer(producer)
        await close_all(consumer.stop)
