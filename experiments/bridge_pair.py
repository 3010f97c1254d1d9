"""A WebSocket server with its bridge as processes, and the writer of the topic that the bridge reads."""

import asyncio
import contextlib
import sys
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Final

from aiokafka import AIOKafkaProducer

from diem.kafka.config import KafkaOptions
from diem.kafka.topics import ensure
from diem.process.auth import SharedKey
from diem.protocol.partitioners import partition_of
from diem.protocol.update import encode
from services.data.publisher.log import PRODUCER
from tests.bench.servers import _listening, _process, _ready
from tests.support.ports import free_port

PARTITIONS: Final = 12


class Topic:
    """Writer of the topic, like the Data Service: for each write, one batch per partition."""

    def __init__(self, producer: AIOKafkaProducer, topic: str) -> None:
        self._producer = producer
        self._topic = topic
        self._version = time.time_ns() // 1_000_000

    async def write(self, names: Sequence[str]) -> None:
        """Update endpoints in one write."""
        parts: defaultdict[int, list[str]] = defaultdict(list)
        for name in names:
            parts[partition_of(name.encode(), PARTITIONS)].append(name)
        await asyncio.gather(*(self._write(partition, part) for partition, part in parts.items()))

    async def _write(self, partition: int, names: Sequence[str]) -> None:
        batch = self._producer.create_batch()
        for name in names:
            self._version += 1
            value = encode(name, self._version, self._version)
            batch.append(key=name.encode(), value=value, timestamp=None)
        await (await self._producer.send_batch(batch, self._topic, partition=partition))


@contextlib.asynccontextmanager
async def writing(options: KafkaOptions) -> AsyncIterator[Topic]:
    """Open the updates topic for writing, creating it if necessary."""
    await ensure(options)
    async with AIOKafkaProducer(**PRODUCER, **options.client_arguments()) as producer:
        yield Topic(producer, options.names.updates)


class BridgePair:
    """A server and its bridge."""

    def __init__(self, server: int, bridge: int, port: int) -> None:
        self.pids = {"server": server, "bridge": bridge}
        self.port = port


@contextlib.asynccontextmanager
async def bridge_pair(directory: Path, options: KafkaOptions, core: int | None) -> AsyncIterator[BridgePair]:
    """Run both on one core, ready."""
    key_file = directory / "internal.key"
    SharedKey.create(key_file)
    feed, port, internal = free_port(), free_port(), free_port()
    common = {"DIEM_INTERNAL_KEY_FILE": str(key_file), "DIEM_LOG_LEVEL": "error"}
    bridge = {
        "DIEM_BRIDGE_INTERNAL_PORT": str(feed),
        "DIEM_KAFKA_BOOTSTRAP_SERVERS": options.bootstrap_servers,
        "DIEM_KAFKA_TOPIC_PREFIX": options.topic_prefix,
    }
    server = {
        "DIEM_WEBSOCKET_PORT": str(port),
        "DIEM_WEBSOCKET_INTERNAL_PORT": str(internal),
        "DIEM_WEBSOCKET_FEED_URL": f"ws://127.0.0.1:{feed}/feed",
        "DIEM_WEBSOCKET_CONNECTION_RATE_PER_ADDRESS": "10000",
    }
    command = (sys.executable, "-m", "deploy", "run")
    async with (
        _process((*command, "bridge"), common | bridge, core) as first,
        _process((*command, "websocket"), common | server, core) as second,
    ):
        await _listening(second, port)
        await _ready(second, internal)
        yield BridgePair(second.pid, first.pid, port)
