"""``make bench-topic``: a topic served as it is, with four servers in z-client and z-proxy, and in x beside them.

A producer of its own writes 20,000 documents of 1 KB a second to a compacted topic of 12 partitions. Clients watch some
of its keys, with data. CPU is that of bridges, servers and proxy while all updates arrive. Then, at a fifth of the
rate, the broker is killed, a bridge is killed (its group rebalances), a server is killed, the topic is made again, and
its log is cut. After each, when writing stops, every client must hold the last document of every key that it watches;
what a client holds never goes back. One held document is then replaced by the one before: the check must detect it.
QUICK=1: fewer keys and seconds.
"""

import asyncio
import contextlib
import random
import sys
import tempfile
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from time import monotonic
from typing import Any, Final

import httpx
from aiokafka import AIOKafkaProducer

from diem.client import (
    BaseClient,
    CompletedEvents,
    EndpointSnapshot,
    FetchDelayed,
    PartitionedClient,
    UpdatesClient,
)
from diem.errors import DiemError
from diem.kafka.client import silence_library_log
from diem.kafka.config import KafkaOptions
from diem.protocol.partitioners import partition_of
from tests.load.bench import Goal, exit_code, table, write
from tests.load.processes import Cpu, Process
from tests.load.run import end_in_order
from tests.load.system import System
from tests.oracle.judge import quantiles
from tests.support.commandline import parser
from tests.support.local_cluster import LocalCluster
from tests.support.served import CompanyTopic
from tests.support.size import sized
from tests.support.topics import delete_records

MODES: Final = sized(("z-client", "z-proxy", "x"), ("z-client", "z-proxy", "x"), ("z-proxy",))
SERVERS: Final = sized(4, 4, 2)
PARTITIONS: Final = 12
RATE: Final = sized(20_000, 20_000, 500)
KEYS: Final = sized(20_000, 8_000, 200)
SECONDS: Final = sized(20.0, 10.0, 1.0)
CLIENTS: Final = sized(40, 20, 3)
WATCHED: Final = sized(25, 20, 5)
"""Keys of each client."""
FAULT_SHARE: Final = 0.2
FAULT_SECONDS: Final = sized(4.0, 3.0, 1.0)
TICK_S: Final = 0.05
CONVERGED_WITHIN_S: Final = 60.0
MAX_SHARE: Final = 0.6
"""Largest share of the CPU of an update, with four servers, that dividing the keys may cost: less than all of them."""
DOWN_S: Final = 2.0
FETCHES: Final = 8
"""Requests of all clients at once."""
TOPIC: Final = "orders"
PAD: Final = (b"position 4711, 3 of article 0815 at 12.50 EUR each; " * 19)[:930]
FAULTS: Final = sized(
    ("broker killed", "bridge killed", "server killed", "topic made again", "log cut"),
    ("broker killed", "bridge killed", "topic made again", "log cut"),
    ("topic made again",),
)


