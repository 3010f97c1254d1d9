"""A reader whose log was cut, or has lost its end, is sent heartbeats once it has everything, without a later write.

Nor does one miss anything of which the tombstones were compacted away meanwhile.

The publisher, the bridge and the broker are real; the store is in memory. A log is cut while the reader is away.
"""

import asyncio
import contextlib
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from bridge.partition_state import PartitionState
from diem.kafka.client import admin_client
from diem.kafka.config import KafkaOptions
from diem.kafka.map_reader import MapReader
from diem.kafka.map_writer import write_map
from diem.kafka.topic_config import UPDATES_CONFIG
from diem.protocol.partition_map import HOT, Entry, Head, PartitionMap, Phase, encode_entry
from diem.protocol.partitioners import partition_of
from diem.protocol.watermark import LogProof
from services.data.publisher import Publisher, forgetting, session
from tests.support import topics
from tests.support.bridge import FeedRecorder, running_bridge
from tests.support.local_cluster import LocalCluster
from tests.support.patience import PATIENCE_S, until
from tests.support.published import MemoryStore, publishing, records
from tests.support.required import in_cluster

pytestmark = pytest.mark.takes(20)

ENDPOINTS = tuple(f"/e/{n}" for n in range(40))
PARTITIONS = 2


class Reader(FeedRecorder):
    """Counts the heartbeats that come while it lacks something of the store."""

    def __init__(self, store: MemoryStore) -> None:
        super().__init__()
        self.store = store
        self.false_heartbeats = 0

    def heartbeat(self) -> None:
        super().heartbeat()
        self.false_heartbeats += self.lacks_something

    @property
    def lacks_something(self) -> bool:
        return {name: version for name, (version, _) in self.state.retained.items()} != self.store.versions


@pytest.fixture
def options(own_broker_options: KafkaOptions, monkeypatch: pytest.MonkeyPatch) -> KafkaOptions:
    # A reader's position follows the watermarks.
    monkeypatch.setattr(session, "WATERMARK_EVERY_S", 0.2)
    return replace(own_broker_options, partitions=PARTITIONS)


Fault = Callable[[LocalCluster, KafkaOptions], Awaitable[None]]


async def delete_records(_broker: LocalCluster, options: KafkaOptions) -> None:
    """Trim both topics to their ends."""
    await topics.delete_records(options, *options.names.log)


async def recreate(_broker: LocalCluster, options: KafkaOptions) -> None:
    """Delete the topic; the publisher creates it again."""
    async with admin_client(options) as admin:
        await admin.delete_topics([options.names.updates])


async def restore_a_replica(broker: LocalCluster, options: KafkaOptions) -> None:
    """Put back the logs of the broker as they were, as from a copy of its disk."""
    broker.kill(1)
    for log in _logs(broker, options):
        shutil.rmtree(log)
        shutil.copytree(_copies(broker) / log.name, log)
    await broker.restart(1)


def _logs(broker: LocalCluster, options: KafkaOptions) -> list[Path]:
    return [path for path in (broker.directory / "kafka-1" / "data").iterdir() if options.names.updates in path.name]


def _copies(broker: LocalCluster) -> Path:
    return broker.directory / "copies"


async def copy_the_logs(broker: LocalCluster, options: KafkaOptions) -> None:
    """Copy the logs of the updates, while the broker is down."""
    broker.kill(1)
    for log in _logs(broker, options):
        shutil.copytree(log, _copies(broker) / log.name)
    await broker.restart(1)


@contextlib.asynccontextmanager
async def reading(
    options: KafkaOptions, directory: Path, store: MemoryStore, prepare: Callable[[], Awaitable[None]] | None = None
) -> AsyncIterator[tuple[Reader, Callable[[], contextlib.AbstractAsyncContextManager[object]], Publisher]]:
    """A publisher and a bridge, whose reader has everything, and is away; ``prepare`` is called before it reads."""
    store.put(*ENDPOINTS)
    async with (
        publishing(store, options) as publisher,
        running_bridge(directory, options, watermarks=True) as running,
    ):
        await until(lambda: publisher.publishing)
        if prepare:
            await prepare()
        reader = Reader(store)
        store.put(*ENDPOINTS[:20])
        publisher.changed()
        async with running.reading(reader):
            await until(
                lambda: reader.heartbeats and not reader.lacks_something and all(reader.state.positions.values())
            )
        # What it misses.
        store.put(*ENDPOINTS)
        publisher.changed()
        await until(lambda: publisher.lag == 0)
        reader.false_heartbeats = 0
        yield reader, lambda: running.reading(reader), publisher


FAULTS = [
    delete_records,
    recreate,
    pytest.param(restore_a_replica, marks=in_cluster("it restarts its broker twice, as test_log_put_back does")),
]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
async def test_no_heartbeat_before_the_reader_has_everything_again(
    fault: Fault, own_broker: LocalCluster, options: KafkaOptions, tmp_path: Path
) -> None:
    store = MemoryStore()
    prepare = partial(copy_the_logs, own_broker, options) if fault is restore_a_replica else None
    async with reading(options, tmp_path, store, prepare) as (reader, returning, _):
        await fault(own_broker, options)
        heartbeats = len(reader.heartbeats)
        async with returning():
            await until(lambda: len(reader.heartbeats) >= heartbeats + 3)
            assert not reader.lacks_something
        assert reader.false_heartbeats == 0


