"""Reads the topic of the partition map from its beginning and follows it; committed records only."""

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, Final, NamedTuple

import structlog
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import KafkaError, OffsetOutOfRangeError

from diem.errors import DiemError
from diem.kafka.client import close_all, connected_client
from diem.kafka.config import KafkaOptions
from diem.kafka.errors import KafkaUnavailable
from diem.kafka.metadata import describe
from diem.process.backoff import Backoff
from diem.protocol.compatibility import OURS
from diem.protocol.partition_map import START_KEY, MapBuilder, PartitionMap

CONSUMER: Final[dict[str, Any]] = {
    "group_id": None,
    "enable_auto_commit": False,
    # Epochs take effect atomically; an offset out of range is an error that restarts reading.
    "isolation_level": "read_committed",
    "auto_offset_reset": "none",
    "fetch_max_wait_ms": 500,
    "request_timeout_ms": 4000,
}
"""Settings of the consumer (docs/internals.md section 3)."""
REQUEST_TIMEOUT_S: Final = 5.0
READ_TIMEOUT_S: Final = 15.0
POLL_MS: Final = 1000
CHECK_EVERY_S: Final = 5.0
"""Interval of checks for a replaced topic."""
MISSING_POLL_S: Final = 1.0
STALE_AFTER_S: Final = 20.0
"""Maximum age of an unconfirmed map in use: less than phase MOVE, after which old owners receive no updates."""
RETRY_BASE_S: Final = 0.2
RETRY_CAP_S: Final = 3.0


class MapRecord(NamedTuple):
    """The latest record of one key."""

    offset: int
    value: bytes | None


