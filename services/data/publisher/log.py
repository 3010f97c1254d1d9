"""Thin shell over the updates topics for their only writer: produce batches, read end offsets and ids.

Partitions are numbered as in the updates topic; the last number is the one partition of the topic of hot updates. Uses
internals of aiokafka (0.14) for its connections.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.client import AIOKafkaClient, ConnectionGroup
from aiokafka.errors import KafkaError

from diem.kafka.client import abort_producer, close_all, connected_client
from diem.kafka.config import KafkaOptions
from diem.kafka.metadata import ReplicaFaults, describe
from diem.kafka.topic_config import CODEC, MAX_MESSAGE_BYTES
from diem.kafka.topics import compare
from diem.protocol.partition_map import PUBLISHER_ACK, encode_ack
from diem.protocol.update import GONE, GONE_HEADER, GONE_TAIL, TRACE_HEADER, UPDATE, WATERMARK_KEY, Change, version_of
from diem.protocol.watermark import LOG_HEADER, LogProof, encode_proof
from services.data.publisher.refusals import refusal

BATCH_BYTES: Final = 96 * 1024
"""Size of one request to one partition before compression; the topic accepts up to ``MAX_MESSAGE_BYTES`` after it."""
PRODUCER: Final[dict[str, Any]] = {
    # Acknowledged by all in-sync replicas; retried by the client without duplicates in the log.
    "acks": "all",
    "enable_idempotence": True,
    "max_batch_size": BATCH_BYTES,
    "compression_type": CODEC,
    "max_request_size": 8 * MAX_MESSAGE_BYTES,
    # Longer than a fail-over, during which the client itself retries.
    "request_timeout_ms": 40_000,
    "retry_backoff_ms": 100,
    "metadata_max_age_ms": 10_000,
}
"""Settings of the producer (docs/internals.md section 3), examined by ``diem check``."""
REQUEST_TIMEOUT_S: Final = 5.0
OffsetRequest = Callable[[list[TopicPartition]], Awaitable[dict[TopicPartition, int]]]


class LogTopics(NamedTuple):
    """The topics of log and map as found in Kafka."""

    source: str | None
    """Id for positions: cluster and topics; None while a topic is missing."""
    map: str | None
    """Id of the map's topic; None while it is missing."""
    leaders: dict[int, int]
    """The leader of each partition."""
    partitions: int
    """Number of partitions of the updates topic."""
    replicas: ReplicaFaults = ReplicaFaults()
    """Partitions of log and map with missing replicas."""


