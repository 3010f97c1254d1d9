"""A bridge in the test's own event loop, and the topic that it reads."""

import asyncio
import contextlib
import math
import os
import sys
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
from aiokafka import AIOKafkaProducer
from aiokafka.admin import NewPartitions
from aiokafka.errors import KafkaError

from bridge import main as bridge
from bridge import partition_state
from bridge.partition_state import PartitionState
from bridge.settings import Settings
from diem.fanout.feed_state import FeedState
from diem.kafka import topics
from diem.kafka.client import admin_client, connected_client
from diem.kafka.config import PARTITIONS, KafkaOptions
from diem.kafka.metadata import describe
from diem.links.feed_reader import FeedReader
from diem.process.auth import SharedKey
from diem.process.lifecycle import Lifecycle
from diem.protocol import feed
from diem.protocol.feed import is_map
from diem.protocol.partition_map import MapBuilder
from diem.protocol.partitioners import partition_of
from diem.protocol.update import encode
from diem.protocol.watermark import FIRST_INCARNATION
from tests.support.internal import http_client
from tests.support.patience import PATIENCE_S
from tests.support.ports import free_port

ROOT = Path(__file__).parents[2]


class UpdatesTopic:
    """The updates topic, written to directly."""

    def __init__(self, options: KafkaOptions) -> None:
        self.options = options
        self.name = options.names.updates
        self.partitions = options.partitions or PARTITIONS
        self.version = time.time_ns() // 1_000_000
        self._producer: AIOKafkaProducer | None = None

    async def create(self) -> None:
        await topics.ensure(self.options)

    @property
    def names(self) -> set[str]:
        """Names of the streams on the feed of a bridge that reads everything."""
        return {f"{self.name}/{number}" for number in range(self.partitions)} | {self.hot}

    @property
    def hot(self) -> str:
        """Name of the stream of hot updates."""
        return f"{self.options.names.hot}/0"

    async def delete(self) -> None:
        """Delete the topic, and wait until it is gone."""
        await self.close()
        async with admin_client(self.options) as admin:
            await admin.delete_topics([self.name])
        async with connected_client(self.options) as client, asyncio.timeout(PATIENCE_S):
            while self.name in (await describe(client, self.name)).topics:
                await asyncio.sleep(0.05)

    async def grow(self, partitions: int) -> None:
        # A producer hears of new partitions only minutes later.
        await self.close()
        async with admin_client(self.options) as admin:
            await admin.create_partitions({self.name: NewPartitions(partitions)})
        self.partitions = partitions

    async def put(self, *names: str, gone: bool = False, hot: bool = False) -> int:
        """Write a new version of each name, ``hot`` ones to the topic of hot updates; return the last version."""
        records: list[tuple[bytes, bytes, int]] = []
        for name in names:
            self.version += 1
            value = encode(name, self.version, self.version, gone=gone)
            records.append((name.encode(), value, 0 if hot else self.partition(name)))
        await self.write(*records, topic=self.options.names.hot if hot else self.name)
        return self.version

    def partition(self, name: str) -> int:
        return partition_of(name.encode(), self.partitions)

    async def write(self, *records: tuple[bytes | None, bytes | None, int], topic: str | None = None) -> list[int]:
        """Write raw keys and values to partitions of the updates topic or another one; return the offsets."""
        if self._producer is None:
            self._producer = AIOKafkaProducer(
                **self.options.client_arguments(), enable_idempotence=True, acks="all", linger_ms=1
            )
            await self._producer.start()
            # A broker that is behind the controller names fewer partitions for a moment.
            async with asyncio.timeout(PATIENCE_S):
                while len(await self._producer.partitions_for(self.name)) < self.partitions:
                    await self._producer.client.force_metadata_update()
                    await asyncio.sleep(0.05)
        sent = [await self._producer.send(topic or self.name, value, key, part) for key, value, part in records]
        return [(await each).offset for each in sent]

    async def close(self) -> None:
        if self._producer is not None:
            await self._producer.stop()
            self._producer = None

    async def close_hard(self) -> None:
        """Abandon the producer, whatever the state of the brokers; the next write opens another one."""
        producer, self._producer = self._producer, None
        if producer is not None:
            with contextlib.suppress(KafkaError, TimeoutError):
                async with asyncio.timeout(2):
                    await producer.stop()


class FeedRecorder:
    """Sink of a feed reader: the state that a server would have, and the messages received."""

    def __init__(self, state: FeedState | None = None) -> None:
        self.state = state or FeedState()
        self.control: list[feed.Control] = []
        self.batches: list[tuple[str, int, list[tuple[int, bytes, int, int]]]] = []
        self.heartbeats: list[float] = []
        self.map = MapBuilder()

    def resume(self) -> feed.Resume:
        return self.state.resume()

    def hello(self, message: feed.Hello) -> None:
        self.control.append(message)
        self.state.hello(message.source, message.names)

    def batch(self, *batches: feed.Batch) -> None:
        for batch in batches:
            self._batch(batch)

    def _batch(self, batch: feed.Batch) -> None:
        records = list(batch.records)
        self.batches.append((batch.name, batch.next, [(r.sequence, r.endpoint, r.version, r.kind) for r in records]))
        if is_map(batch.name):
            for record in records:
                self.map.apply(record.endpoint, record.value)
        else:
            self.state.apply(batch._replace(records=iter(records)))

    def caught_up(self, name: str) -> None:
        self.control.append(feed.CaughtUp(name))
        self.state.finish_catch_up(name)

    def resync(self, message: feed.Resync) -> None:
        self.control.append(message)

    def owners(self, message: feed.Owners) -> None:
        self.control.append(message)

    def traced(self, message: feed.Traced) -> None:
        self.control.append(message)

    def heartbeat(self) -> None:
        self.heartbeats.append(time.monotonic())

    @property
    def names(self) -> set[str]:
        return {endpoint.decode() for endpoint in self.state.retained}

    @property
    def records(self) -> int:
        return self.state.counts.consumed

    @property
    def resynced(self) -> list[str]:
        return [name for each in self.control if isinstance(each, feed.Resync) for name in each.endpoints]

    def caught_up_names(self) -> list[str]:
        return [each.name for each in self.control if isinstance(each, feed.CaughtUp)]


