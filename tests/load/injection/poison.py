"""Records that are not updates, written under load by another producer (invariant I13)."""

import asyncio
import os
from collections.abc import Iterable
from time import monotonic
from typing import Any

import orjson

from diem.protocol.partitioners import partition_of
from diem.protocol.update import encode
from tests.load.bench import Goal
from tests.load.brokers import Record
from tests.load.injection.scene import Scene
from tests.load.processes import Process
from tests.load.system import NotUp
from tests.oracle.history import Event, Fault, History, Kind

DELAY_SECONDS = 1.0
"""Longest delay of a partition by a bad record."""
PASSED_SECONDS = 20.0
RESYNC_SECONDS = 5.0
OVERSIZE_BYTES = 130_000
"""Nearly the limit of the topic."""
_FUTURE = 3_000_000_000_000
"""A version that was never accepted: a client that gets it got it from a bad record."""

Place = tuple[int, int]
"""Partition and offset."""


def bad_records(endpoint: str, partition: int, other: str, other_version: int) -> list[Record]:
    """Return one bad record of every kind, most with the key of ``endpoint``; one has a value of ``other``.

    None is without a key: Kafka rejects those in a compacted topic.
    """
    key, future = endpoint.encode(), encode(endpoint, _FUTURE, _FUTURE)
    values = [
        future[: future.index(b"3000") + 4],  # JSON that breaks off
        os.urandom(1024),
        b'{"type":"status","live":true}',
        encode(other, other_version, other_version),
        future[:-1] + b',"x":"' + b"x" * OVERSIZE_BYTES + b'"}',
    ]
    return [*((partition, key, value) for value in values), (partition, b"", future), (partition, b"\xff /", future)]


async def poison(scene: Scene) -> Fault:
    """Write bad records of every kind and a tombstone to two partitions; over when every bridge has passed them."""
    topic = await scene.brokers.topic()
    if topic is None:
        raise NotUp("there is no updates topic")
    newest = scene.writer.newest()
    places = {partition_of(name.encode(), len(topic.partitions)): name for name in newest}
    chosen = list(places.items())[:2]
    records = [
        record
        for partition, name in chosen
        for other in [next(each for each in newest if each != name)]
        for record in bad_records(name, partition, other, newest[other])
    ]
    tombstones: list[Record] = [(partition, name.encode(), None) for partition, name in chosen]
    bridges = [process for process in scene.system.processes() if process.name.startswith("bridge-")]
    before = [await scene.system.counted(bridge) for bridge in bridges]
    start = monotonic()
    offsets = await scene.brokers.write([*records, *tombstones])
    written = [(partition, offset) for (partition, _, _), offset in zip(records, offsets, strict=False)]
    wanted = [{name: was.get(name, 0) + n for name, n in _counts(records, tombstones)} for was in before]
    passed = await _passed(scene, bridges, wanted)
    end = monotonic()
    logged = min(len(_logged(scene, bridge, written)) for bridge in bridges)
    scene.goals.extend(
        [
            Goal("bridges that counted every bad record and tombstone", "", len(bridges), passed, at_least=True),
            Goal("bad records that every bridge logged with their place", "", len(records), logged, at_least=True),
        ]
    )
    names = [name for _, name in chosen]
    scene.later.append(
        lambda history: Goal(
            "subscribers of a poisoned endpoint without a resync", "", 0, unresynced(history, names, start)
        )
    )
    return Fault("poison", f"partitions {[partition for partition, _ in chosen]}", start, end, heal=DELAY_SECONDS)


def unresynced(history: History, endpoints: Iterable[str], since: float) -> int:
    """Count the pairs of subscribed client and endpoint without a ``resync`` within 5 s of ``since``."""
    return sum(_owed(events, endpoint, since) for events in history.clients.values() for endpoint in endpoints)


def _owed(events: list[Event], endpoint: str, since: float) -> bool:
    subscribed = False
    for event in events:
        if event.time > since + RESYNC_SECONDS:
            break
        if event.time >= since and (event.kind == Kind.RESYNC and event.endpoint == endpoint):
            return False
        if event.kind == Kind.SUBSCRIBED and event.endpoint == endpoint:
            # A later subscriber has missed nothing.
            subscribed = subscribed or event.time < since
        elif event.kind == Kind.SUBSCRIBE and event.endpoint == endpoint and event.time >= since:
            # With its next poll it is a later subscriber: an update has come meanwhile.
            subscribed = False
        elif event.kind == Kind.CLOSE or (event.endpoint == endpoint and event.kind == Kind.UNSUBSCRIBE):
            subscribed = False
    return subscribed


def _counts(records: list[Record], tombstones: list[Record]) -> list[tuple[str, int]]:
    return [("bad", len(records)), ("tombstones", len(tombstones))]


async def _passed(scene: Scene, bridges: list[Process], wanted: list[dict[str, int]]) -> int:
    """Return the number of bridges with exactly the expected counts; waits until all have."""
    limit = monotonic() + PASSED_SECONDS
    while True:
        counted = [await scene.system.counted(bridge) for bridge in bridges]
        passed = sum(
            all(now.get(name) == number for name, number in numbers.items())
            for now, numbers in zip(counted, wanted, strict=True)
        )
        if passed == len(bridges) or monotonic() > limit:
            return passed
        await asyncio.sleep(0.05)


def _logged(scene: Scene, bridge: Process, written: list[Place]) -> set[Place]:
    lines = (scene.system.state / "logs" / f"{bridge.name}.log").read_bytes().splitlines()
    said: list[dict[str, Any]] = [orjson.loads(line) for line in lines if b'"offset":' in line]
    return {(line["partition"], line["offset"]) for line in said} & set(written)
