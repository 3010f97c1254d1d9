"""Writes the partition map, all of an epoch or nothing of it; its producer is open only while it is needed."""

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from diem.kafka.client import abort_producer, close_all
from diem.kafka.config import KafkaOptions
from diem.kafka.errors import KafkaUnavailable
from diem.kafka.map_reader import read_map
from diem.kafka.topics import ensure
from diem.protocol.partition_map import HEAD_KEY, HOT, Entry, Head, PartitionMap, encode_entry, encode_head

WITHIN_S: Final = 30.0
PRODUCER: Final[dict[str, Any]] = {
    "request_timeout_ms": 10_000,
    # What a writer that died had begun is undone after so long, or by the next writer.
    "transaction_timeout_ms": 10_000,
    "linger_ms": 5,
}


async def write_map(options: KafkaOptions, records: Mapping[bytes, bytes | None], head: Head) -> None:
    """Write ``records`` and then ``head``, in one transaction; None removes what the key had.

    Raises:
        KafkaUnavailable: it was not written, or another writer came between; also when that is not known.
        ConfigurationError: the options cannot be used.
    """
    async with _writing(options) as producer, _transaction(producer):
        await _send(producer, options.names.partition_map, records, head)


async def change_map(options: KafkaOptions, expected: Head, records: Mapping[bytes, bytes | None], head: Head) -> bool:
    """Like :func:`write_map`, but only if the map's head is ``expected``; False when it is another one by now.

    Raises:
        KafkaUnavailable: it was not written, or another writer came between; also when that is not known.
        ConfigurationError: the options cannot be used.
    """
    async with _writing(options) as producer, _transaction(producer):
        # From here on no other writer's transaction is open, and what it has committed is there to be seen.
        standing = await read_map(options)
        if standing is None or standing.head != expected:
            return False
        await _send(producer, options.names.partition_map, records, head)
    return True


async def ensure_map(
    options: KafkaOptions, partitions: int, hot: Collection[str] = (), known: PartitionMap | None = None
) -> PartitionMap:
    """Make the topics that are missing and, without a head, the map: see :func:`begin_map`.

    Raises:
        KafkaUnavailable: the cluster does not answer, or does not let us.
        WrongTopic: a topic is there, and not as it must be.
    """
    await ensure(options, partitions)
    return await begin_map(options, partitions, hot, known)


async def begin_map(
    options: KafkaOptions, partitions: int, hot: Collection[str] = (), known: PartitionMap | None = None
) -> PartitionMap:
    """The map that stands in its topic. Without one, ``known`` is written again; without that, epoch 0.

    Epoch 0 has ``partitions``, and the endpoints ``hot`` in the topic that every bridge reads.

    Raises:
        KafkaUnavailable: it can be neither read nor written.
    """
    if standing := await read_map(options):
        return standing
    entries = {name.encode(): Entry(HOT) for name in hot}
    first = known or PartitionMap(Head(partitions, 0), entries)
    async with _writing(options) as producer, _transaction(producer):
        # Again: from here on no other writer's transaction is open, and what it has committed is there to be seen.
        if standing := await read_map(options):
            return standing
        records = {name: encode_entry(entry) for name, entry in first.entries.items()}
        await _send(producer, options.names.partition_map, records, first.head)
    return first


async def _send(producer: AIOKafkaProducer, topic: str, records: Mapping[bytes, bytes | None], head: Head) -> None:
    # An empty value, and not none: Kafka forgets a record without a value after a day, and a reader that was away for
    # longer would keep the entry.
    values = {key: value or b"" for key, value in records.items()} | {HEAD_KEY: encode_head(head)}
    sent = [await producer.send(topic, value, key, partition=0) for key, value in values.items()]
    await asyncio.gather(*sent)


@asynccontextmanager
async def _writing(options: KafkaOptions) -> AsyncIterator[AIOKafkaProducer]:
    """The one writer, for at most 30 s: whoever opens it closes the door behind all earlier ones."""
    producer = AIOKafkaProducer(transactional_id=options.names.map_writer, **PRODUCER, **options.client_arguments())
    try:
        async with asyncio.timeout(WITHIN_S):
            await producer.start()
            yield producer
    except (KafkaError, OSError, TimeoutError) as error:
        reason = f"the partition map was not written: {type(error).__name__} {error}".strip()
        raise KafkaUnavailable(options.bootstrap_servers, reason) from error
    finally:
        await abort_producer(producer)


@asynccontextmanager
async def _transaction(producer: AIOKafkaProducer) -> AsyncIterator[None]:
    """All that is sent in the block, or nothing of it.

    The library's own waits until the cluster has undone what failed, and so for as long as the cluster is away.
    """
    await producer.begin_transaction()
    try:
        yield
    except BaseException:
        # What is not undone now is by the next writer, or after its time.
        await close_all(producer.abort_transaction)
        raise
    await producer.commit_transaction()