class RunningBridge:
    """A running bridge."""

    def __init__(self, settings: Settings, key: SharedKey) -> None:
        self.settings, self.key = settings, key
        self.base = f"http://127.0.0.1:{settings.internal_port}"
        self.url = f"ws://127.0.0.1:{settings.internal_port}/feed"
        self.pid = os.getpid()

    async def get(self, path: str) -> httpx.Response:
        async with http_client(self.key) as http:
            return await http.get(self.base + path)

    async def status(self) -> dict[str, Any]:
        result: dict[str, Any] = (await self.get("/status")).json()
        return result

    async def becomes(self, **expected: Any) -> dict[str, Any]:
        """Wait until its status has these values; return the status."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                status = await self.status()
                if {name: status[name] for name in expected} == expected:
                    return status
                await asyncio.sleep(0.05)

    @contextlib.asynccontextmanager
    async def reading(self, sink: FeedRecorder) -> AsyncIterator[FeedReader]:
        reader = FeedReader(self.url, self.key, sink)
        task = asyncio.create_task(reader.run())
        try:
            yield reader
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


class _WithoutWatermarks:
    """Bridges that need no watermarks, regardless of the order in which they start and end."""

    def __init__(self) -> None:
        self._within = partition_state.WATERMARK_WITHIN_S
        self._open = PartitionState.open
        self._resumable = PartitionState.resumable
        self._bridges = 0

    @contextlib.contextmanager
    def bridge(self) -> Iterator[None]:
        self._set(1)
        try:
            yield
        finally:
            self._set(-1)

    def _set(self, more: int) -> None:
        self._bridges += more
        within = math.inf if self._bridges else self._within
        setattr(partition_state, "WATERMARK_WITHIN_S", within)  # noqa: B010  # a constant, for all but tests
        PartitionState.open = _open_complete if self._bridges else self._open  # type: ignore[method-assign]
        PartitionState.resumable = _ANYWHERE if self._bridges else self._resumable  # type: ignore[method-assign,assignment]


def _open_complete(self: PartitionState, begin: int, end: int, now: float) -> None:
    """Open a log whose first watermark has proved that it is complete."""
    self.known_until = self.position or None
    self.incarnation = FIRST_INCARNATION if self.position else None
    _WITHOUT_WATERMARKS._open(self, begin, end, now)
    self.incarnation, self.confirmed = FIRST_INCARNATION, True


_ANYWHERE = property(lambda _: None)
_WITHOUT_WATERMARKS = _WithoutWatermarks()


@contextlib.asynccontextmanager
async def running_bridge(
    directory: Path, options: KafkaOptions, *, watermarks: bool = False, **settings: Any
) -> AsyncIterator[RunningBridge]:
    """Run a bridge for the topic of ``options``; without ``watermarks`` if there is no publisher to write them."""
    file = directory / "internal.key"
    key = SharedKey.load(file) if file.exists() else SharedKey.create(file)
    life = Lifecycle(2.0)
    running = RunningBridge(
        Settings(
            internal_key_file=file,
            internal_port=free_port(),
            kafka_bootstrap_servers=options.bootstrap_servers,
            kafka_topic_prefix=options.topic_prefix,
            **settings,
        ),
        key,
    )
    with contextlib.nullcontext() if watermarks else _WITHOUT_WATERMARKS.bridge():
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(bridge.main(running.settings, life))
            try:
                yield running
            finally:
                life.stop("test is over")


@contextlib.asynccontextmanager
async def bridge_process(directory: Path, options: KafkaOptions, **settings: Any) -> AsyncIterator[RunningBridge]:
    """Run a bridge in a process of its own, which is killed at the end."""
    file = directory / "internal.key"
    key = SharedKey.load(file) if file.exists() else SharedKey.create(file)
    running = RunningBridge(Settings(internal_key_file=file, internal_port=free_port(), **settings), key)
    environment = {
        "PATH": os.environ["PATH"],
        "DIEM_INTERNAL_KEY_FILE": str(file),
        "DIEM_KAFKA_BOOTSTRAP_SERVERS": options.bootstrap_servers,
        "DIEM_KAFKA_TOPIC_PREFIX": options.topic_prefix,
        "DIEM_LOG_LEVEL": "error",
        "DIEM_BRIDGE_INTERNAL_PORT": str(running.settings.internal_port),
        **{f"DIEM_BRIDGE_{name.upper()}": str(value) for name, value in settings.items()},
    }
    argv = (sys.executable, "-m", "diem.process.program", "bridge")
    process = await asyncio.create_subprocess_exec(*argv, cwd=ROOT, env=environment)
    running.pid = process.pid
    try:
        yield running
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def place(number: int, clone: int = 1) -> dict[str, Any]:
    """Return the settings of a bridge of a group."""
    return {
        "clone": clone,
        "number": number,
        "server_internal_url": f"ws://internal-{number}/ws",
        "server_public_url": f"ws://public-{number}/ws",
    }


@contextlib.asynccontextmanager
async def updates_topic(options: KafkaOptions, partitions: int | None = None) -> AsyncIterator[UpdatesTopic]:
    """Create the topic of ``options``."""
    topic = UpdatesTopic(options if partitions is None else replace(options, partitions=partitions))
    await topic.create()
    try:
        yield topic
    finally:
        await topic.close()
