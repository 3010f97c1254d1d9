"""Batches that aiokafka's consumer has fetched, without its record objects: a third of the CPU time of ``getmany``.

``getmany`` walks each partition with a Python generator and makes a named tuple of eleven fields for every record, of
which a bridge needs three. The batches behind it are compiled code, and are read here instead. Only this module and
:mod:`bridge.member` look inside aiokafka (0.14); tests/integration/kafka/test_fetched.py holds it against ``getmany``.
"""

import asyncio
import contextlib
from collections.abc import Iterator
from itertools import chain
from typing import Any, NamedTuple

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.consumer.fetcher import FetchError, FetchResult
from aiokafka.errors import ConsumerStoppedError, CorruptRecordException

from bridge.records import Record


class FetchedBatches(NamedTuple):
    """What was fetched of one partition."""

    partition: TopicPartition
    next: int
    """The offset behind it, also when nothing is left of the records before it."""
    records: Iterator[Record]
    """May begin before the consumer's position: a batch of Kafka is fetched whole."""


async def poll(consumer: AIOKafkaConsumer, seconds: float) -> list[FetchedBatches]:
    """What was fetched and not taken yet, at most one entry for each partition; waits up to ``seconds`` for it.

    Raises:
        KafkaError: a partition cannot be read; it is raised when nothing else is left to take.
    """
    fetcher = consumer._fetcher  # noqa: SLF001
    if fetcher.error_future.done():
        raise ConsumerStoppedError
    if not fetcher._records:  # noqa: SLF001
        waiter = fetcher._create_fetch_waiter()  # noqa: SLF001
        try:
            await asyncio.wait([waiter], timeout=seconds)
        finally:
            waiter.cancel()
    return _take(fetcher)


def wake(consumer: AIOKafkaConsumer) -> None:
    """End a poll that is waiting."""
    fetcher = consumer._fetcher  # noqa: SLF001
    for waiter in tuple(fetcher._fetch_waiters):  # noqa: SLF001
        fetcher._notify(waiter)  # noqa: SLF001


def _take(fetcher: Any) -> list[FetchedBatches]:  # noqa: ANN401  # aiokafka has no type for it
    taken: list[FetchedBatches] = []
    for partition, result in list(fetcher._records.items()):  # noqa: SLF001
        if not isinstance(result, FetchResult):
            if taken:
                break
            _forget(fetcher, partition)
            result.check_raise()
        try:
            batches = _batches(result) if result.check_assignment(partition) else None
        except CorruptRecordException as error:
            if not taken:
                raise
            # Its reading is used up: the next poll must not go on behind the fault.
            fetcher._records[partition] = FetchError(error=error, backoff=0)  # noqa: SLF001
            break
        if batches is not None:
            result._update_position()  # noqa: SLF001
            next_ = result._partition_records.next_fetch_offset  # noqa: SLF001
            taken.append(FetchedBatches(partition, next_, chain.from_iterable(batches)))
        _forget(fetcher, partition)
    return taken


def _batches(result: Any) -> list[Any]:  # noqa: ANN401
    partition = result._partition_records  # noqa: SLF001
    source = partition._records  # noqa: SLF001
    batches: list[Any] = []
    while source.has_next():
        batch = source.next_batch()
        if not batch.validate_crc():
            if batches:
                # What is before it is taken, and the next fetch begins with it.
                break
            raise CorruptRecordException(f"invalid checksum in {partition._tp}")  # noqa: SLF001
        partition.next_fetch_offset = batch.next_offset
        if not batch.is_control_batch:
            batches.append(batch)
    return batches


def _forget(fetcher: Any, partition: TopicPartition) -> None:  # noqa: ANN401
    """Let the fetcher ask for more of the partition."""
    del fetcher._records[partition]  # noqa: SLF001
    fetcher._notify(fetcher._wait_consume_future)  # noqa: SLF001


def ask_who_leads(consumer: AIOKafkaConsumer) -> None:
    """Have the consumer learn the leaders anew: a broker that hangs keeps its connection, and does not say so."""
    consumer._client.force_metadata_update()  # noqa: SLF001


async def abandon(consumer: AIOKafkaConsumer) -> None:
    """End the tasks and connections of a consumer whose ``stop()`` did not come back (aiokafka #1013)."""
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
