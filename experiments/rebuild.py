"""``make bench-rebuild``: time until a restarted server is ready, after millions of updates.

The records are written straight to the topic. Then server and bridge are killed, again and again, while clients that
hold versions dial; none may be told an older one than it holds, and all must end at the newest.
"""

import asyncio
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

from aiokafka import AIOKafkaProducer

from diem.kafka.config import KafkaOptions
from diem.protocol.partitioners import partition_of
from diem.protocol.update import encode
from tests.bench.report import Report
from tests.load import bench
from tests.load.bench import Goal
from tests.load.brokers import Brokers
from tests.load.client import LoadClient
from tests.load.run import end_in_order
from tests.load.system import System
from tests.load.wire import ANY_UPDATE
from tests.support.commandline import parser
from tests.support.size import sized

ENDPOINTS = sized(10_000, 10_000, 500)
RECORDS = sized(3_000_000, 300_000, 5_000)
RESTARTS = sized(3, 1, 1)
CLIENTS, SUBSCRIPTIONS = sized((48, 20), (48, 20), (8, 20))
PARTITIONS = 12
BATCH_BYTES = 96 * 1024
READY_GOAL = 15.0
CONVERGED_WITHIN = 60.0
LIVE_EVERY, LIVE_ENDPOINTS = 0.2, 100
"""Writes while the server catches up: number of the clients' endpoints, and interval."""


class Topic:
    """The updates topic as a producer of its own writes it, and the newest version of each endpoint."""

    def __init__(self, producer: AIOKafkaProducer, topic: str, names: Sequence[str]) -> None:
        self.newest: dict[bytes, int] = {}
        self._producer = producer
        self._topic = topic
        self._base = int(time.time() * 1000)
        self._partitions: dict[int, list[bytes]] = defaultdict(list)
        self._parts: dict[bytes, list[bytes]] = {}
        for name in names:
            key = name.encode()
            self._partitions[partition_of(key, PARTITIONS)].append(key)
            # A version like any other; its digits are exchanged for those of each record.
            self._parts[key] = encode(name, self._base, self._base).split(str(self._base).encode())

    async def write_rounds(self, rounds: int) -> None:
        """Write each endpoint this many times, all partitions at once."""
        async with asyncio.TaskGroup() as tasks:
            for partition, keys in self._partitions.items():
                tasks.create_task(self._write(partition, keys * rounds))

    async def write(self, keys: Iterable[bytes]) -> None:
        """Write these endpoints once."""
        wanted = set(keys)
        async with asyncio.TaskGroup() as tasks:
            for partition, all_keys in self._partitions.items():
                if chosen := [key for key in all_keys if key in wanted]:
                    tasks.create_task(self._write(partition, chosen))

    async def _write(self, partition: int, keys: Sequence[bytes]) -> None:
        at = 0
        while at < len(keys):
            batch = self._producer.create_batch()
            while at < len(keys):
                key = keys[at]
                version = self.newest.get(key, self._base) + 1
                head, tail = self._parts[key]
                if batch.append(key=key, value=b"%b%d%b" % (head, version, tail), timestamp=None) is None:
                    break
                self.newest[key] = version
                at += 1
            await (await self._producer.send_batch(batch, self._topic, partition=partition))


@asynccontextmanager
async def open_topic(options: KafkaOptions, names: Sequence[str]) -> AsyncIterator[Topic]:
    """Open the topic for writing."""
    producer = AIOKafkaProducer(
        acks="all",
        max_batch_size=BATCH_BYTES,
        max_request_size=PARTITIONS * 2 * BATCH_BYTES,
        **options.client_arguments(),
    )
    await producer.start()
    try:
        yield Topic(producer, options.names.updates, names)
    finally:
        await producer.stop()


class HoldingClient(LoadClient):
    """Counts the update frames on the wire that are older than what the client holds; repeats are legal."""

    stale = 0

    def record_frames(self, data: bytes, start: int, end: int, time: float, link: int) -> None:
        for endpoint, digits in ANY_UPDATE.findall(data, start, end):
            self.stale += int(digits) < self.announced.get(endpoint, 0)
        super().record_frames(data, start, end, time, link)


