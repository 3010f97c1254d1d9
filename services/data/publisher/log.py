"""The updates topic as its one writer sees it: batches to a partition, end offsets, the source id. A thin shell."""

import asyncio
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.client import AIOKafkaClient, ConnectionGroup
from aiokafka.errors import KafkaError

from diem.kafka.connecting import connected
from diem.kafka.metadata import describe
from diem.kafka.options import KafkaOptions
from diem.kafka.topics import MAX_MESSAGE_BYTES

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
END_WITHIN_S: Final = 1.0
ASK_WITHIN_S: Final = 5.0


class Log:
    """An open topic. Make it with :func:`open_log`."""

    def __init__(
        self, topic: str, client: AIOKafkaClient, producer: AIOKafkaProducer, consumer: AIOKafkaConsumer
    ) -> None:
        self.topic = topic
        # Not the producer's: on a connection of its own a question does not wait behind a request.
        self._client = client
        self._producer = producer
        self._consumer = consumer

    async def write(self, partition: int, records: Sequence[tuple[bytes, bytes]]) -> tuple[int, int]:
        """Write as many of ``records`` (key, value) as fit into one request; at least the first.

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
        sending = await self._producer.send_batch(batch, self.topic, partition=partition)
        written = await sending
        return (-1 if written is None else int(written.offset)), count

    async def ends(self, partitions: Sequence[int]) -> dict[int, int]:
        """The end offset of each partition that a broker leads; the others are left out."""
        ends = await asyncio.gather(*(self._end_of(TopicPartition(self.topic, number)) for number in partitions))
        return {number: end for number, end in zip(partitions, ends, strict=True) if end is not None}

    async def _end_of(self, partition: TopicPartition) -> int | None:
        # One by one: asked together, a partition without a leader would hold up the answer for all.
        with suppress(KafkaError, TimeoutError):
            async with asyncio.timeout(ASK_WITHIN_S):
                return int((await self._consumer.end_offsets([partition]))[partition])
        return None

    async def look(self, avoid: Collection[int] = ()) -> tuple[str | None, dict[int, int]]:
        """The id of the log (None when there is no topic now), and the leader of each partition.

        Raises:
            KafkaUnavailable: the brokers do not say. Those to ``avoid`` are asked last.
        """
        cluster = await describe(self._client, self.topic, avoid=avoid)
        topic = cluster.topics.get(self.topic)
        leaders = {number: part.leader for number, part in topic.partitions.items()} if topic else {}
        return cluster.source(self.topic), leaders

    def leave(self, node: int) -> None:
        """Cut the producer's connection to a broker that hangs: what is under way there goes to its new leader.

        The producer repeats it by itself, under the same id and sequence. A new producer would need a new id, which
        brokers ask the controller for; and that may be the one that hangs.
        """
        connection = self._producer.client._conns.get((node, ConnectionGroup.DEFAULT))  # noqa: SLF001  # no public way
        if connection is not None:
            connection.close()
        self._producer.client.force_metadata_update()


@asynccontextmanager
async def open_log(options: KafkaOptions) -> AsyncIterator[Log]:
    """The updates topic, open for one writer.

    Raises:
        KafkaError, TimeoutError: the brokers are not there.
        KafkaUnavailable: likewise.
    """
    arguments = options.client_arguments()
    producer = AIOKafkaProducer(client_id=f"{options.topic_prefix}publisher", **PRODUCER, **arguments)
    # It consumes nothing: the producer cannot ask for end offsets.
    consumer = AIOKafkaConsumer(group_id=None, request_timeout_ms=int(ASK_WITHIN_S * 1000), **arguments)
    try:
        async with connected(options) as client, asyncio.timeout(ASK_WITHIN_S) as opening:
            await producer.start()
            await consumer.start()
            opening.reschedule(None)
            yield Log(options.names.updates, client, producer, consumer)
    finally:
        await _end(producer, consumer)


async def _end(producer: AIOKafkaProducer, consumer: AIOKafkaConsumer) -> None:
    """End both at once. What is under way is sent again by whoever comes next: to wait for it would only hold that up.

    The producer's own ``stop()`` waits for every request, which a broker that hangs does not answer for 40 s; and until
    then it would repeat them, beside its successor.
    """
    producer._closed = True  # noqa: SLF001  # there is no public way to end it without waiting
    for ending in (producer._sender.close, producer.client.close, consumer.stop):  # noqa: SLF001
        # In a task of its own: these end with the CancelledError of what they have themselves cancelled.
        task = asyncio.ensure_future(ending())
        await asyncio.wait([task], timeout=END_WITHIN_S)
        if not task.done():
            task.cancel()
        elif not task.cancelled():
            task.exception()  # whatever it is, the client is given up