class Writer:
    """The producer of a company: documents by key, each with a number that rises; ``last`` is acknowledged."""

    def __init__(self, options: KafkaOptions, keys: Sequence[bytes]) -> None:
        self.last: dict[bytes, int] = {}
        self.written = 0
        self.resumed_at = 0.0
        self._options = options
        self._keys = keys
        self._partition = {key: partition_of(key, PARTITIONS) for key in keys}
        self._number = 0
        self._producer: AIOKafkaProducer | None = None

    async def open(self) -> None:
        """Connect; a topic that was made again needs another connection."""
        await self.close()
        self._producer = AIOKafkaProducer(
            **self._options.client_arguments(),
            acks="all",
            enable_idempotence=True,
            compression_type="snappy",
            request_timeout_ms=60_000,
            max_batch_size=900_000,
        )
        await self._producer.start()

    async def close(self) -> None:
        """Disconnect."""
        if self._producer is not None:
            await self._producer.stop()
            self._producer = None

    async def write(self, keys: Sequence[bytes]) -> None:
        """Write a document of each key, with one batch for each partition."""
        parts: defaultdict[int, list[bytes]] = defaultdict(list)
        for key in keys:
            parts[self._partition[key]].append(key)
        await asyncio.gather(*(self._send(partition, part) for partition, part in parts.items()))

    async def _send(self, partition: int, keys: Sequence[bytes]) -> None:
        assert self._producer is not None
        batch, numbers = self._producer.create_batch(), dict[bytes, int]()
        now = monotonic()
        for key in keys:
            self._number += 1
            value = b'{"id":"%b","n":%d,"t":%.6f,"text":"%b"}' % (key, self._number, now, PAD)
            if batch.append(key=key, value=value, timestamp=None) is None:
                raise ValueError(f"{len(keys)} documents are more than a batch")
            numbers[key] = self._number
        await (await self._producer.send_batch(batch, TOPIC, partition=partition))
        self.written += len(keys)
        self.last |= numbers

    async def write_all(self) -> None:
        """Write a document of each key."""
        for start in range(0, len(self._keys), 2000):
            await self.write(self._keys[start : start + 2000])

    async def run(self, rate: float, seconds: float) -> float:
        """Write keys at random at a steady rate; return the rate achieved. What is late is not made up for."""
        began, due, before = monotonic(), monotonic(), self.written
        count = round(rate * TICK_S)
        while monotonic() < began + seconds:
            await self.write(random.sample(self._keys, min(count, len(self._keys))))
            due = max(due + TICK_S, monotonic() - 1.0)
            await asyncio.sleep(max(0.0, due - monotonic()))
        return (self.written - before) / (monotonic() - began)


class Watcher:
    """A client: what it displays of its keys, and what it should not have."""

    def __init__(self, keys: Sequence[bytes]) -> None:
        self.keys = keys
        self.held: dict[bytes, int] = {}
        self.delays: list[float] = []
        self.violations: list[str] = []
        self.updates = 0

    async def run(
        self, client: BaseClient, fetch: Callable[[str, int | None], Awaitable[EndpointSnapshot | None]]
    ) -> None:
        """Apply events until cancelled."""
        await client.subscribe({f"/{TOPIC}/{key.decode()}": None for key in self.keys})
        async with CompletedEvents(client, fetch, client.correct) as events:
            async for event in events:
                if event.kind == "update" and event.endpoint is not None and event.has_value:
                    self._apply(event.endpoint.rpartition("/")[2].encode(), event.value)

    def _apply(self, key: bytes, document: dict[str, Any]) -> None:
        number, before = document["n"], self.held.get(key, 0)
        if document["id"].encode() != key:
            self.violations.append(f"{key!r} has the document of {document['id']}")
        if number < before:
            self.violations.append(f"{key!r} went back from {before} to {number}")
        self.held[key] = number
        self.updates += 1
        self.delays.append(monotonic() - document["t"])

    def missing(self, last: dict[bytes, int]) -> list[str]:
        """Return what it lacks of the last documents."""
        return [
            f"{key!r} is {self.held.get(key)}, not {last[key]}" for key in self.keys if self.held.get(key) != last[key]
        ]


