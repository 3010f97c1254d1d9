"""Measurements of ``make bench-sizing`` on one cluster: latency, unavailability, transfers, consumers.

Times are in seconds and sizes in bytes. Each measurement has a topic of its own, which is deleted afterwards: equations
10 and 11 are about all partitions of a cluster.
"""

import asyncio
import os
import statistics
import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from itertools import chain
from typing import Any, Final, NamedTuple

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from diem.kafka.client import connected_client
from diem.kafka.config import KafkaOptions
from diem.kafka.errors import KafkaUnavailable
from diem.kafka.metadata import Partition, describe
from experiments import sizing_wire as wire
from experiments.sizing_cluster import SizingCluster
from experiments.sizing_sockets import received
from experiments.sizing_wire import ALL, Connection
from tests.bench.procfs import cpu_seconds, mappings, open_files, rss_kib, written_bytes
from tests.support.patience import FACTOR

RECORD: Final = wire.batch(b"x" * 100)
LEADER_ONLY: Final = 1
SAMPLE: Final = 200
"""Partitions of a lost broker that are written to, evenly spaced, until each has another leader."""
PROBE_S: Final = 0.01
"""Pause between two attempts."""
ADMIN_TIMEOUT_MS: Final = 120_000
WITHIN_S: Final = 120.0 * FACTOR
"""Limit of every wait."""
WARM: Final = 3
"""Writes before anything is measured."""
SETTLE_S: Final = 0.3
"""Until followers have what a leader alone has acknowledged."""
BATCH_RECORDS: Final = 64
MEGABYTE: Final = 1_000_000


class NotMeasured(Exception):
    """The cluster did not do what a measurement waits for."""


class Layout(NamedTuple):
    """A topic and where its partitions are."""

    topic: str
    partitions: Mapping[int, Partition]

    def led_by(self, node: int) -> list[int]:
        """Return the partitions that a broker leads."""
        return [number for number, partition in self.partitions.items() if partition.leader == node]


@asynccontextmanager
async def topic_of(cluster: SizingCluster, partitions: int, replicas: int) -> AsyncIterator[Layout]:
    """Create a topic, wait until all replicas are in sync, and delete it after the block."""
    name = f"sizing-{partitions}-{replicas}-{time.monotonic_ns()}"
    admin = AIOKafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers, request_timeout_ms=ADMIN_TIMEOUT_MS)
    await admin.start()
    try:
        configuration = {"min.insync.replicas": "1"}
        await admin.create_topics([NewTopic(name, partitions, replicas, topic_configs=configuration)])
        yield await _created(cluster, name, partitions, replicas)
        await admin.delete_topics([name])
    finally:
        await admin.close()


async def _created(cluster: SizingCluster, name: str, partitions: int, replicas: int) -> Layout:
    options = KafkaOptions(bootstrap_servers=cluster.bootstrap_servers)
    deadline = time.monotonic() + WITHIN_S
    while time.monotonic() < deadline:
        with suppress(KafkaUnavailable):
            async with connected_client(options) as client:
                found = (await describe(client, name)).topics.get(name)
            if found is not None and len(found.partitions) == partitions:
                complete = [each for each in found.partitions.values() if each.leader > 0 and len(each.isr) == replicas]
                if len(complete) == partitions:
                    layout = Layout(name, found.partitions)
                    await _until_accepted(cluster, layout)
                    return layout
        await asyncio.sleep(0.2)
    raise NotMeasured(f"{partitions} partitions with {replicas} replicas have no leaders after {WITHIN_S:g} s")


@asynccontextmanager
async def connections(cluster: SizingCluster, nodes: Iterable[int]) -> AsyncIterator[dict[int, Connection]]:
    """Connect to brokers, and close the connections after the block."""
    opened: dict[int, Connection] = {}
    try:
        for node in nodes:
            opened[node] = await Connection.open(cluster.port(node))
        yield opened
    finally:
        for connection in opened.values():
            connection.close()


async def _timed(connection: Connection, body: bytes) -> float:
    begin = time.perf_counter()
    async with asyncio.timeout(WITHIN_S):
        answer = wire.produced(await connection.request(wire.PRODUCE, body))
    seconds = time.perf_counter() - begin
    if errors := wire.failed(answer):
        raise NotMeasured(f"records are refused with error {errors[0]}")
    return seconds


