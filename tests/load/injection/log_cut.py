"""The log is cut while no bridge reads, and nothing is written afterwards: who is live must be current all the same."""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from math import inf
from time import monotonic

from aiokafka import AIOKafkaConsumer, TopicPartition

from deploy.topology.kafka_users import directory_of
from diem.kafka.config import KafkaOptions
from tests.load.bench import Goal
from tests.load.injection.kafka import recreate_topic
from tests.load.injection.scene import Inject, Scene
from tests.load.system import NotUp
from tests.load.writes import BATCH
from tests.oracle.history import Event, Fault, History, Kind
from tests.support.topics import altered, delete_records

CURRENT_SECONDS = 10.0
"""Time after which no client may be live with an old version."""
HEAL_SECONDS = 20.0
"""Time until all are current: a publisher that saw the topic's settings altered looks again after 10 s."""
OBSERVED_SECONDS = 22.0
"""Time without a write after the cut."""
LIVE_SECONDS = 40.0
PUBLISHED_SECONDS = 5.0
CUT_SECONDS = 5.0
"""Longest cut: a bridge must stand still for less than the 12 s after which it is replaced."""
POLL_SECONDS = 0.1
RETENTION = "log.retention.check.interval.ms=500\nlog.initial.task.delay.ms=500\n"
"""Settings of a broker: it looks for records to delete twice a second, and not every five minutes."""


def cut(kind: str, delete: Callable[[Scene], Awaitable[object]], prepare: Callable[[Scene], Awaitable[None]]) -> Inject:
    """Stop the bridges (SIGSTOP), change every endpoint, ``delete`` the log, continue, and write nothing for 22 s."""

    async def inject(scene: Scene) -> Fault:
        start = monotonic()
        await prepare(scene)
        with ExitStack() as holding:
            with _stopped(scene):
                names = scene.writer.endpoints
                async with asyncio.TaskGroup() as tasks:
                    for first in range(0, len(names), BATCH):
                        tasks.create_task(scene.writer.change(names[first : first + BATCH]))
                holding.enter_context(scene.writer.held())
                await _until_published(scene)
                await delete(scene)
            resumed = monotonic()
            await asyncio.sleep(OBSERVED_SECONDS)
        scene.later.append(
            lambda history: Goal(
                f"{kind}: pairs of client and endpoint old and live after {CURRENT_SECONDS:.0f} s",
                "",
                0,
                old_and_live(history, resumed, resumed + CURRENT_SECONDS),
            )
        )
        return Fault(kind, "all partitions", start, resumed, heal=HEAL_SECONDS)

    return inject


async def nothing(_scene: Scene) -> None:
    """Prepare nothing."""


async def delete_all(scene: Scene) -> None:
    """Delete the records of updates, up to the end of every partition (DeleteRecords)."""
    options = scene.brokers.options
    await delete_records(options, *options.names.log)


async def with_quick_retention(scene: Scene) -> None:
    """Restart the brokers with a short interval of their retention checks, unless they have it."""
    for broker in scene.brokers.processes():
        file = directory_of(scene.system.state) / broker.name / "server.properties"
        content = file.read_text(encoding="utf-8")
        if RETENTION not in content:
            file.write_text(content + RETENTION, encoding="utf-8")
            await scene.system.back(broker.name, await scene.system.kill(broker.name))
    if not await scene.clients.until(lambda figures: figures["live"] == figures["present"], LIVE_SECONDS):
        raise NotUp("not all clients are live again")


async def expire(scene: Scene) -> None:
    """Let the brokers delete all records as too old, by the topics' settings for a moment."""
    options = scene.brokers.options
    begin, end = await _offsets(options)
    limit = monotonic() + CUT_SECONDS
    async with altered(options, {"cleanup.policy": "delete", "retention.ms": "1"}, *options.names.log):
        while any(begin[part] < end[part] for part in end):
            if monotonic() > limit:
                raise NotUp(f"the records were not deleted within {CUT_SECONDS:.0f} s")
            await asyncio.sleep(POLL_SECONDS)
            begin, _ = await _offsets(options)


