"""A reader whose log was cut, or has lost its end, is sent heartbeats once it has everything, without a later write.

The publisher, the bridge and the broker are real; the store is in memory. A log is cut while the reader is away.
"""

import contextlib
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from bridge.partition_state import PartitionState
from deploy.kafka.cluster import LocalCluster
from diem.kafka.client import admin_client
from diem.kafka.config import KafkaOptions
from diem.protocol.watermark import LogProof
from services.data.publisher import session
from tests.support import topics
from tests.support.bridge import FeedRecorder, running_bridge
from tests.support.patience import until
from tests.support.published import MemoryStore, publishing

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
        return {name: retained.version for name, retained in self.state.retained.items()} != self.store.versions


@pytest.fixture
def options(own_broker_options: KafkaOptions) -> KafkaOptions:
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
) -> AsyncIterator[tuple[Reader, Callable[[], contextlib.AbstractAsyncContextManager[object]]]]:
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
            await until(lambda: reader.heartbeats and not reader.lacks_something)
        # What it misses.
        store.put(*ENDPOINTS)
        publisher.changed()
        await until(lambda: publisher.lag == 0)
        reader.false_heartbeats = 0
        yield reader, lambda: running.reading(reader)


FAULTS = [delete_records, recreate, restore_a_replica]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
async def test_no_heartbeat_before_the_reader_has_everything_again(
    fault: Fault, own_broker: LocalCluster, options: KafkaOptions, tmp_path: Path
) -> None:
    store = MemoryStore()
    prepare = partial(copy_the_logs, own_broker, options) if fault is restore_a_replica else None
    async with reading(options, tmp_path, store, prepare) as (reader, returning):
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
    async with reading(options, tmp_path, store) as (reader, returning):
        await delete_records(own_broker, options)
        reader.__init__(store)  # type: ignore[misc]  # a server that has started anew
        async with returning():
            await until(lambda: len(reader.heartbeats) >= 3)
        assert (reader.lacks_something, reader.false_heartbeats) == (False, 0)


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
    async with reading(options, tmp_path, store) as (reader, returning):
        await delete_records(own_broker, options)
        monkeypatch.setattr(PartitionState, "open", open_anywhere)
        monkeypatch.setattr(PartitionState, "apply_watermark", trust)
        heartbeats = len(reader.heartbeats)
        async with returning():
            await until(lambda: len(reader.heartbeats) > heartbeats)
        assert reader.false_heartbeats