async def _until_accepted(cluster: SizingCluster, layout: Layout) -> None:
    """Write to every partition until each leader knows that it is one; the first write also opens the files."""
    deadline = time.monotonic() + WITHIN_S
    async with connections(cluster, cluster.brokers) as opened:
        for node, connection in opened.items():
            body = wire.produce(layout.topic, layout.led_by(node), RECORD, ALL)
            in_a_row = 0
            while in_a_row < WARM:
                answer = wire.produced(await connection.request(wire.PRODUCE, body))
                in_a_row = 0 if any(wire.failed(answer)) else in_a_row + 1
                if time.monotonic() > deadline:
                    raise NotMeasured(f"broker {node} refuses records for {WITHIN_S:g} s")


async def latency(cluster: SizingCluster, layout: Layout, blocks: int, rounds: int) -> list[dict[str, Any]]:
    """Return, for each block, how much longer acks=all takes than acks=1 (medians of ``rounds`` pairs a broker).

    ``one``: one broker at a time gets a record for each partition that it leads. ``all``: all brokers get them at the
    same time. ``idle``: one record, beside idle partitions. ``cpu_s``: CPU seconds of all brokers for a record to every
    partition. Beside them are the files and mappings of the topic on a broker, and the memory of the largest broker.
    """
    pids = [cluster.pid(node) for node in cluster.brokers]
    async with connections(cluster, cluster.brokers) as opened:
        bodies = {
            (node, acks): wire.produce(layout.topic, layout.led_by(node), RECORD, acks)
            for node in opened
            for acks in (ALL, LEADER_ONLY)
        }
        single = {
            (node, acks): wire.produce(layout.topic, layout.led_by(node)[:1], RECORD, acks) for node, acks in bodies
        }
        found = []
        for _ in range(blocks):
            one = [[await _pair(opened[node], bodies, node, at) for node in opened] for at in range(rounds)]
            idle = [[await _pair(opened[node], single, node, at) for node in opened] for at in range(rounds)]
            every = [await _pairs(opened, bodies, at) for at in range(rounds)]
            await asyncio.sleep(SETTLE_S)
            before = sum(map(cpu_seconds, pids))
            for _ in range(rounds):
                await asyncio.gather(*(_timed(opened[node], bodies[node, ALL]) for node in opened))
            await asyncio.sleep(SETTLE_S)
            cpu_s = (sum(map(cpu_seconds, pids)) - before) / rounds
            sampled = {"one": [*chain(*one)], "idle": [*chain(*idle)], "all": every}
            block: dict[str, Any] = {name: _medians(pairs) for name, pairs in sampled.items()}
            found.append(block | {"cpu_s": cpu_s, "load": os.getloadavg()[0], **_held(pids, layout.topic)})
        return found


def _held(pids: Sequence[int], topic: str) -> dict[str, float]:
    return {
        "topic_files": statistics.mean(open_files(pid, topic) for pid in pids),
        "topic_mappings": statistics.mean(mappings(pid, topic) for pid in pids),
        "rss_mib": max(map(rss_kib, pids)) // 1024,
    }


async def _pair(
    connection: Connection, bodies: Mapping[tuple[int, int], bytes], node: int, at: int
) -> tuple[float, float]:
    """Return the times with acks=all and acks=1, in turns the one or the other first."""
    order = (ALL, LEADER_ONLY) if at % 2 else (LEADER_ONLY, ALL)
    times = {acks: await _timed(connection, bodies[node, acks]) for acks in order}
    return times[ALL], times[LEADER_ONLY]


async def _pairs(
    opened: Mapping[int, Connection], bodies: Mapping[tuple[int, int], bytes], at: int
) -> tuple[float, float]:
    order = (ALL, LEADER_ONLY) if at % 2 else (LEADER_ONLY, ALL)
    times = {}
    for acks in order:
        times[acks] = max(await asyncio.gather(*(_timed(opened[node], bodies[node, acks]) for node in opened)))
    return times[ALL], times[LEADER_ONLY]


def _medians(pairs: Sequence[tuple[float, float]]) -> dict[str, float]:
    return {
        "delay_s": statistics.median(everyone - leader for everyone, leader in pairs),
        "all_s": statistics.median(everyone for everyone, _ in pairs),
        "leader_s": statistics.median(leader for _, leader in pairs),
    }