class Log:
    """The open topics, from :func:`open_log`."""

    def __init__(
        self,
        options: KafkaOptions,
        count: int,
        client: AIOKafkaClient,
        producer: AIOKafkaProducer,
        consumer: AIOKafkaConsumer,
    ) -> None:
        # Configured sizes apply to new topics only: plans add partitions later, operators add replicas.
        self._options = replace(options, partitions=None, replication=None)
        self._names = options.names
        self.topic = self._names.updates
        self._partitions = [TopicPartition(self.topic, number) for number in range(count - 1)]
        self._partitions.append(TopicPartition(self._names.hot, 0))
        # Not the producer's client: a metadata request must not wait behind a produce request.
        self._client = client
        self._producer = producer
        self._consumer = consumer

    async def write(
        self,
        number: int,
        records: Sequence[tuple[bytes, bytes | None]],
        proof: LogProof | None = None,
        forgotten: Collection[bytes] = (),
        traces: Mapping[bytes, str] = MappingProxyType({}),
    ) -> tuple[int, int]:
        """Write as many of ``records`` (key, value or None) as fit into one request; at least the first.

        A watermark among them carries ``proof``. The deletions of ``forgotten`` endpoints become tombstones that carry
        them. ``traces`` are the contexts of traced updates.

        Returns:
            The offset of the first (negative if the broker no longer knows it), and the number written.

        Raises:
            RecordsRefused, TimestampsRefused: the brokers refuse them; none was written.
            KafkaError, OSError: they may or may not have been written.
        """
        batch = self._producer.create_batch()
        count = 0
        extra = {key: [(TRACE_HEADER, context.encode())] for key, context in traces.items()}
        if proof is not None:
            extra[WATERMARK_KEY] = [(LOG_HEADER, encode_proof(proof))]
        for key, value in records:
            headers = extra.get(key, [])
            tombstone = key in forgotten
            if tombstone and value is not None:
                headers = [(GONE_HEADER, value)]
            if batch.append(key=key, value=None if tombstone else value, timestamp=None, headers=headers) is None:
                break
            count += 1
        topic, partition = place = self._partitions[number]
        sequences = self._producer._txn_manager._sequence_numbers  # noqa: SLF001  # no public way
        sequence = sequences[place]
        try:
            written = await (await self._producer.send_batch(batch, topic, partition=partition))
        except KafkaError as error:
            if (refused := refusal(topic, error, count)) is None:
                raise
            # The library counts the records as sent; after the gap, brokers would refuse everything else.
            sequences[place] = sequence
            raise refused from error
        return (-1 if written is None else int(written.offset)), count

    async def updates(self, begins: Mapping[int, int]) -> AsyncIterator[tuple[int, Change]]:
        """Yield the updates of partitions from the offsets ``begins`` to the current ends, with their partitions.

        Raises:
            KafkaError, TimeoutError: they cannot be read now.
        """
        firsts, ends = await asyncio.gather(self.begin_offsets([*begins]), self.end_offsets([*begins]))
        if firsts.keys() & ends.keys() != begins.keys():
            raise TimeoutError("no broker reports the bounds of some logs")
        left = {self._partitions[n]: max(begin, firsts[n]) for n, begin in begins.items() if firsts[n] < ends[n]}
        consumer = AIOKafkaConsumer(group_id=None, auto_offset_reset="none", **self._options.client_arguments())
        try:
            await consumer.start()
            consumer.assign([*left])
            for partition, begin in left.items():
                consumer.seek(partition, begin)
            while left := {part: next_ for part, next_ in left.items() if next_ < ends[self._partitions.index(part)]}:
                found = await consumer.getmany(*left, timeout_ms=int(REQUEST_TIMEOUT_S * 1000))
                if not found:
                    raise TimeoutError("no broker sends the records of some logs")
                for partition, records in found.items():
                    left[partition] = records[-1].offset + 1
                    for record in records:
                        if record.value is not None and (version := version_of(record.key, record.value)) is not None:
                            kind = GONE if record.value.endswith(GONE_TAIL) else UPDATE
                            change = Change(record.offset, record.key, version, kind, record.value)
                            yield self._partitions.index(partition), change
        finally:
            await close_all(consumer.stop)

    async def acknowledge(self, epoch: int, unknown: Iterable[bytes]) -> None:
        """Acknowledge an epoch in the map's topic: everything it requires is written.

        ``unknown`` are endpoints with map entries but not in the store.

        Raises:
            KafkaError, OSError: the acknowledgement may or may not have been written.
        """
        value = encode_ack(epoch, unknown)
        await self._producer.send_and_wait(self._names.partition_map, value, PUBLISHER_ACK, partition=0)

    async def end_offsets(self, numbers: Sequence[int]) -> dict[int, int]:
        """Return the end offset of each partition that has a leader; the others are left out."""
        return await self._offsets(self._consumer.end_offsets, numbers)

    async def begin_offsets(self, numbers: Sequence[int]) -> dict[int, int]:
        """Return the first offset of each partition that has a leader; the others are left out."""
        return await self._offsets(self._consumer.beginning_offsets, numbers)

    async def _offsets(self, request: OffsetRequest, numbers: Sequence[int]) -> dict[int, int]:
        # One request each: in a joint one, a partition without a leader would delay the answer for all.
        answers = await asyncio.gather(*(_offset(request, self._partitions[number]) for number in numbers))
        return {number: offset for number, offset in zip(numbers, answers, strict=True) if offset is not None}

    def name(self, number: int) -> str:
        """Return the partition's display name."""
        partition = self._partitions[number]
        return f"{partition.topic}/{partition.partition}"

    async def describe(self, avoid: Collection[int] = ()) -> LogTopics:
        """Return the current topics of log and map.

        Raises:
            KafkaUnavailable: no broker answers. Those to ``avoid`` are tried last.
        """
        cluster = await describe(self._client, *self._names.topics, avoid=avoid)
        found = {
            (topic.name, number): part.leader
            for topic in cluster.topics.values()
            for number, part in topic.partitions.items()
        }
        return LogTopics(
            source=cluster.source(*self._names.log),
            map=cluster.source(self._names.partition_map),
            leaders={number: found[part] for number, part in enumerate(self._partitions) if part in found},
            partitions=sum(topic == self._names.updates for topic, _ in found),
            replicas=cluster.replica_faults(),
        )

    async def check_settings(self) -> list[str]:
        """Check that no topic's settings lose updates; return the lesser faults, with remedies.

        Raises:
            WrongTopic: a topic's settings do. KafkaUnavailable: the brokers do not answer.
        """
        cluster = await describe(self._client, *self._names.topics)
        if len(cluster.topics) == len(self._names.topics):
            return await compare(self._client, self._options, cluster)
        return []

    def disconnect(self, node: int) -> None:
        """Close the producer's connection to a hung broker, so that requests in flight go to the new leader.

        The producer itself retries them, under the same producer id and sequence. A new producer would need a new id
        from the controller, possibly the hung broker.
        """
        connection = self._producer.client._conns.get((node, ConnectionGroup.DEFAULT))  # noqa: SLF001  # no public way
        if connection is not None:
            connection.close()
        self._producer.client.force_metadata_update()


async def _offset(request: OffsetRequest, partition: TopicPartition) -> int | None:
    with suppress(KafkaError, TimeoutError):
        async with asyncio.timeout(REQUEST_TIMEOUT_S):
            return int((await request([partition]))[partition])
    return None


@asynccontextmanager
async def open_log(options: KafkaOptions, count: int) -> AsyncIterator[Log]:
    """Open the topics for one writer, with ``count`` partitions.

    Raises:
        KafkaError, KafkaUnavailable, TimeoutError: the brokers cannot be reached.
    """
    arguments = options.client_arguments()
    producer = AIOKafkaProducer(client_id=f"{options.topic_prefix}publisher", **PRODUCER, **arguments)
    # Never consumes; only a consumer can query end offsets.
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
