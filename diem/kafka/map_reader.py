"""Reads the topic of the partition map from its start and follows it: what was committed there, and nothing else."""

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, Final, NamedTuple

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import KafkaError, OffsetOutOfRangeError

from diem.errors import DiemError
from diem.kafka.client import close_all, connected_client
from diem.kafka.config import KafkaOptions
from diem.kafka.errors import KafkaUnavailable
from diem.kafka.metadata import describe
from diem.process.backoff import full_jitter
from diem.protocol.partition_map import START_KEY, MapBuilder, PartitionMap

CONSUMER: Final[dict[str, Any]] = {
    "group_id": None,
    "enable_auto_commit": False,
    # An epoch counts when all of it is there; an offset out of range is an error, after which reading starts over.
    "isolation_level": "read_committed",
    "auto_offset_reset": "none",
    "fetch_max_wait_ms": 500,
    "request_timeout_ms": 4000,
}
"""Settings of the consumer (docs/protocol.md section 3)."""
ASK_WITHIN_S: Final = 5.0
READ_WITHIN_S: Final = 15.0
POLL_MS: Final = 1000
POLL_EVERY_S: Final = 5.0
"""Between two looks whether the topic is still the same."""
MISSING_POLL_S: Final = 1.0
STALE_AFTER_S: Final = 20.0
"""Beyond which nobody should serve by a map that was not confirmed: less than MOVE lasts, after which nothing comes to
where an endpoint was."""
RETRY_BASE_S: Final = 0.2
RETRY_CAP_S: Final = 3.0


class MapRecord(NamedTuple):
    """The latest record of one key."""

    offset: int
    value: bytes | None


