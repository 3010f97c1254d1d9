"""Faults of the brokers and of their topic."""

import asyncio
import os
import signal
from collections import Counter
from contextlib import suppress
from time import monotonic

from diem.kafka.errors import KafkaUnavailable
from tests.load.bench import Goal
from tests.load.injection.scene import Scene
from tests.load.mixed_writer import REFUSED
from tests.load.system import START_SECONDS, NotUp, System
from tests.oracle.history import Fault, History, Kind

HEAL_SECONDS = 20.0
STOPPED_SECONDS = 15.0
DOWN_SECONDS, DOWN_QUICK_SECONDS = 60.0, 20.0
TOLD_SECONDS = 15.0
_TAKEN = {"200", *(str(int(status)) for status in REFUSED)}
"""Statuses of success: also of writes of what is not there any more, or has another version than the named one."""


async def kill_leader(scene: Scene) -> Fault:
    """Kill the broker that leads most partitions of the updates topic."""
    await scene.brokers.until_in_sync()
    return await _kill(scene, "kill-broker", await scene.brokers.leader_of_most())


async def kill_controller(scene: Scene) -> Fault:
    """Kill the broker that was the first active controller."""
    await scene.brokers.until_in_sync()
    return await _kill(scene, "kill-controller", scene.brokers.controller())


async def stop_leader(scene: Scene) -> Fault:
    """Stop the broker (SIGSTOP) that leads most partitions of the updates topic."""
    await scene.brokers.until_in_sync()
    target = await scene.brokers.leader_of_most()
    start, pid = monotonic(), scene.system.process(target).pid
    if pid is None:
        raise NotUp(f"{target} does not run")
    os.kill(pid, signal.SIGSTOP)
    try:
        await asyncio.sleep(STOPPED_SECONDS)
    finally:
        os.kill(pid, signal.SIGCONT)
    return Fault("stop-broker", target, start, monotonic(), heal=HEAL_SECONDS)


async def all_down(scene: Scene) -> Fault:
    """Kill every broker as often as it is restarted; over when the last one accepts connections."""
    others, answers, start = _restarts(scene.system), Counter(scene.writer.statuses), monotonic()
    killed: dict[str, int] = {}
    while monotonic() < start + (DOWN_QUICK_SECONDS if scene.quick else DOWN_SECONDS):
        for broker in scene.brokers.processes():
            if broker.pid and broker.pid != killed.get(broker.name):
                scene.system.end(broker)
                killed[broker.name] = broker.pid
        await asyncio.sleep(0.05)
    answers = scene.writer.statuses - answers
    end = max([await scene.system.back(name, pid) for name, pid in killed.items()])
    scene.goals.extend(
        [
            Goal("writes accepted while all brokers are down", "requests", 100, answers["200"], at_least=True),
            Goal(
                "writes refused while all brokers are down",
                "requests",
                0,
                sum(number for answer, number in answers.items() if answer not in _TAKEN),
            ),
            Goal(
                "restarts besides the brokers', while all are down",
                "",
                0,
                sum(_restarts(scene.system).values()) - sum(others.values()),
            ),
        ]
    )
    scene.later.append(
        lambda history: Goal(
            "all brokers down, the last client is told live:false", "s", TOLD_SECONDS, told(history, start)
        )
    )
    return Fault("all-brokers-down", ", ".join(killed), start, end, heal=HEAL_SECONDS, told=TOLD_SECONDS)


async def recreate_topic(scene: Scene) -> Fault:
    """Delete the updates topic; over when the publisher has recreated it."""
    before, start = await scene.brokers.topic(), monotonic()
    if before is None:
        raise NotUp("there is no updates topic")
    await scene.brokers.delete_topic()
    while monotonic() < start + START_SECONDS:
        with suppress(KafkaUnavailable):
            topic = await scene.brokers.topic()
            if topic and topic.id != before.id:
                return Fault("recreate-topic", topic.name, start, monotonic())
        await asyncio.sleep(0.1)
    raise NotUp("nobody made the topic again")


def told(history: History, since: float) -> float | None:
    """Return the seconds from ``since`` until the last client got live:false; None if none did."""
    first = [
        next(
            (event.time for event in events if event.time >= since and event.kind == Kind.STATUS and not event.code),
            None,
        )
        for events in history.clients.values()
    ]
    return max((round(time - since, 2) for time in first if time is not None), default=None)


async def _kill(scene: Scene, kind: str, target: str) -> Fault:
    start = monotonic()
    end = await scene.system.back(target, await scene.system.kill(target))
    return Fault(kind, target, start, end, heal=HEAL_SECONDS)


def _restarts(system: System) -> dict[str, int]:
    return {process.name: process.restarts for process in system.processes() if not process.name.startswith("kafka-")}
