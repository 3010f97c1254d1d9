"""aiokafka's consumer with a bound on every wait: opening, the bounds of logs, polling, commits and stopping.

Polling bypasses the library's record objects and takes a third of the CPU time of ``getmany``, which walks each
partition with a Python generator and builds a named tuple of eleven fields for every record; a bridge needs three. The
batches themselves are compiled code. This module uses internals of aiokafka (0.14);
tests/integration/kafka/test_bridge_consumer.py compares it with ``getmany``.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Final, NamedTuple

import structlog
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.consumer.fetcher import FetchError, FetchResult
from aiokafka.errors import ConsumerStoppedError, CorruptRecordException, KafkaError

from bridge.partition_state import PartitionTable
from bridge.records import ConsumerRecord
from diem.errors import DiemError
from diem.kafka.config import KafkaOptions

FETCH_BYTES: Final = 16 << 20
"""Limit of one broker response, and of all prefetched data; compressed, as stored by the broker."""
PARTITION_BYTES: Final = 1 << 20
MIN_PARTITION_BYTES: Final = 128 << 10
"""The topic's ``max.message.bytes``: with less, each answer would still hold one batch."""
FETCH_WAIT_MS: Final = 500
"""Interval at which an idle broker answers, which proves it alive."""
FETCHER_CHECK_S: Final = 0.6
"""Interval at which the library checks for new leaders, as it does after each answer, too: longer than theirs."""
REQUEST_TIMEOUT_MS: Final = 4000
"""Fetches are answered within half a second: a broker this slow hangs, and its partitions get new leaders."""
CONSUMER: Final[dict[str, Any]] = {
    # The reader decides where to start: an offset out of range must be an error, never a new start.
    "enable_auto_commit": False,
    "auto_offset_reset": "none",
    "fetch_max_wait_ms": FETCH_WAIT_MS,
    "fetch_max_bytes": FETCH_BYTES,
    "request_timeout_ms": REQUEST_TIMEOUT_MS,
}
"""Settings of the consumer; ``diem check`` verifies them."""
OPEN_TIMEOUT_S: Final = 15.0
BOUNDS_TIMEOUT_S: Final = 5.0
START_GRACE_S: Final = 0.5
STOP_TIMEOUT_S: Final = 3.0
COMMIT_TIMEOUT_S: Final = 5.0
CLOSE_TIMEOUT_S: Final = 0.5

FAULTS: Final = (KafkaError, ConsumerStoppedError, DiemError, OSError, TimeoutError)
"""Faults to retry forever. ConsumerStoppedError: the library's own tasks have ended."""

_closing_tasks: Final[set[asyncio.Task[None]]] = set()
"""References to closing consumers: an unreferenced task may be garbage collected."""


def partition_of(name: str) -> TopicPartition:
    """Return the partition of a stream."""
    topic, _, number = name.rpartition("/")
    return TopicPartition(topic, int(number))


def name_of(partition: TopicPartition) -> str:
    """Return the stream name of a partition."""
    return f"{partition.topic}/{partition.partition}"