class Bench:
    """One mode: the system, its clients and the writer."""

    def __init__(self, mode: str, system: System, cluster: LocalCluster, topic: CompanyTopic, writer: Writer) -> None:
        self.mode = mode
        self.system = system
        self.cluster = cluster
        self.topic = topic
        self.writer = writer
        self.watchers: list[Watcher] = []
        self.figures: dict[str, Any] = {}
        self.violations: list[str] = []
        self.recoveries: dict[str, float] = {}

    @contextlib.asynccontextmanager
    async def clients(self, keys: Sequence[bytes]) -> AsyncIterator[None]:
        """Connect the clients for the time of the block."""
        rest = self.system.described()["urls"]["rest"]
        urls = list(self.system.described()["urls"]["websocket"])
        metadata = list(self.system.described()["urls"].get("metadata") or ())
        async with contextlib.AsyncExitStack() as stack:
            http = await stack.enter_async_context(httpx.AsyncClient(base_url=rest, trust_env=False, timeout=10))
            for number in range(CLIENTS):
                watcher = Watcher(random.Random(number).sample(keys, WATCHED))
                client: BaseClient = (
                    PartitionedClient(urls, metadata=metadata, data=True)
                    if metadata
                    else UpdatesClient(urls, data=True)
                )
                await stack.enter_async_context(client)
                task = asyncio.create_task(watcher.run(client, _fetching(http)))
                stack.callback(task.cancel)
                self.watchers.append(watcher)
            yield

    async def converged(self, what: str) -> float:
        """Wait until every client holds the last documents; return the seconds it took, or record what is missing."""
        began = monotonic()
        while missing := [each for watcher in self.watchers for each in watcher.missing(self.writer.last)]:
            if monotonic() > began + CONVERGED_WITHIN_S:
                self.violations += [f"{what}: {each}" for each in missing[:20]]
                break
            await asyncio.sleep(0.05)
        return monotonic() - began

    async def steady(self) -> None:
        """Measure the full rate."""
        for watcher in self.watchers:
            watcher.delays.clear()
            watcher.updates = 0
        cpu, broker = self.system.measure(), _broker_cpu(self.cluster)
        began = monotonic()
        rate = await self.writer.run(RATE, SECONDS)
        seconds = monotonic() - began
        await self.converged("steady")
        used = {name: (total - cpu.get(name, 0.0)) / seconds for name, total in self.system.measure().items()}
        kinds: defaultdict[str, float] = defaultdict(float)
        for name, share in used.items():
            kinds[name.partition("-")[0]] += share
        carriers = sum(kinds[kind] for kind in ("bridge", "websocket", "proxy"))
        delays = [delay for watcher in self.watchers for delay in watcher.delays]
        self.figures = {
            "updates_per_s": round(rate, 1),
            "cores": {kind: round(share, 3) for kind, share in sorted(kinds.items())},
            "cores_of_bridges_servers_and_proxy": round(carriers, 3),
            "cpu_us_per_update": round(carriers / rate * 1e6, 2),
            "cores_of_the_broker": round((_broker_cpu(self.cluster) - broker) / seconds, 3),
            "delivered_per_s": round(sum(watcher.updates for watcher in self.watchers) / seconds, 1),
            "delay_s": {name: round(value, 4) for name, value in quantiles(delays).items()},
        }

    async def fault(self, name: str) -> None:
        """Inject a fault under load, and wait until all have recovered."""
        load = asyncio.create_task(self.writer.run(RATE * FAULT_SHARE, 2 * FAULT_SECONDS))
        await asyncio.sleep(FAULT_SECONDS / 2)
        match name:
            case "broker killed":
                self.cluster.kill(1)
                await asyncio.sleep(DOWN_S)
                await self.cluster.restart(1)
            case "bridge killed" | "server killed":
                process = "bridge-1" if name == "bridge killed" else "websocket-1"
                await self.system.back(process, await self.system.kill(process))
            case "topic made again":
                await load
                await self.writer.close()
                await self.topic.delete()
                await self.topic.create()
                await self.writer.open()
                await self.writer.write_all()
            case "log cut":
                await load
                await delete_records(self.topic.options, TOPIC)
                await self.writer.write_all()
        await load
        self.recoveries[name] = round(await self.converged(name), 2)

    def control(self) -> bool:
        """Return whether the check detects a client with the document before the last."""
        watcher = self.watchers[0]
        key = watcher.keys[0]
        watcher.held[key] -= 1
        detected = bool(watcher.missing(self.writer.last))
        watcher.held[key] += 1
        return detected and not watcher.missing(self.writer.last)


def _fetching(http: httpx.AsyncClient) -> Callable[[str, int | None], Awaitable[EndpointSnapshot | None]]:
    # The library's pool takes a time that grows with the square of those who wait.
    turn = asyncio.Semaphore(FETCHES)

    async def fetch(endpoint: str, version: int | None) -> EndpointSnapshot | None:
        try:
            async with turn:
                answer = await http.get(f"data{endpoint}", params=None if version is None else {"version": version})
        except httpx.HTTPError as error:
            raise FetchDelayed(str(error)) from error
        if answer.status_code == httpx.codes.NOT_FOUND:
            if version is not None:
                return None
            # The topic has just been made again, and does not have it yet.
            raise DiemError(f"there is no {endpoint}")
        if answer.status_code != httpx.codes.OK:
            raise FetchDelayed(answer.text)
        return EndpointSnapshot.of_answer(answer.headers, answer.content)

    return fetch