LOG_CUTS: dict[str, Inject] = {
    "cut-log-records": cut("cut-log-records", delete_all, nothing),
    "cut-log-retention": cut("cut-log-retention", expire, with_quick_retention),
    "cut-log-topic": cut("cut-log-topic", recreate_topic, nothing),
}
"""The ways in which a log loses what nobody has read, by name."""


@contextmanager
def _stopped(scene: Scene) -> Iterator[None]:
    """Let no bridge run in this block."""
    bridges = [process for process in scene.system.processes() if process.name.startswith("bridge-") and process.pid]
    if not bridges:
        raise NotUp("there are no bridges")
    try:
        for bridge in bridges:
            os.kill(bridge.pid or 0, signal.SIGSTOP)
        yield
    finally:
        for bridge in bridges:
            try:
                os.kill(bridge.pid or 0, signal.SIGCONT)
            except ProcessLookupError:
                # On a slow machine it stood still for so long that it was replaced.
                scene.system.kills[bridge.name] += 1


async def _until_published(scene: Scene) -> None:
    limit = monotonic() + PUBLISHED_SECONDS
    while (await scene.system.ask("data", "GET", "/status")).json()["publisher"]["lag"]:
        if monotonic() > limit:
            raise NotUp("the publisher is not done")
        await asyncio.sleep(POLL_SECONDS)


async def _offsets(options: KafkaOptions) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    consumer = AIOKafkaConsumer(*options.names.log, **options.client_arguments())
    await consumer.start()
    try:
        parts = [
            TopicPartition(topic, number)
            for topic in options.names.log
            for number in consumer.partitions_for_topic(topic) or ()
        ]
        return await consumer.beginning_offsets(parts), await consumer.end_offsets(parts)
    finally:
        await consumer.stop()


def old_and_live(history: History, since: float, at: float) -> int:
    """Count the pairs whose client is live ``at`` a time, and knows no version accepted until ``since`` or later."""
    newest: dict[str, int] = {}
    for change in history.accepted:
        if change.time <= since:
            newest[change.endpoint] = max(change.version, newest.get(change.endpoint, 0))
    return sum(_pairs(events, newest, at) for events in history.clients.values())


def _pairs(events: list[Event], newest: dict[str, int], at: float) -> int:
    live: dict[int, bool] = {}
    stale: set[tuple[int, str]] = set()
    subscribed: dict[tuple[int, str], None] = {}
    known: dict[str, float] = {}
    for time, kind, endpoint, version, code, link in events:
        if time > at:
            break
        if kind == Kind.STATUS and not endpoint:
            live[link] = bool(code)
            stale = {pair for pair in stale if pair[0] != link}
        elif kind == Kind.STATUS:
            (stale.discard if code else stale.add)((link, endpoint))
        elif kind in (Kind.SUBSCRIBED, Kind.UPDATE, Kind.HELD):
            known[endpoint] = max(version, known.get(endpoint, 0))
            if kind == Kind.SUBSCRIBED:
                subscribed[link, endpoint] = None
        elif kind == Kind.RESYNC:
            # It fetches, from a service that has everything.
            known[endpoint] = inf
        elif kind in (Kind.UNSUBSCRIBE, Kind.UNSUBSCRIBED, Kind.MOVED):
            # The first is the client's, on whichever link the endpoint is, perhaps before it is confirmed there.
            ended = {(any_link, endpoint) for any_link in live} if kind == Kind.UNSUBSCRIBE else {(link, endpoint)}
            subscribed = {pair: None for pair in subscribed if pair not in ended}
        elif kind in (Kind.OPEN, Kind.CLOSE):
            subscribed = {pair: None for pair in subscribed if pair[0] != link}
            live[link] = False
    return sum(
        live.get(link, False) and (link, endpoint) not in stale and known[endpoint] < newest.get(endpoint, 0)
        for link, endpoint in subscribed
    )