async def test_a_new_reader_of_a_cut_log_gets_no_heartbeat_before_everything_was_sent_again(
    own_broker: LocalCluster, options: KafkaOptions, tmp_path: Path
) -> None:
    store = MemoryStore()
    async with reading(options, tmp_path, store) as (reader, returning, _):
        await delete_records(own_broker, options)
        reader.__init__(store)  # type: ignore[misc]  # a server that has started anew
        async with returning():
            await until(lambda: len(reader.heartbeats) >= 3)
        assert (reader.lacks_something, reader.false_heartbeats) == (False, 0)


async def following(reader: MapReader, epoch: int) -> PartitionMap:
    """Follow the map until an epoch; return it. The reader is away afterwards."""
    task = asyncio.create_task(reader.run())
    await until(lambda: reader.map is not None and reader.map.head.epoch == epoch)
    task.cancel()
    await asyncio.wait([task])
    assert reader.map is not None
    return reader.map


async def compact_in_moments(options: KafkaOptions) -> None:
    """Have the broker compact our topics at once, and keep no tombstone."""
    quick = {"segment.ms": "100", "max.compaction.lag.ms": "100", "min.cleanable.dirty.ratio": "0.0"}
    for topic in options.names.topics:
        await topics.alter_topic(options, topic, {**UPDATES_CONFIG, **quick, "delete.retention.ms": "1"})
    async with admin_client(options) as admin:
        await admin.alter_configs([ConfigResource(ConfigResourceType.BROKER, "1", {"log.cleaner.backoff.ms": "100"})])


async def until_forgotten(store: MemoryStore, publisher: Publisher, name: str) -> None:
    """Delete an endpoint, and wait until the store has forgotten it."""
    store.put(name, gone=True)
    publisher.changed()
    await until(lambda: store.forgotten == store.changes.sequence)
    assert name.encode() not in store.versions


async def test_a_reader_away_for_longer_than_tombstones_are_kept_misses_nothing(
    own_broker: LocalCluster, options: KafkaOptions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is one of a forgotten endpoint, and of a move in the partition that the endpoint has left."""
    monkeypatch.setattr(forgetting, "FORGET_EVERY_S", 0.2)
    store = MemoryStore()
    moved, deleted, unpublished = b"/e/1", b"/e/2", b"/nowhere"
    home = partition_of(moved, PARTITIONS)
    move = {moved: encode_entry(Entry(home, 1 - home))}
    mapping = MapReader(options)

    async def prepare() -> None:
        await write_map(options, {unpublished: encode_entry(Entry(HOT))}, Head(PARTITIONS, 1))
        await following(mapping, 1)

    async with reading(options, tmp_path, store, prepare) as (reader, returning, publisher):
        await compact_in_moments(options)
        await until_forgotten(store, publisher, deleted.decode())
        await write_map(options, {**move, unpublished: None}, Head(PARTITIONS, 2, Phase.RETIRE))
        async with asyncio.timeout(PATIENCE_S):
            for name in (moved, deleted):
                while name in await records(options, options.names.updates, partition_of(name, PARTITIONS)):
                    await asyncio.sleep(0.1)
            epoch = 2
            while (await records(options, options.names.partition_map, 0)).get(unpublished, b"") != b"":
                # Begin another segment: the last one is not compacted.
                epoch += 1
                await write_map(options, {moved: encode_entry(Entry(1 - home))}, Head(PARTITIONS, epoch))
                await asyncio.sleep(0.1)
        heartbeats = len(reader.heartbeats)
        async with returning():
            await until(lambda: len(reader.heartbeats) >= heartbeats + 3)
            assert (reader.lacks_something, reader.false_heartbeats) == (False, 0)
            store.put(deleted.decode())
            await until_forgotten(store, publisher, "/e/3")
            await until(lambda: not reader.lacks_something)
        assert (await following(mapping, epoch)).entries.keys() == {moved}


async def test_the_rule_of_earlier_releases_is_caught(
    own_broker: LocalCluster, options: KafkaOptions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def open_anywhere(self: PartitionState, begin: int, end: int, now: float) -> None:
        """Start at the position, or where the log begins."""
        self.position = begin if self.position > end else max(self.position, begin)
        self.target = self.end = self.expected_offset = end
        self.answered_at = self.last_progress = now
        self.is_open = self.confirmed = True
        self.incarnation = self.incarnation or 1
        self.watermark_at = self.watermark_at or now

    def trust(self: PartitionState, _offset: int, _proof: LogProof | None, now: float) -> None:
        self.watermark_at = now

    # Else the publisher may have sent everything again before the first heartbeat.
    monkeypatch.setattr(session, "BOUNDS_EVERY_S", 3600.0)
    store = MemoryStore()
    async with reading(options, tmp_path, store) as (reader, returning, _):
        await delete_records(own_broker, options)
        monkeypatch.setattr(PartitionState, "open", open_anywhere)
        monkeypatch.setattr(PartitionState, "apply_watermark", trust)
        heartbeats = len(reader.heartbeats)
        async with returning():
            await until(lambda: len(reader.heartbeats) > heartbeats)
        assert reader.false_heartbeats
