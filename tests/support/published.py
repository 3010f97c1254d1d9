"""A publisher in the test's own event loop, and readers of its topics."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Collection

from aiokafka import AIOKafkaConsumer, TopicPartition

from diem.fanout.change_map import ChangeMap
from diem.kafka.config import KafkaOptions
from diem.kafka.topics import ensure
from diem.protocol.partition_map import HOT
from diem.protocol.update import GONE, UPDATE, WATERMARK_KEY, Change, encode, version_of
from services.data.publisher import Publisher
from services.data.store.tables import Cursor

START = 1_700_000_000_000


class MemoryStore:
    """An in-memory store for the publisher."""

    def __init__(self) -> None:
        self.changes = ChangeMap()
        self.cursor: Cursor | None = None
        self.ahead: list[tuple[str, int]] = []
        self.version_floor = 0
        self.forgotten = 0

    @property
    def expired(self) -> int:
        return max((change.sequence for change in self._gone), default=0)

    @property
    def _gone(self) -> list[Change]:
        return [change for change in self.changes.after(0, 100_000) if change.kind == GONE]

    def deleted(self, upto: int) -> list[bytes]:
        return [change.endpoint for change in self._gone if change.sequence <= upto]

    def release_deleted(self, upto: int, cursor: Cursor) -> None:
        """Forget at once."""
        self.forgotten, self.cursor = upto, cursor
        names = self.deleted(upto)
        self.version_floor = max([self.version_floor, *(self.versions[name] for name in names)])
        self.changes.remove(names)

    def keep_cursor(self, cursor: Cursor) -> None:
        self.cursor = cursor

    def log_is_ahead(self, endpoint: str, version: int) -> None:
        self.ahead.append((endpoint, version))

    def put(self, *names: str, data: bytes | None = None, gone: bool = False) -> None:
        for name in names:
            sequence = self.changes.sequence + 1
            version = START + sequence
            value = encode(name, version, version, gone=gone, data=data)
            self.changes.apply(Change(sequence, name.encode(), version, GONE if gone else UPDATE, value))

    @property
    def versions(self) -> dict[bytes, int]:
        return {change.endpoint: change.version for change in self.changes.after(0, 100_000)}


@contextlib.asynccontextmanager
async def publishing(store: MemoryStore, options: KafkaOptions, hot: Collection[str] = ()) -> AsyncIterator[Publisher]:
    publisher = Publisher(store, options, hot)
    task = asyncio.create_task(publisher.run())
    try:
        yield publisher
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def records(options: KafkaOptions, topic: str, partition: int) -> dict[bytes, bytes | None]:
    """Return the last record of every key that there is in a partition."""
    consumer = AIOKafkaConsumer(**options.client_arguments(), auto_offset_reset="earliest")
    await consumer.start()
    try:
        consumer.assign([part := TopicPartition(topic, partition)])
        end, found = (await consumer.end_offsets([part]))[part], dict[bytes, bytes | None]()
        while await consumer.position(part) < end:
            for record in (await consumer.getmany(part, timeout_ms=500)).get(part, []):
                found[record.key] = record.value
        return found
    finally:
        await consumer.stop()


async def everything(options: KafkaOptions) -> dict[tuple[str, int], dict[bytes, int]]:
    """Return the version of the last record of every key, by partition of updates, and of hot updates."""
    cluster = await ensure(options)
    consumer = AIOKafkaConsumer(**options.client_arguments(), auto_offset_reset="earliest")
    await consumer.start()
    try:
        parts = [TopicPartition(name, n) for name in options.names.log for n in cluster.topics[name].partitions]
        consumer.assign(parts)
        ends = await consumer.end_offsets(parts)
        found: dict[tuple[str, int], dict[bytes, int]] = {(part.topic, part.partition): {} for part in parts}
        for part in parts:
            while await consumer.position(part) < ends[part]:
                for record in (await consumer.getmany(part, timeout_ms=500)).get(part, []):
                    if record.value is None:
                        found[part.topic, part.partition].pop(record.key, None)
                    elif record.key != WATERMARK_KEY:
                        version = version_of(record.key, record.value)
                        assert version is not None
                        found[part.topic, part.partition][record.key] = version
        return found
    finally:
        await consumer.stop()


async def places(options: KafkaOptions, name: str) -> dict[int, int]:
    """Return the versions of an endpoint by partition; ``HOT`` is the topic of hot updates."""
    log = await everything(options)
    places = {HOT if topic == options.names.hot else number: found for (topic, number), found in log.items()}
    return {place: found[name.encode()] for place, found in places.items() if name.encode() in found}