class MapReader:
    """Knows the partition map and its records. :meth:`run` does the work.

    ``on_changed()`` is called after records were taken, and when the topic is another one. What is held is bounded by
    the keys of the topic: endpoints with entries of their own, acknowledgements and the head.
    """

    def __init__(self, options: KafkaOptions, on_changed: Callable[[], None] = lambda: None) -> None:
        self.on_changed = on_changed
        self.records: dict[bytes, MapRecord] = {}
        """The latest record of every key."""
        self.next = 0
        """The offset up to which records were taken."""
        self.source: str | None = None
        """The topic's id; None while it is not there."""
        self.caught_up = False
        """Return whether everything was taken that was there when reading began."""
        self.why_not: str | None = "Kafka has not been asked yet"
        """The fault of Kafka or the topic; None if there is none."""
        self._options = options
        self._topic = options.names.partition_map
        self._builder = MapBuilder()
        self._missing = False
        self._attempt = 0
        self._confirmed_at = -math.inf

    @property
    def map(self) -> PartitionMap | None:
        """The map; the last one that was known while the topic is away, or is another one without a head."""
        return self._builder.map

    def is_current(self) -> bool:
        """Return whether all was taken that had been committed :data:`STALE_AFTER_S` ago, by the word of the leader."""
        return asyncio.get_running_loop().time() - self._confirmed_at <= STALE_AFTER_S

    async def run(self) -> None:
        """Follow the topic until cancelled, whatever becomes of Kafka; a topic that is not there is waited for."""
        while True:
            try:
                await self._follow()
            except OffsetOutOfRangeError:
                # The log was cut: what it holds now says everything.
                self._start_over(self.source)
            except (KafkaError, DiemError, OSError, TimeoutError) as error:
                self.why_not = str(error) or type(error).__name__
            await asyncio.sleep(full_jitter(self._attempt, RETRY_BASE_S, RETRY_CAP_S))
            self._attempt += 1

    async def read(self) -> None:
        """Take what is there now, once, if the topic is there.

        Raises:
            KafkaUnavailable: it cannot be read now.
        """
        try:
            async with asyncio.timeout(READ_WITHIN_S):
                await self._follow(once=True)
        except (KafkaError, OSError, TimeoutError) as error:
            reason = f"topic {self._topic} cannot be read: {type(error).__name__} {error}".strip()
            raise KafkaUnavailable(self._options.bootstrap_servers, reason) from error

    async def _follow(self, *, once: bool = False) -> None:
        """Take records over one connection until the topic is another one; with ``once`` until all were taken."""
        loop = asyncio.get_running_loop()
        async with connected_client(self._options) as client:
            while (alive := await self._check_topic(client)) is None:
                if once:
                    return
                await asyncio.sleep(MISSING_POLL_S)
            source, poll_at = self.source, loop.time() + POLL_EVERY_S
            async with _consuming(replace(self._options, bootstrap_servers=alive)) as consumer:
                requested_at = loop.time()
                part, end_ = await self._begin(consumer)
                while not (once and self.caught_up):
                    fetched = await consumer.getmany(part, timeout_ms=POLL_MS)
                    self._take(fetched.get(part, ()), await consumer.position(part), end_)
                    self.why_not, self._attempt = None, 0
                    if self.next >= end_:
                        self._confirmed_at = requested_at
                    if loop.time() >= poll_at:
                        poll_at = loop.time() + (
                            MISSING_POLL_S if await self._check_topic(client) is None else POLL_EVERY_S
                        )
                        if self.source != source:
                            return
                        if self.next >= end_:
                            requested_at, end_ = loop.time(), await _end_of(consumer, part)
                        elif loop.time() - requested_at > STALE_AFTER_S:
                            # The library tries again for ever, and says so to nobody.
                            raise TimeoutError(f"records of topic {self._topic} do not arrive")

    async def _check_topic(self, client: AIOKafkaClient) -> str | None:
        """The brokers that are alive, None if the topic is not there; starts over when it is another one."""
        cluster = await describe(client, self._topic)
        found = cluster.topics.get(self._topic)
        if found is None or not found.partitions:
            self.why_not = f"topic {self._topic} does not exist"
            # A broker that has just started may not know a topic yet: it is missing when that is said twice.
            if self._missing and self.source is not None:
                self._start_over(None)
            self._missing = True
            return None
        self._missing = False
        if found.id != self.source:
            self._start_over(found.id)
        # A broker that hangs would hold up whoever connects to it first.
        return ",".join(f"{host}:{port}" for host, port in cluster.brokers.values())

    def _start_over(self, source: str | None) -> None:
        before = self.source
        self.source, self.next, self.caught_up, self.records = source, 0, False, {}
        if source != before:
            # In the same topic, an older epoch stays an older one (I7).
            self._builder.apply(START_KEY, None)
        self.on_changed()

    async def _begin(self, consumer: AIOKafkaConsumer) -> tuple[TopicPartition, int]:
        """Go to where reading goes on; returns the partition and its end, as far as it was committed."""
        part = TopicPartition(self._topic, 0)
        consumer.assign([part])
        async with asyncio.timeout(ASK_WITHIN_S):
            begin = (await consumer.beginning_offsets([part]))[part]
        end_ = await _end_of(consumer, part)
        consumer.seek(part, self.next or begin)
        return part, end_

    def _take(self, records: Iterable[Any], next_: int, end_: int) -> None:
        is_applied = False
        for record in records:
            is_applied = True
            key = record.key or b""
            self.records[key] = MapRecord(record.offset, record.value)
            self._builder.apply(key, record.value)
        # Beyond the last record: the marks that end transactions have offsets, too.
        self.next = next_
        if is_applied or (not self.caught_up and next_ >= end_):
            self.caught_up = self.caught_up or next_ >= end_
            self.on_changed()


async def _end_of(consumer: AIOKafkaConsumer, part: TopicPartition) -> int:
    """The end of a partition, as far as it is committed."""
    async with asyncio.timeout(ASK_WITHIN_S):
        end_: int = (await consumer.end_offsets([part]))[part]
    return end_


async def read_map(options: KafkaOptions) -> PartitionMap | None:
    """The map as it stands now; None without a topic, or without a head.

    Raises:
        KafkaUnavailable: it cannot be read now.
        ConfigurationError: the options cannot be used.
    """
    reader = MapReader(options)
    await reader.read()
    return reader.map


@asynccontextmanager
async def _consuming(options: KafkaOptions) -> AsyncIterator[AIOKafkaConsumer]:
    consumer = AIOKafkaConsumer(client_id=f"{options.topic_prefix}map-reader", **CONSUMER, **options.client_arguments())
    try:
        async with asyncio.timeout(ASK_WITHIN_S):
            await consumer.start()
        yield consumer
    finally:
        await close_all(consumer.stop)
