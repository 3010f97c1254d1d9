"""Topologies for tests, with every default port free."""

from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

from deploy.topology import (
    Clients,
    Content,
    Durations,
    KafkaTopology,
    Mode,
    Options,
    Planned,
    Programs,
    Scaling,
    Slot,
    Topology,
    assign_ports,
    compose,
    sizes,
    sizes_of,
    slots,
)
from deploy.topology.ports import start_at_default

STATE: Final = Path("/state")
PROGRAMS: Final = Programs(("python", "-m", "deploy"), {"nginx": ("guard", "nginx"), "kafka-1": ("guard", "java")})
KAFKA: Final = [mode for mode in Mode if mode.uses_kafka]
CLUSTER: Final = KafkaTopology(bootstrap_servers="h:1")
SERVED: Final = KafkaTopology(bootstrap_servers="h:1", topic="orders", topic_key="{id}", topic_partitioner="murmur2")
"""With a topic of other programs, which is served as it is."""


def all_but(*ports: int) -> Callable[[int], bool]:
    """Return a function that reserves all ports but these."""
    return lambda port: port not in ports


def slots_of(mode: Mode, servers: int = 1, max_servers: int | None = None, brokers: int = 0) -> tuple[Slot, ...]:
    """Return the slots of a mode."""
    return slots(mode, sizes(mode, servers, max_servers, brokers))


def options_of(mode: Mode, state_dir: Path = STATE, servers: int = 1, **given: Any) -> Options:
    """Return options; the fields of their parts are given by name alone."""
    given["servers"] = servers
    kinds: dict[str, type[Any]] = {"scaling": Scaling, "clients": Clients, "content": Content, "durations": Durations}
    parts = {
        part: kind(**{each.name: given.pop(each.name) for each in fields(kind) if each.name in given})
        for part, kind in kinds.items()
    }
    return Options(mode, state_dir, **parts, **given)


def topology(mode: Mode, servers: int = 1, max_servers: int | None = None, **others: Any) -> Topology:
    """Return the topology of a mode on its default ports."""
    options = options_of(mode, STATE, servers, max_servers=max_servers, **others)
    wanted = slots(mode, sizes_of(options))
    return compose(options, assign_ports(wanted, {}, start_at_default, all_but()), PROGRAMS)


def process(of: Topology, name: str) -> Planned:
    """Return a process by name."""
    (found,) = [process for process in of.processes if process.name == name]
    return found


def env(of: Topology, name: str) -> Mapping[str, str]:
    """Return the environment of a process."""
    return process(of, name).env
