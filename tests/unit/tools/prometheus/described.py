"""Descriptions of running systems, as ``diem up`` makes them, without any process."""

from pathlib import Path
from typing import Any

from deploy.system.description import describe
from deploy.topology import KafkaTopology, Mode, Ports, Programs, compose, sizes_of, slots
from diem.process.supervisor import ChildState, ChildStatus
from services.composite.plan import child_names
from tests.unit.deploy.topology.topologies import options_of


def described(mode: Mode, servers: int = 1, clones: int | None = None) -> dict[str, Any]:
    """Return the description of a running system, with the documented ports."""
    kafka = KafkaTopology(brokers=1) if mode.uses_kafka else KafkaTopology()
    options = options_of(mode, Path("/state"), servers, clones=clones, kafka=kafka)
    ports = {slot.name: Ports(slot.public, slot.internal) for slot in slots(mode, sizes_of(options))}
    topology = compose(options, ports, Programs(("diem",)))
    statuses = [
        ChildStatus(process.name, ChildState.RUNNING, 7, 1.0, 0, None) for process in topology.active(topology.servers)
    ]
    return describe(topology, statuses, up=True, uptime_seconds=1, servers=topology.servers)


def with_pairs(status: dict[str, Any], pairs: int) -> dict[str, Any]:
    """Return the status with the reports of its composites."""
    for process in status["processes"]:
        if process["process"] == "composite":
            children = [
                {"name": name, "process": name.partition("-")[0], "urls": {"internal": f"http://127.0.0.1:{port}"}}
                for port, name in enumerate(child_names(pairs), 30_000)
            ]
            process["report"] = {"children": children}
    return status
