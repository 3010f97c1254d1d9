"""Reads the figures of a running system: rates from ``diem status``, topic sizes from Kafka.

All I/O of ``diem size`` is here.
"""

import asyncio
import time
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from deploy.system import control
from deploy.system.description import with_children
from deploy.system.state_dir import StateDir
from deploy.topology import Mode
from diem.kafka.client import connected_client
from diem.kafka.config import KafkaOptions
from diem.kafka.metadata import Cluster, describe
from tools.check.collect import broker_settings
from tools.check.facts import Settings
from tools.size.sizing import Figure, Figures

SAMPLE_S: Final = 1.0
"""Duration of measuring the rate of updates."""
CONNECT_TIMEOUT_S: Final = 8.0
SESSION_TIMEOUT: Final = "broker.session.timeout.ms"
_SERVER: Final = "websocket"


async def measure(state: StateDir, kafka: KafkaOptions | None) -> Figures:
    """Return the figures of the system in a state directory, with its brokers if it has Kafka.

    The rate is that of the last ``SAMPLE_S`` seconds.

    Raises:
        NotUp: nothing runs there.
        ControlFailed: it does not answer.
        KafkaUnavailable: no broker answers.
    """
    sampled, cluster = await asyncio.gather(_sample(state), _described(kafka))
    figures = of_status(*sampled)
    if cluster is None or kafka is None:
        return figures
    return with_cluster(figures, cluster.topology, cluster.brokers, kafka.names.updates)


async def _sample(state: StateDir) -> tuple[dict[str, Any], dict[str, Any], float]:
    before, begin = await control.request(state, "status"), time.monotonic()
    await asyncio.sleep(SAMPLE_S)
    after = await control.request(state, "status")
    return before, after, time.monotonic() - begin


class _Described(NamedTuple):
    """A cluster, and its brokers' visible settings."""

    topology: Cluster
    brokers: list[Settings]


async def _described(kafka: KafkaOptions | None) -> _Described | None:
    if kafka is None:
        return None
    async with connected_client(kafka, within=CONNECT_TIMEOUT_S) as client:
        cluster = await describe(client)
        found = await asyncio.gather(*(broker_settings(client, number) for number in cluster.brokers))
    return _Described(cluster, [settings for settings in found if settings])


def of_status(before: dict[str, Any], after: dict[str, Any], seconds: float) -> Figures:
    """Return the figures of two replies of ``status``, ``seconds`` apart."""
    mode = Mode(after["mode"])
    reports = {name: process.get("report") or {} for name, process in with_children(after["processes"])}
    servers = [reports[name] for name, process in with_children(after["processes"]) if _is_server(name, process)]
    data = next((report for report in reports.values() if "sequence" in report), {})
    updates = max(0, data.get("sequence", 0) - _sequence(before)) / seconds
    endpoints = int(data.get("endpoints", 0))
    subscriptions = sum(int(report.get("subscriptions") or 0) for report in servers)
    clones = max(1, int(after.get("clones") or 1)) if mode.partitioned else 1
    running = max(1, len(servers))
    now = f"mode {mode}, now"
    return Figures(
        updates=Figure(updates, f"measured for {seconds:.1f} s"),
        subscribers=Figure(subscriptions / endpoints if endpoints else 0.0, "subscriptions per endpoint, now"),
        servers=Figure(max(1, running // clones), now),
        # A group per clone if servers divide the updates, else per server, which reads all of them.
        groups=Figure(clones if mode.partitioned else running, now),
        partitioned=mode.partitioned,
    )


def _is_server(name: str, process: dict[str, Any]) -> bool:
    return process.get("process") == _SERVER or name.rpartition("/")[2].startswith(f"{_SERVER}-")


def _sequence(status: dict[str, Any]) -> int:
    reports = ((process.get("report") or {}) for _, process in with_children(status["processes"]))
    return next((int(report["sequence"]) for report in reports if "sequence" in report), 0)


def with_cluster(figures: Figures, cluster: Cluster, brokers: Iterable[Settings], updates: str) -> Figures:
    """Return the figures with the brokers and partitions of a cluster, and its session timeout."""
    topic = cluster.topics.get(updates)
    present = 0 if topic is None else len(topic.partitions)
    others = sum(len(each.partitions) for each in cluster.topics.values()) - present
    changed = {
        "brokers": Figure(max(1, len(cluster.brokers)), "Kafka, now"),
        "other_partitions": Figure(others, "Kafka, now"),
    }
    if timeouts := [int(found) for each in brokers if (found := each.get(SESSION_TIMEOUT))]:
        changed["session_timeout_s"] = Figure(max(timeouts) / 1000, "Kafka, now")
    if present:
        changed["partitions"] = Figure(present, f"topic {updates}, now")
    return figures.replaced(changed)