@contextlib.asynccontextmanager
async def consuming(options: KafkaOptions, group: str | None, partitions: int) -> AsyncIterator[AIOKafkaConsumer]:
    """Open a consumer for ``partitions`` partitions, none assigned yet; without a ``group`` it cannot commit.

    Memory is bounded: about 16 MiB in processing, the same prefetched, and one response in flight per broker. Closing
    takes at most 5 s, whatever the state of the cluster.
    """
    consumer = AIOKafkaConsumer(
        **options.client_arguments(),
        client_id=group or "bridge",
        group_id=group,
        **CONSUMER,
        max_partition_fetch_bytes=max(MIN_PARTITION_BYTES, min(PARTITION_BYTES, FETCH_BYTES // max(1, partitions))),
    )
    async with opened(consumer):
        # By default 0.2 s: twice between two answers of an idle broker.
        consumer._fetcher._fetcher_timeout = FETCHER_CHECK_S  # noqa: SLF001
        yield consumer


@contextlib.asynccontextmanager
async def opened(consumer: AIOKafkaConsumer) -> AsyncIterator[None]:
    """Start ``consumer``; on exit, close it within 5 s."""
    opening = asyncio.ensure_future(consumer.start())
    try:
        async with asyncio.timeout(OPEN_TIMEOUT_S):
            await asyncio.shield(opening)
        yield
    finally:
        # In its own task, to complete even if the caller is cancelled meanwhile.
        closing = asyncio.create_task(_close(opening, consumer))
        _closing_tasks.add(closing)
        closing.add_done_callback(_closing_tasks.discard)
        await asyncio.shield(closing)


async def _close(opening: asyncio.Future[None], consumer: AIOKafkaConsumer) -> None:
    await _finish_start(opening)
    await _stop(consumer)


async def _finish_start(opening: asyncio.Future[None]) -> None:
    """Give a start a moment to complete: a cancelled one leaks its connection."""
    await asyncio.wait([opening], timeout=START_GRACE_S)
    opening.cancel()
    await asyncio.wait([opening], timeout=START_GRACE_S)
    if opening.done() and not opening.cancelled():
        opening.exception()  # retrieved: the caller has seen it, or is gone


async def _stop(consumer: AIOKafkaConsumer) -> None:
    # In its own task: it may raise the CancelledError of a fetch that it cancelled itself (while waiting for an
    # unreachable broker), which would silently end the caller.
    stopping = asyncio.ensure_future(consumer.stop())
    await asyncio.wait([stopping], timeout=STOP_TIMEOUT_S)
    if stopping.done() and not stopping.cancelled() and stopping.exception() is None:
        return
    stopping.cancel()
    structlog.get_logger("bridge").warning("consumer does not stop, abandoned")
    await abandon(consumer)


async def bounds(consumer: AIOKafkaConsumer, names: Sequence[str]) -> dict[str, tuple[int, int]]:
    """Return the begin and end offsets of each partition with a leader; the others are left out.

    Raises:
        TimeoutError: no broker answers for any of them.
    """
    answers = await asyncio.gather(*(_bounds(consumer, partition_of(name)) for name in names))
    found = {name: answer for name, answer in zip(names, answers, strict=True) if answer is not None}
    if names and not found:
        raise TimeoutError("no broker reports the bounds of the logs")
    return found


async def _bounds(consumer: AIOKafkaConsumer, partition: TopicPartition) -> tuple[int, int] | None:
    # One by one: in one request, a partition without a leader would delay the answer for all.
    try:
        async with asyncio.timeout(BOUNDS_TIMEOUT_S):
            begin = (await consumer.beginning_offsets([partition]))[partition]
            return begin, (await consumer.end_offsets([partition]))[partition]
    except FAULTS:
        return None


def assign(consumer: AIOKafkaConsumer, positions: Mapping[str, int]) -> None:
    """Read these partitions from these positions.

    No await in between: a partition without a position would be read from its committed offset.
    """
    partitions = {partition_of(name): next_ for name, next_ in positions.items()}
    consumer.assign(list(partitions))
    for partition, next_ in partitions.items():
        consumer.seek(partition, next_)


class OffsetCommitter:
    """Commits positions in the background, for lag monitors only: reading never starts from them."""

    def __init__(self) -> None:
        self.failures = 0
        self._task: asyncio.Task[None] | None = None

    def commit(self, consumer: AIOKafkaConsumer, partitions: PartitionTable, topic: str | None = None) -> None:
        """Commit changed positions (of ``topic`` only, if given), unless a commit is in flight."""
        if self._task is None or self._task.done():
            offsets = partitions.uncommitted(topic)
            if offsets:
                self._task = asyncio.create_task(self._commit(consumer, partitions, offsets))

    async def close(self) -> None:
        """Wait up to half a second for the commit in flight, then cancel it."""
        if self._task is not None:
            await asyncio.wait([self._task], timeout=CLOSE_TIMEOUT_S)
            self._task.cancel()

    async def _commit(self, consumer: AIOKafkaConsumer, partitions: PartitionTable, offsets: dict[str, int]) -> None:
        try:
            async with asyncio.timeout(COMMIT_TIMEOUT_S):
                await consumer.commit({partition_of(name): offset for name, offset in offsets.items()})
        except FAULTS:
            self.failures += 1
        else:
            partitions.set_committed(offsets)


class FetchedBatches(NamedTuple):
    """Records fetched of one partition."""

    partition: TopicPartition
    next: int
    """The offset after the batches, even if they hold no records."""
    records: Iterator[ConsumerRecord]
    """May begin before the consumer's position: Kafka's batches are fetched whole."""


async def poll(
    consumer: AIOKafkaConsumer, timeout_s: float, interrupt: asyncio.Future[None] | None = None
) -> list[FetchedBatches]:
    """Return the fetched batches, at most one entry per partition.

    Waits until something is fetched, at most ``timeout_s``, or until ``interrupt`` is done.

    Raises:
        KafkaError: a partition cannot be read; raised after everything fetched before has been returned.
    """
    fetcher = consumer._fetcher  # noqa: SLF001
    if fetcher.error_future.done():
        raise ConsumerStoppedError
    if not fetcher._records:  # noqa: SLF001
        waiter = fetcher._create_fetch_waiter()  # noqa: SLF001
        pending = [waiter] if interrupt is None else [waiter, interrupt]
        try:
            await asyncio.wait(pending, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiter.cancel()
    return _drain(fetcher)


def _drain(fetcher: Any) -> list[FetchedBatches]:  # noqa: ANN401  # aiokafka has no type for it
    drained: list[FetchedBatches] = []
    for partition, result in list(fetcher._records.items()):  # noqa: SLF001
        if not isinstance(result, FetchResult):
            if drained:
                break
            _release(fetcher, partition)
            result.check_raise()
        try:
            batches = _valid_batches(result) if result.check_assignment(partition) else None
        except CorruptRecordException as error:
            if not drained:
                raise
            # The fetched result is consumed: the next poll must not continue after the fault.
            fetcher._records[partition] = FetchError(error=error, backoff=0)  # noqa: SLF001
            break
        if batches is not None:
            result._update_position()  # noqa: SLF001
            next_ = result._partition_records.next_fetch_offset  # noqa: SLF001
            drained.append(FetchedBatches(partition, next_, chain.from_iterable(_release_each(batches))))
        _release(fetcher, partition)
    return drained


def _release_each(batches: list[Any]) -> Iterator[Any]:
    """Yield the batches and drop each one: reading decompresses it to several times its size."""
    batches.reverse()
    while batches:
        yield batches.pop()


def _valid_batches(result: Any) -> list[Any]:  # noqa: ANN401
    partition = result._partition_records  # noqa: SLF001
    source = partition._records  # noqa: SLF001
    batches: list[Any] = []
    while source.has_next():
        batch = source.next_batch()
        if not batch.validate_crc():
            if batches:
                # The batches before it are delivered; the next fetch begins with it.
                break
            raise CorruptRecordException(f"invalid checksum in {partition._tp}")  # noqa: SLF001
        partition.next_fetch_offset = batch.next_offset
        if not batch.is_control_batch:
            batches.append(batch)
    return batches


def _release(fetcher: Any, partition: TopicPartition) -> None:  # noqa: ANN401
    """Let the fetcher request more of the partition."""
    del fetcher._records[partition]  # noqa: SLF001
    fetcher._notify(fetcher._wait_consume_future)  # noqa: SLF001


def refresh_leaders(consumer: AIOKafkaConsumer) -> None:
    """Refresh the leaders: a hung broker keeps its connections open."""
    consumer._client.force_metadata_update()  # noqa: SLF001


async def abandon(consumer: AIOKafkaConsumer) -> None:
    """Cancel the tasks and close the connections of a consumer whose ``stop()`` hangs (aiokafka #1013)."""
    tasks = [
        getattr(consumer._fetcher, "_fetch_task", None),  # noqa: SLF001
        getattr(consumer._coordinator, "_coordination_task", None),  # noqa: SLF001
        getattr(consumer._coordinator, "_heartbeat_task", None),  # noqa: SLF001
        getattr(consumer._coordinator, "_commit_refresh_task", None),  # noqa: SLF001
        getattr(consumer._coordinator, "_reset_committed_task", None),  # noqa: SLF001
    ]
    for task in tasks:
        if task is not None:
            task.cancel()
    with contextlib.suppress(Exception):
        async with asyncio.timeout(1):
            await consumer._client.close()  # noqa: SLF001