async def broker_loss(cluster: SizingCluster, layout: Layout) -> dict[str, Any]:
    """Kill a broker, and return when the partitions that it led have another leader; the broker stays dead.

    Records are sent to every replica that is left, again and again, so that no metadata has to be fetched: the first
    one that is acknowledged ends the partition's unavailability.
    """
    victim = max(cluster.brokers, key=lambda node: len(layout.led_by(node)))
    led = layout.led_by(victim)
    sample = led[:: max(1, len(led) // SAMPLE)]
    async with connections(cluster, (node for node in cluster.brokers if node != victim)) as opened:
        served: dict[int, float] = {}
        killed = time.monotonic()
        cluster.kill(victim)
        probes = [_until_served(layout, node, sample, connection, served) for node, connection in opened.items()]
        async with asyncio.timeout(WITHIN_S):
            await asyncio.gather(*probes)
    times = sorted(when - killed for when in served.values())
    return {
        "victim": victim,
        "led": len(led),
        "sampled": len(sample),
        "first_s": times[0],
        "median_s": statistics.median(times),
        "last_s": times[-1],
        "load": os.getloadavg()[0],
    }


async def _until_served(
    layout: Layout, node: int, sample: Sequence[int], connection: Connection, served: dict[int, float]
) -> None:
    """Write to the partitions of which a broker has a replica until each is led by it or by another."""
    ours = [number for number in sample if node in layout.partitions[number].replicas]
    while missing := [number for number in ours if number not in served]:
        body = wire.produce(layout.topic, missing, RECORD, LEADER_ONLY)
        answer = wire.produced(await connection.request(wire.PRODUCE, body))
        now = time.monotonic()
        for number in missing:
            if answer.errors[number] == 0:
                served.setdefault(number, now)
        await asyncio.sleep(PROBE_S)


async def controller_loss(cluster: SizingCluster, layout: Layout) -> dict[str, Any]:
    """Kill the active controller; return when another one answers, and the longest wait of a write meanwhile."""
    async with connections(cluster, cluster.brokers) as opened, connections(cluster, [1, 2]) as asking:
        victim = await _active(asking[1])
        writing = {
            node: asyncio.create_task(_longest_gap(connection, wire.produce(layout.topic, part, RECORD, ALL)))
            for node, connection in opened.items()
            if (part := layout.led_by(node)[:1])
        }
        try:
            await asyncio.sleep(0.5)
            killed = time.monotonic()
            cluster.kill(victim)
            async with asyncio.timeout(WITHIN_S):
                while wire.validated(
                    await asking[2].request(wire.CREATE_TOPICS, wire.validate_topic(f"{layout.topic}-other"))
                ):
                    await asyncio.sleep(PROBE_S)
            away = time.monotonic() - killed
            await asyncio.sleep(0.5)
        finally:
            for task in writing.values():
                task.cancel()
            gaps = await asyncio.gather(*writing.values())
        return {"victim": victim, "away_s": away, "longest_write_s": max(gaps), "load": os.getloadavg()[0]}


async def _longest_gap(connection: Connection, body: bytes) -> float:
    """Write until cancelled; return the longest time between two acknowledgements."""
    longest, last = 0.0, time.monotonic()
    with suppress(asyncio.CancelledError):
        while True:
            await _timed(connection, body)
            now = time.monotonic()
            longest, last = max(longest, now - last), now
            await asyncio.sleep(PROBE_S)
    return longest


async def _active(connection: Connection) -> int:
    async with asyncio.timeout(WITHIN_S):
        while True:
            leader = wire.quorum_leader(await connection.request(wire.DESCRIBE_QUORUM, wire.describe_quorum()))
            if leader > 0:
                return leader
            await asyncio.sleep(PROBE_S)


async def transfer(cluster: SizingCluster, layout: Layout, groups: int, size: int) -> dict[str, Any]:
    """Write about ``size`` bytes evenly to all partitions with acks=all, while groups read them; return the cost."""
    batch = wire.batch(os.urandom(1000), BATCH_RECORDS)
    turns = max(1, round(size / (len(batch) * len(layout.partitions))))
    total = turns * len(batch) * len(layout.partitions)
    pids = {cluster.pid(node): node for node in cluster.brokers}
    async with connections(cluster, cluster.brokers) as opened:
        readers = [await _reader(cluster, layout) for _ in range(groups)]
        try:
            await _write_all(opened, layout, batch, 1)
            records = BATCH_RECORDS * len(layout.partitions)
            await asyncio.gather(*(_read(reader, records) for reader in readers))
            await asyncio.sleep(SETTLE_S)
            before = _account(pids)
            begin = time.monotonic()
            reading = [asyncio.create_task(_read(reader, turns * records)) for reader in readers]
            await _write_all(opened, layout, batch, turns)
            await asyncio.gather(*reading)
            seconds = time.monotonic() - begin
            await asyncio.sleep(SETTLE_S)
            after = _account(pids)
        finally:
            for reader in readers:
                await reader.stop()
    return {
        "bytes": total,
        "seconds": seconds,
        "brokers": {str(node): _difference(before[node], after[node]) for node in pids.values()},
        "load": os.getloadavg()[0],
    }


async def _reader(cluster: SizingCluster, layout: Layout) -> AIOKafkaConsumer:
    consumer = AIOKafkaConsumer(
        bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest", enable_auto_commit=False
    )
    await consumer.start()
    consumer.assign([TopicPartition(layout.topic, number) for number in layout.partitions])
    await consumer.seek_to_end()
    return consumer


async def _read(consumer: AIOKafkaConsumer, records: int) -> None:
    async with asyncio.timeout(WITHIN_S):
        while records > 0:
            found = await consumer.getmany(timeout_ms=1000)
            records -= sum(map(len, found.values()))


async def _write_all(opened: Mapping[int, Connection], layout: Layout, batch: bytes, turns: int) -> None:
    """Write ``turns`` batches to each partition, one request at a time to each broker."""

    async def write(node: int, connection: Connection) -> None:
        led = layout.led_by(node)
        # A request of at most a megabyte, as clients send.
        parts = [led[at : at + 12] for at in range(0, len(led), 12)]
        for _ in range(turns):
            for part in parts:
                await _timed(connection, wire.produce(layout.topic, part, batch, ALL))

    await asyncio.gather(*(write(node, connection) for node, connection in opened.items()))


def _account(pids: Mapping[int, int]) -> dict[int, dict[str, float]]:
    """Return what each broker has written, received and sent so far, and its CPU time."""
    matrix, clients = received(), os.getpid()
    found = {}
    for pid, node in pids.items():
        others = pids.keys() - {pid}
        found[node] = {
            "disk": float(written_bytes(pid)),
            "cpu_s": cpu_seconds(pid),
            "from_clients": float(matrix.get((clients, pid), 0)),
            "to_clients": float(matrix.get((pid, clients), 0)),
            "from_brokers": float(sum(matrix.get((each, pid), 0) for each in others)),
            "to_brokers": float(sum(matrix.get((pid, each), 0) for each in others)),
        }
    return found


def _difference(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, float]:
    return {name: round(after[name] - before[name], 6) for name in after}


async def consumption(cluster: SizingCluster, layout: Layout, records: int, consumers: int) -> dict[str, Any]:
    """Write records of about 256 bytes, and return what consumers that share the partitions take to read them."""
    batch = wire.batch(os.urandom(240), 100)
    turns = max(1, round(records / (100 * len(layout.partitions))))
    async with connections(cluster, cluster.brokers) as opened:
        await _write_all(opened, layout, batch, turns)
    shares = [[number for number in layout.partitions if number % consumers == at] for at in range(consumers)]
    readers = []
    try:
        for _ in shares:
            consumer = AIOKafkaConsumer(
                bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest", enable_auto_commit=False
            )
            await consumer.start()
            readers.append(consumer)
        cpu, begin = time.process_time(), time.monotonic()
        for consumer, share in zip(readers, shares, strict=True):
            consumer.assign([TopicPartition(layout.topic, number) for number in share])
        await asyncio.gather(
            *(_read(reader, 100 * turns * len(share)) for reader, share in zip(readers, shares, strict=True))
        )
        cpu, seconds = time.process_time() - cpu, time.monotonic() - begin
    finally:
        for consumer in readers:
            await consumer.stop()
    total = 100 * turns * len(layout.partitions)
    return {"records": total, "cpu_s": cpu, "seconds": seconds, "load": os.getloadavg()[0]}


async def single_partition(cluster: SizingCluster, layout: Layout, size: int) -> dict[str, Any]:
    """Return the throughput of one partition with acks=all: four writers, batches of 64 kB (T_P)."""
    leader = layout.partitions[0].leader
    batch = wire.batch(os.urandom(1000), BATCH_RECORDS)
    body, turns = wire.produce(layout.topic, [0], batch, ALL), max(1, round(size / len(batch) / 4))
    writers = [await Connection.open(cluster.port(leader)) for _ in range(4)]

    async def write(connection: Connection) -> None:
        for _ in range(turns):
            await _timed(connection, body)

    try:
        begin = time.monotonic()
        await asyncio.gather(*map(write, writers))
        seconds = time.monotonic() - begin
    finally:
        for writer in writers:
            writer.close()
    return {"bytes": turns * 4 * len(batch), "seconds": seconds, "load": os.getloadavg()[0]}
