"""The topic of recorded traffic: its source and lag. Needs the Kafka client (an extra), but no Spark."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Final

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from diem.errors import ConfigurationError, DiemError
from diem.kafka.client import connected_client
from diem.kafka.config import KafkaOptions
from diem.kafka.errors import KafkaUnavailable
from diem.kafka.metadata import describe
from learning.jobs.sources import SourceLag, TopicSource

_TIMEOUT_S: Final = 15.0


async def kafka_source(options: KafkaOptions) -> TopicSource:
    """Return the topic of recorded traffic as a source.

    Raises:
        DiemError: it does not exist: no traffic was recorded in this cluster.
        KafkaUnavailable: the cluster does not answer.
    """
    topic = options.names.traffic
    async with connected_client(options) as client:
        identity = (await describe(client, topic)).source(topic)
    if identity is None:
        raise DiemError(
            f"there is no topic {topic} at {options.bootstrap_servers}: it is made when a server first records "
            "traffic there (traffic in files: --source files)"
        )
    return TopicSource(options, identity)


async def unread_records(options: KafkaOptions, offsets: Mapping[int, int]) -> SourceLag:
    """Return the lag in the topic, in records.

    A log may also have lost its end (an unclean election of a leader, a restored broker): by as many records as it is
    shorter than what was read, others may come in their place, which the source passes over.

    Args:
        options: the cluster.
        offsets: next offset to read by partition; partitions without one are read from their beginning.

    Raises:
        KafkaUnavailable: the cluster does not answer.
    """
    async with _consuming(options) as consumer, asyncio.timeout(_TIMEOUT_S):
        parts = await _start(consumer, options)
        begin, end = await consumer.beginning_offsets(parts), await consumer.end_offsets(parts)
    at = {part: min(max(offsets.get(part.partition, 0), begin[part]), end[part]) for part in parts}
    known = [part for part in parts if part.partition in offsets]
    return SourceLag(
        sum(end[part] - at[part] for part in parts), sum(abs(at[part] - offsets[part.partition]) for part in known)
    )


async def recent_records(options: KafkaOptions, since_ms: int, max_bytes: int) -> list[bytes]:
    """Return the values of the records from a time on.

    Raises:
        ConfigurationError: they have more than ``max_bytes``.
        KafkaUnavailable: the cluster does not answer.
    """
    found, size = list[bytes](), 0
    async with _consuming(options) as consumer:
        async with asyncio.timeout(_TIMEOUT_S):
            parts = await _start(consumer, options)
            first = await consumer.offsets_for_times(dict.fromkeys(parts, max(since_ms, 0)))
            end = await consumer.end_offsets(parts)
        unread = {part: at.offset for part, at in first.items() if at is not None and at.offset < end[part]}
        consumer.assign(list(unread))
        for part, offset in unread.items():
            consumer.seek(part, offset)
        while unread:
            async with asyncio.timeout(_TIMEOUT_S):
                fetched = await consumer.getmany(timeout_ms=1000)
            for part, records in fetched.items():
                values = [record.value for record in records if record.offset < end[part] and record.value is not None]
                found += values
                size += sum(map(len, values))
            if size > max_bytes:
                raise ConfigurationError(
                    f"{options.names.traffic} has more than {max_bytes >> 20} MiB of traffic, too much without Spark: "
                    "`diem pipeline run`, then plan from its statistics"
                )
            unread = {part: at for part in unread if (at := await consumer.position(part)) < end[part]}
    return found


@asynccontextmanager
async def _consuming(options: KafkaOptions) -> AsyncIterator[AIOKafkaConsumer]:
    """Yield a consumer to be started, and stop it. Errors of Kafka in the block are ``KafkaUnavailable``."""
    consumer = AIOKafkaConsumer(**options.client_arguments())
    try:
        yield consumer
    except (KafkaError, OSError, TimeoutError) as error:
        raise KafkaUnavailable(options.bootstrap_servers, str(error) or type(error).__name__) from error
    finally:
        await consumer.stop()


async def _start(consumer: AIOKafkaConsumer, options: KafkaOptions) -> list[TopicPartition]:
    """Start a consumer, and return the partitions of the topic."""
    await consumer.start()
    async with connected_client(options) as client:
        cluster = await describe(client, options.names.traffic)
    return [TopicPartition(topic.name, part) for topic in cluster.topics.values() for part in topic.partitions]