def crowd(servers: list[tuple[str, int, str]], names: list[str], random: Random) -> list[HoldingClient]:
    """Return the clients, not connected yet."""
    where = [f"ws://{host}:{port}{path}" for host, port, path in servers]
    return [
        HoldingClient(
            f"{number:02}",
            f"127.0.0.{1 + number % 16}",
            where,
            random.sample(names, SUBSCRIPTIONS),
            Random(number),
        )
        for number in range(CLIENTS)
    ]


async def converged(clients: list[HoldingClient], topic: Topic) -> float:
    """Return the seconds until every client has the newest versions. Raises ``TimeoutError``."""
    start = time.monotonic()
    async with asyncio.timeout(CONVERGED_WITHIN):
        while any(client.announced.get(key) != topic.newest[key] for client in clients for key in client.wants):
            await asyncio.sleep(0.02)
    return time.monotonic() - start


async def restart(system: System, topic: Topic, clients: list[HoldingClient], random: Random) -> dict[str, float]:
    """Kill server and bridge, and keep writing until all clients have converged."""
    wanted = sorted({key for client in clients for key in client.wants})

    over = asyncio.Event()

    async def live() -> None:
        while not over.is_set():
            await topic.write(random.sample(wanted, min(LIVE_ENDPOINTS, len(wanted))))
            await asyncio.sleep(LIVE_EVERY)

    writing = asyncio.create_task(live())
    start = time.monotonic()
    bridge, server = await system.kill("bridge-1"), await system.kill("websocket-1")
    ready = await system.back("websocket-1", server) - start
    peak = {f"{name}_peak_mib": peak_mib(system, name) for name in ("bridge-1", "websocket-1")}
    await system.back("bridge-1", bridge)
    # Not cancelled: what is counted as newest must be in the topic.
    over.set()
    await writing
    await converged(clients, topic)
    total = time.monotonic() - start
    return {"ready_s": round(ready, 2), "converged_s": round(total, 2), **peak}


def peak_mib(system: System, name: str) -> float:
    """Return the peak memory of a process (VmHWM)."""
    status = Path(f"/proc/{system.process(name).pid}/status").read_text(encoding="utf-8")
    return round(int(status.partition("VmHWM:")[2].split()[0]) / 1024, 1)


async def run(report: Report) -> tuple[dict[str, Any], list[Goal]]:
    """Run the whole measurement."""
    random = Random(1)
    names = [f"/rebuild/{number:05}" for number in range(ENDPOINTS)]
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="diem-rebuild-"))
        report.step("starting mode x with one server")
        options = ["--servers", "1", "--partitions", str(PARTITIONS)]
        system = await stack.enter_async_context(System("x", Path(folder), options))
        topic = await stack.enter_async_context(open_topic(Brokers(system).options, names))
        report.step(f"writing {RECORDS:,} records to {ENDPOINTS:,} endpoints")
        began = time.monotonic()
        await topic.write_rounds(RECORDS // ENDPOINTS)
        written = time.monotonic() - began
        clients = crowd(system.servers, names, random)
        for client in clients:
            client.start(random.random())
        await converged(clients, topic)
        restarts = []
        for number in range(RESTARTS):
            report.step(f"killing server and bridge, {number + 1} of {RESTARTS}")
            restarts.append(await restart(system, topic, clients, random))
        for client in clients:
            client.leave()
    stale = sum(client.stale for client in clients)
    figures = {
        "endpoints": ENDPOINTS,
        "records": RECORDS,
        "written_s": round(written, 2),
        "restarts": restarts,
        "clients": CLIENTS,
        "updates_told": sum(client.raw for client in clients),
    }
    goals = [
        Goal("ready after server and bridge were killed", "s", READY_GOAL, max(each["ready_s"] for each in restarts)),
        Goal("stale versions that clients were told", "", 0, stale),
    ]
    return figures, goals


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, write build/bench/rebuild.json and print the goals."""
    parser(__spec__, __doc__, report="build/bench/rebuild.json", quick="").parse_args(argv)
    end_in_order()
    with Report(2 + RESTARTS) as report:
        figures, goals = asyncio.run(run(report))
    path = bench.write("rebuild", figures, goals)
    for each in figures["restarts"]:
        print(f"  {each}")
    print(bench.table(goals))
    print(path)
    return bench.exit_code(goals)


if __name__ == "__main__":
    sys.exit(main())
