"""Writes epochs of the partition map, each in one transaction of its own producer."""

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, Final

from aiokafka import AIOKafkaProducer
from aiokafka.errors import InvalidTimestampError, KafkaError

from diem.kafka.client import abort_producer, close_all
from diem.kafka.config import KafkaOptions
from diem.kafka.errors import KafkaUnavailable, TimestampsRefused
from diem.kafka.map_reader import MapReader, read_map
from diem.protocol.partition_map import (
    HEAD_KEY,
    HOT,
    PUBLISHER_ACK,
    Entry,
    Head,
    PartitionMap,
    encode_entry,
    encode_head,
)

WRITE_TIMEOUT_S: Final = 30.0
LOST_EPOCHS: Final = 3
"""More epochs than can follow the publisher's last acknowledgement: it acknowledges every second one of a move."""
PRODUCER: Final[dict[str, Any]] = {
    "request_timeout_ms": 10_000,
    # Time after which a dead writer's transaction is aborted, unless the next writer does so first.
    "transaction_timeout_ms": 10_000,
    "linger_ms": 5,
}


async def write_map(options: KafkaOptions, records: Mapping[bytes, bytes | None], head: Head) -> None:
    """Write ``records``, then ``head``, in one transaction; a value of None removes the key's entry.

    Raises:
        KafkaUnavailable: it was not written, another writer intervened, or the outcome is unknown.
        ConfigurationError: the options cannot be used.
    """
    async with _writing(options) as producer, _transaction(producer):
        await _send(producer, options.names.partition_map, records, head)


async def change_map(options: KafkaOptions, expected: Head, records: Mapping[bytes, bytes | None], head: Head) -> bool:
    """Do :func:`write_map` if the map's head is ``expected``, else return False.

    Raises:
        KafkaUnavailable: it was not written, another writer intervened, or the outcome is unknown.
        ConfigurationError: the options cannot be used.
    """
    async with _writing(options) as producer, _transaction(producer):
        # The producer has fenced all other writers, and their commits are visible by now.
        reader = await _read(options)
        if not reader.is_complete or reader.map is None or reader.map.head != expected:
            return False
        await _send(producer, options.names.partition_map, records, head, reader.count_after(records))
    return True


async def begin_map(
    options: KafkaOptions, partitions: int, hot: Collection[str] = (), known: PartitionMap | None = None
) -> PartitionMap:
    """Return the map in its topic. If it is missing or incomplete, write ``known``, or else epoch 0.

    Epoch 0 has ``partitions``, and the endpoints ``hot`` in the topic read by every bridge. In a truncated topic, the
    epoch is higher than any possibly lost.

    Raises:
        KafkaUnavailable: the topic cannot be read or written.
    """
    if current := await read_map(options):
        return current
    entries = {name.encode(): Entry(HOT) for name in hot}
    first = known or PartitionMap(Head(partitions, 0), entries)
    async with _writing(options) as producer, _transaction(producer):
        # Again: the producer has fenced all other writers, and their commits are visible by now.
        reader = await _read(options)
        if reader.is_complete and reader.map is not None:
            return reader.map
        if reader.records or reader.begin or (known and reader.next):
            # Every epoch takes an offset, so without a known epoch the log's end exceeds all.
            lost = LOST_EPOCHS if known else max(LOST_EPOCHS, reader.next)
            first = replace(first, head=first.head._replace(epoch=first.head.epoch + lost))
        records: dict[bytes, bytes | None] = dict.fromkeys(reader.records.keys() - {HEAD_KEY, PUBLISHER_ACK})
        records |= {name: encode_entry(entry) for name, entry in first.entries.items()}
        await _send(producer, options.names.partition_map, records, first.head, len(first.entries))
    return first


async def _read(options: KafkaOptions) -> MapReader:
    reader = MapReader(options)
    await reader.read()
    return reader


async def _send(
    producer: AIOKafkaProducer,
    topic: str,
    records: Mapping[bytes, bytes | None],
    head: Head,
    count: int | None = None,
) -> None:
    # Empty values, not tombstones: Kafka removes tombstones after a day, and a reader away for longer would keep the
    # entry.
    values = {key: value or b"" for key, value in records.items()} | {HEAD_KEY: encode_head(head, count)}
    sent = [await producer.send(topic, value, key, partition=0) for key, value in values.items()]
    await asyncio.gather(*sent)


@asynccontextmanager
async def _writing(options: KafkaOptions) -> AsyncIterator[AIOKafkaProducer]:
    """Open the only writer for at most 30 s: its transactional id fences all earlier ones."""
    name = options.names.map_writer
    producer = AIOKafkaProducer(client_id=name, transactional_id=name, **PRODUCER, **options.client_arguments())
    try:
        async with asyncio.timeout(WRITE_TIMEOUT_S):
            await producer.start()
            yield producer
    except (KafkaError, OSError, TimeoutError) as error:
        is_clock = isinstance(error, InvalidTimestampError)
        cause = TimestampsRefused(options.names.partition_map) if is_clock else f"{type(error).__name__} {error}"
        reason = f"the partition map was not written: {cause}".strip()
        raise KafkaUnavailable(options.bootstrap_servers, reason) from error
    finally:
        await abort_producer(producer)


@asynccontextmanager
async def _transaction(producer: AIOKafkaProducer) -> AsyncIterator[None]:
    """Commit everything sent in the block, or nothing.

    The library's own context manager awaits the abort of a failed transaction for as long as the cluster is
    unavailable.
    """
    await producer.begin_transaction()
    try:
        yield
    except BaseException:
        # If this fails, the next writer aborts it, or the transaction times out.
        await close_all(producer.abort_transaction)
        raise
    await producer.commit_transaction()