class MapReader:
    """The partition map and its records, kept current by :meth:`run`.

    ``on_changed()`` is called after records were applied and after the topic was replaced. Memory is bounded by the
    keys of the topic: endpoints with entries, acknowledgements and the head.
    """

    def __init__(self, options: KafkaOptions, on_changed: Callable[[], None] = lambda: None) -> None:
        self.on_changed = on_changed
        self.records: dict[bytes, MapRecord] = {}
        """The latest record of every key."""
        self.next = 0
        """The next offset to read."""
        self.source: str | None = None
        """The topic's id; None while it does not exist."""
        self.caught_up = False
        """Everything that the topic had when reading began was applied."""
        self.is_cut = False
        """The topic has lost records that this reader has, and that another one would need."""
        self.why_not: str | None = "Kafka has not been queried yet"
        """The fault of Kafka or the topic; None if there is none."""
        self._options = options
        self._topic = options.names.partition_map
        self._builder = MapBuilder()
        self._missing = self._has_reread = False
        self.begin = 0
        """The first offset of the topic: above 0 only if records were deleted, because compaction leaves it."""
        self._backoff = Backoff(RETRY_BASE_S, RETRY_CAP_S)
        self._confirmed_at = -math.inf

    @property
    def map(self) -> PartitionMap | None:
        """The map; the last known one while the topic is missing or has no head."""
        return self._builder.map

    @property
    def is_complete(self) -> bool:
        """True if the topic, read from its beginning and followed since, has the whole map."""
        return self._builder.is_complete

    def count_after(self, records: Mapping[bytes, bytes | None]) -> int:
        """Return the number of entries after ``records``."""
        return self._builder.count_after(records)

    def is_current(self) -> bool:
        """Return whether everything committed until :data:`STALE_AFTER_S` ago was applied, as confirmed by the leader.

        False while the topic lacks records of the map: the last known map may be outdated.
        """
        confirmed = asyncio.get_running_loop().time() - self._confirmed_at <= STALE_AFTER_S
        return confirmed and self.is_complete and self._builder.needs is None

    async def run(self) -> None:
        """Follow the topic until cancelled, through outages of Kafka; await a missing topic."""
        while True:
            try:
                await self._follow()
            except OffsetOutOfRangeError:
                # The log was truncated: the head tells whether the rest is the whole map.
                self._start_over(self.source)
            except (KafkaError, DiemError, OSError, TimeoutError) as error:
                self.why_not = str(error) or type(error).__name__
            await asyncio.sleep(self._backoff.next_delay())

    async def read(self) -> None:
        """Read the topic to its current end, if it exists.

        Raises:
            KafkaUnavailable: it cannot be read now.
        """
        try:
            async with asyncio.timeout(READ_TIMEOUT_S):
                await self._follow(once=True)
        except (KafkaError, OSError, TimeoutError) as error:
            reason = f"topic {self._topic} cannot be read: {type(error).__name__} {error}".strip()
            raise KafkaUnavailable(self._options.bootstrap_servers, reason) from error

    async def _follow(self, *, once: bool = False) -> None:
        """Apply records over one connection until the topic is replaced; with ``once``, to its current end."""
        loop = asyncio.get_running_loop()
        async with connected_client(self._options) as client:
            while (alive := await self._check_topic(client)) is None:
                if once:
                    return
                await asyncio.sleep(MISSING_POLL_S)
            source, poll_at = self.source, loop.time() + CHECK_EVERY_S
            async with _consuming(replace(self._options, bootstrap_servers=alive)) as consumer:
                requested_at = loop.time()
                part, end_ = await self._begin(consumer)
                # An empty topic would be known as read only after a whole poll.
                self._apply((), self.next or self.begin, end_)
                while not (once and self.caught_up):
                    fetched = await consumer.getmany(part, timeout_ms=POLL_MS)
                    self._apply(fetched.get(part, ()), await consumer.position(part), end_)
                    if not once and self._has_other_entries():
                        return
                    self._set_fault_of_head()
                    self._backoff.reset()
                    if self.next >= end_:
                        self._confirmed_at = requested_at
                    if loop.time() >= poll_at:
                        poll_at = loop.time() + (
                            MISSING_POLL_S if await self._check_topic(client) is None else CHECK_EVERY_S
                        )
                        if self.source != source:
                            return
                        await self._compare_begin(consumer, part)
                        if self.next >= end_:
                            requested_at, end_ = loop.time(), await _end_of(consumer, part)
                        elif loop.time() - requested_at > STALE_AFTER_S:
                            # The library would retry forever without an error.
                            raise TimeoutError(f"records of topic {self._topic} do not arrive")

    async def _check_topic(self, client: AIOKafkaClient) -> str | None:
        """Return the live brokers, None if the topic does not exist; start over if it was replaced."""
        cluster = await describe(client, self._topic)
        found = cluster.topics.get(self._topic)
        if found is None or not found.partitions:
            self.why_not = f"topic {self._topic} does not exist"
            # Counts as missing the second time only: a broker just started may not know the topic yet.
            if self._missing and self.source is not None:
                self._start_over(None)
            self._missing = True
            return None
        self._missing = False
        if found.id != self.source:
            self._start_over(found.id)
        # Live ones only: connecting to a hung broker first would delay the consumer.
        return ",".join(f"{host}:{port}" for host, port in cluster.brokers.values())

    def _has_other_entries(self) -> bool:
        """Start over, once, if the head's entries differ from those present: the topic has lost some."""
        if self.is_complete:
            self._has_reread = False
        elif self.caught_up and not self._has_reread:
            self._has_reread = True
            self._start_over(self.source)
            return True
        return False

    def _set_fault_of_head(self) -> None:
        """Report a head that this process cannot apply; the previous map stays in force, but is not current."""
        needs, before, self.why_not = self._builder.needs, self.why_not, None
        if needs is not None:
            self.why_not = (
                f"the partition map needs version {needs} of the internal protocol, this process speaks {OURS}: "
                "replace this process first"
            )
        elif self.caught_up and not self.is_complete and (self.records or self.map is not None):
            self.why_not = f"records of the partition map are missing in topic {self._topic}: the publisher writes them"
        if self.why_not is not None and self.why_not != before:
            structlog.get_logger("kafka").error(self.why_not)

    def _start_over(self, source: str | None) -> None:
        before = self.source
        self.source, self.next, self.caught_up, self.records = source, 0, False, {}
        self.is_cut, self.begin = False, 0
        if source != before:
            # Only here: within one topic, older epochs remain invalid (I7).
            self._builder.apply(START_KEY, None)
        else:
            self._builder.restart()
        self.on_changed()

    async def _begin(self, consumer: AIOKafkaConsumer) -> tuple[TopicPartition, int]:
        """Seek to the next offset; return the partition and the end of its committed records."""
        part = TopicPartition(self._topic, 0)
        consumer.assign([part])
        await self._compare_begin(consumer, part)
        end_ = await _end_of(consumer, part)
        consumer.seek(part, self.next or self.begin)
        return part, end_

    async def _compare_begin(self, consumer: AIOKafkaConsumer, part: TopicPartition) -> None:
        """Detect a truncated log."""
        async with asyncio.timeout(REQUEST_TIMEOUT_S):
            begin = (await consumer.beginning_offsets([part]))[part]
        if begin != self.begin:
            self.begin = begin
            self.is_cut = any(record.offset < begin for record in self.records.values() if record.value)
            self.on_changed()

    def _apply(self, records: Iterable[Any], next_: int, end_: int) -> None:
        is_applied = False
        for record in records:
            is_applied = True
            key = record.key or b""
            self.records[key] = MapRecord(record.offset, record.value)
            self._builder.apply(key, record.value)
        # Beyond the last record: transaction markers occupy offsets, too.
        self.next = next_
        if is_applied or (not self.caught_up and next_ >= end_):
            self.caught_up = self.caught_up or next_ >= end_
            self.on_changed()


async def _end_of(consumer: AIOKafkaConsumer, part: TopicPartition) -> int:
    """Return the end of the committed records of a partition."""
    async with asyncio.timeout(REQUEST_TIMEOUT_S):
        end_: int = (await consumer.end_offsets([part]))[part]
    return end_


async def read_map(options: KafkaOptions) -> PartitionMap | None:
    """Return the current map; None without a topic or head, or if the topic lacks part of the map.

    Raises:
        KafkaUnavailable: it cannot be read now.
        ConfigurationError: the options cannot be used.
    """
    reader = MapReader(options)
    await reader.read()
    return reader.map if reader.is_complete else None


@asynccontextmanager
async def _consuming(options: KafkaOptions) -> AsyncIterator[AIOKafkaConsumer]:
    consumer = AIOKafkaConsumer(client_id=f"{options.topic_prefix}map-reader", **CONSUMER, **options.client_arguments())
    try:
        async with asyncio.timeout(REQUEST_TIMEOUT_S):
            await consumer.start()
        yield consumer
    finally:
        await close_all(consumer.stop)