def _broker_cpu(cluster: LocalCluster) -> float:
    return Cpu().measure([Process("kafka-1", cluster.pid(1), None, None, 0)]).get("kafka-1", 0.0)


async def measure(mode: str, directory: Path) -> Bench:
    """Run one mode."""
    keys = [b"%d" % number for number in range(KEYS)]
    # Of a broker that is killed.
    silence_library_log()
    async with contextlib.AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(LocalCluster(directory / "kafka"))
        options = KafkaOptions(cluster.bootstrap_servers, replication=1)
        topic = CompanyTopic(options, TOPIC, PARTITIONS)
        await topic.create()
        writer = Writer(options, keys)
        stack.push_async_callback(writer.close)
        await writer.open()
        await writer.write_all()
        given = ("--topic", TOPIC, "--key", "{id}", "--bootstrap-servers", cluster.bootstrap_servers)
        up = System(
            mode, directory, [*given, "--servers", str(SERVERS), "--max-servers", str(SERVERS), "--traffic", "off"]
        )
        system = await stack.enter_async_context(up)
        bench = Bench(mode, system, cluster, topic, writer)
        await stack.enter_async_context(bench.clients(keys))
        bench.figures["seconds_to_first_documents"] = round(await bench.converged("start"), 2)
        await bench.steady()
        print(f"{mode}: {bench.figures}", flush=True)
        for name in FAULTS:
            await bench.fault(name)
            print(f"{mode}: {name}: converged {bench.recoveries[name]} s after the last write", flush=True)
        bench.violations += [each for watcher in bench.watchers for each in watcher.violations]
        bench.figures |= {
            "converged_s_after_fault": bench.recoveries,
            "violations": bench.violations[:20],
            "control_detected": bench.control(),
            "restarts_unexplained": await system.unexplained(),
        }
        return bench


def goals_of(bench: Bench) -> list[Goal]:
    """Return the goals of a mode."""
    mode, figures = bench.mode, bench.figures
    # In x, four servers take all updates: how many that are is the machine's limit.
    goals = (
        []
        if mode == "x"
        else [Goal(f"{mode}: updates a second", "1/s", RATE * 0.98, figures["updates_per_s"], at_least=True)]
    )
    goals += [
        Goal(f"{mode}: promises broken", "", 0, len(bench.violations)),
        Goal(f"{mode}: a lost document is detected", "", 1, figures["control_detected"], at_least=True),
        Goal(f"{mode}: restarts that no fault explains", "", 0, sum(figures["restarts_unexplained"].values())),
    ]
    return goals + [
        Goal(f"{mode}: {name}, converged after", "s", 30.0, seconds) for name, seconds in bench.recoveries.items()
    ]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the modes and write build/bench/topic.json."""
    end_in_order()
    options = parser(__spec__, __doc__, report="build/bench/topic.json", quick="fewer keys and seconds")
    options.add_argument("--mode", choices=("single", "x", "z-client", "z-proxy"), action="append", help="default: all")
    chosen = options.parse_args(argv).mode or MODES
    found: list[Bench] = []
    try:
        for mode in chosen:
            with tempfile.TemporaryDirectory(prefix="diem-topic-") as directory:
                found.append(asyncio.run(measure(mode, Path(directory))))
    except DiemError as error:
        print(error, file=sys.stderr)
        return 1
    goals = [goal for bench in found for goal in goals_of(bench)]
    cost = {bench.mode: bench.figures["cpu_us_per_update"] for bench in found}
    goals += [
        Goal(f"{mode}: CPU of an update, share of that in x", "", MAX_SHARE, round(cost[mode] / cost["x"], 2))
        for mode in sorted(cost.keys() - {"x"})
        if "x" in cost
    ]
    path = write("topic", {"modes": {bench.mode: bench.figures for bench in found}, "cpu_us_per_update": cost}, goals)
    print(f"{path}\n{table(goals)}")
    return exit_code(goals)


if __name__ == "__main__":
    sys.exit(main())
