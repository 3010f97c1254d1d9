"""Thin shell over Kafka's client for a source: which partitions there are, their bounds, and their records.

The consumer has no group: which process reads is decided by the store, which has one owner, and from where by its
checkpoints. Uses internals of aiokafka (0.14).
"""

import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, NamedTuple

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import OffsetOutOfRangeError

from diem.kafka.client import close_all
from diem.kafka.config import KafkaOptions
from diem.kafka.metadata import describe
from services.data.sources.kafka.positions import PartitionBounds, SourcePartition
from services.data.sources.kafka.table import KafkaTable
from services.data.sources.records.attempts import InputFailed

MAX_PARTITIONS: Final = 10_000
REQUEST_TIMEOUT_MS: Final = 10_000
FETCH_WAIT_MS: Final = 100
"""A broker without new records answers after this time. A partition whose records were not taken yet is left out of a
request, and so waits for as long at most."""
FETCHED_BYTES: Final = 16 * 1024 * 1024
"""Of one answer; the client has one answer of each broker, and the records that are being applied."""
PARTITION_BYTES: Final = 1024 * 1024
MIN_PARTITION_BYTES: Final = 64 * 1024
RECORDS: Final = 2000
"""Maximum number of records taken at once, whatever their compression."""
STALLED_S: Final = 10.0
"""Time without an answer for a partition after which the connection is opened anew."""


class TopicLayout(NamedTuple):
    """The partitions that can be read, with the ids of their topics, and what is missing."""

    topics: Mapping[SourcePartition, str]
    missing: Sequence[str] = ()
    """Topics that do not exist, and partitions without a leader."""


async def find_layout(client: AIOKafkaClient, table: KafkaTable) -> TopicLayout:
    """Return the partitions of a source's topics.

    Raises:
        KafkaUnavailable: no broker answers, or this user has no rights to a topic.
        InputFailed: there are more than :data:`MAX_PARTITIONS`.
    """
    cluster = await describe(client, *table.topics)
    found = {name: topic for name, topic in cluster.topics.items() if table.covers(name) and is_shown(table, name)}
    parts = {
        SourcePartition(name, number): (topic.id, part.leader)
        for name, topic in sorted(found.items())
        for number, part in sorted(topic.partitions.items())
    }
    if len(parts) > MAX_PARTITIONS:
        raise InputFailed(f"the topics have {len(parts)} partitions, at most are {MAX_PARTITIONS}: use several sources")
    missing = [f"there is no topic {name}" for name in table.topics if name not in found]
    if table.pattern is not None and not found:
        missing = [f"no topic matches {table.pattern!r}"]
    missing += [f"{partition.part} has no leader" for partition, (_, leader) in parts.items() if leader < 0]
    return TopicLayout({partition: topic_id for partition, (topic_id, leader) in parts.items() if leader >= 0}, missing)


def is_shown(table: KafkaTable, topic: str) -> bool:
    """Return whether a topic is no internal one, such as ``__consumer_offsets``, which a pattern does not match."""
    return table.pattern is None or not topic.startswith("__")


class PartitionReader:
    """Reads the records of partitions."""

    def __init__(self, consumer: AIOKafkaConsumer, partitions: Iterable[SourcePartition]) -> None:
        self._consumer = consumer
        self._partitions = {TopicPartition(*each): each for each in partitions}
        self._idle_since = 0.0

    async def bounds(
        self, topics: Mapping[SourcePartition, str], start: str | int
    ) -> dict[SourcePartition, PartitionBounds]:
        """Return the bounds of partitions; ``topics``: ids; ``start``: earliest, latest, or a time in Unix ms."""
        if not self._partitions:
            return {}
        begins = await self._consumer.beginning_offsets([*self._partitions])
        ends = await self._consumer.end_offsets([*self._partitions])
        starts = ends if start == "latest" else begins
        if isinstance(start, int):
            found = await self._consumer.offsets_for_times(dict.fromkeys(self._partitions, start))
            starts = {each: ends[each] if (at := found.get(each)) is None else at.offset for each in self._partitions}
        return {
            partition: PartitionBounds(topics[partition], begins[each], ends[each], starts[each])
            for each, partition in self._partitions.items()
        }

    def seek(self, offsets: Mapping[SourcePartition, int]) -> None:
        """Read partitions from offsets, and no others."""
        self._partitions = {each: partition for each, partition in self._partitions.items() if partition in offsets}
        self._consumer.assign([*self._partitions])
        for each, partition in self._partitions.items():
            self._consumer.seek(each, offsets[partition])
        self._idle_since = time.time()

    async def read(self, wait_ms: int) -> Mapping[SourcePartition, Sequence[Any]] | None:
        """Return new records by partition, after ``wait_ms`` at most; None: an offset is out of range now.

        Raises:
            InputFailed: brokers have not answered for :data:`STALLED_S`.
            KafkaError: they refuse.
        """
        try:
            found = await self._consumer.getmany(timeout_ms=wait_ms, max_records=RECORDS)
        except OffsetOutOfRangeError:
            return None
        now = time.time()
        if found:
            self._idle_since = now
        elif now - self._idle_since > STALLED_S:
            self._check_answers(now)
        return {self._partitions[each]: records for each, records in found.items()}

    def _check_answers(self, now: float) -> None:
        for each, partition in self._partitions.items():
            if (self._consumer.last_poll_timestamp(each) or 0) / 1000 < now - STALLED_S:
                raise InputFailed(f"{partition.part}: no broker has sent anything for {STALLED_S:g} s")

    async def lag(self) -> int | None:
        """Return the number of offsets that are still to be read, up to the first open transaction; None: unknown."""
        lag = 0
        for each in self._partitions:
            end = self._consumer.last_stable_offset(each)
            if end is None or end < 0:
                end = self._consumer.highwater(each)
            if end is None:
                return None
            lag += max(0, end - await self._consumer.position(each))
        return lag


@asynccontextmanager
async def open_reader(options: KafkaOptions, partitions: Sequence[SourcePartition]) -> AsyncIterator[PartitionReader]:
    """Connect a consumer of committed records for partitions.

    Raises:
        KafkaError, TimeoutError: no broker can be reached.
    """
    consumer = AIOKafkaConsumer(
        group_id=None,
        auto_offset_reset="none",
        isolation_level="read_committed",
        fetch_max_wait_ms=FETCH_WAIT_MS,
        fetch_max_bytes=FETCHED_BYTES,
        max_partition_fetch_bytes=max(
            MIN_PARTITION_BYTES, min(PARTITION_BYTES, 2 * FETCHED_BYTES // max(1, len(partitions)))
        ),
        request_timeout_ms=REQUEST_TIMEOUT_MS,
        retry_backoff_ms=100,
        metadata_max_age_ms=10_000,
        **options.client_arguments(),
    )
    try:
        await consumer.start()
        # Else each topic is looked up by a round of its own.
        await consumer._client.set_topics({each.topic for each in partitions})  # noqa: SLF001  # no public way
        yield PartitionReader(consumer, partitions)
    finally:
        await close_all(consumer.stop)
