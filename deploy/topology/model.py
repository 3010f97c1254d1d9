"""Types of a topology: slots without ports, planned processes, and the topology as a whole."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

from deploy.topology.options import Mode
from diem.process.environment import HOST, Ports, StopStage
from services.composite.plan import child_names

__all__ = ["HOST", "SCALED", "Planned", "Ports", "Readiness", "Slot", "StopStage", "Topology"]

SCALED: Final = frozenset({"bridge", "websocket", "composite"})
"""The processes whose number `diem scale` changes."""


class Readiness(Enum):
    """How readiness is observed from outside."""

    READYZ = "its internal listener says so"
    HTTP = "its public port answers HTTP, whatever it says"
    CONNECT = "its public port takes connections"


class Slot(NamedTuple):
    """A process of a mode before it has ports; port None means that it has no such listener.

    `number` counts within the clone: two clones of two servers have websocket-1 to websocket-4, and numbers 1, 2, 1, 2.
    """

    name: str
    process: str
    number: int
    stage: StopStage
    public: int | None
    internal: int | None
    clone: int = 1

    def twin(self, process: str) -> str:
        """Return the name of the other process of the same pair."""
        return f"{process}-{self.name.rpartition('-')[2]}"


@dataclass(frozen=True, slots=True)
class Planned:
    """One process as it is to be run: `env` is laid over the environment of `diem up`."""

    name: str
    process: str
    number: int
    stage: StopStage
    argv: tuple[str, ...]
    env: Mapping[str, str]
    ports: Ports
    public_url: str | None
    internal_url: str | None
    readiness: Readiness
    sweep: bool = False
    """Kill its process group after its death: its own children outlive it."""


@dataclass(frozen=True, slots=True)
class Topology:
    """The processes of a mode, and where people and programs find them."""

    mode: Mode
    processes: tuple[Planned, ...]
    """All that may ever run, in the order in which they are shown."""
    servers: int
    """Initial number of what `diem scale` changes: servers, in mode xz composites."""
    max_servers: int
    clones: int
    pairs: int
    """In each composite at first; 0 where there are none."""
    page_url: str
    rest_url: str
    websocket_urls: tuple[str, ...]
    """URLs to which clients may connect, whether or not the process runs now."""
    metadata_urls: tuple[str, ...] = ()
    """Services by which clients locate endpoints; empty where they need not."""

    def active(self, servers: int) -> tuple[Planned, ...]:
        """Return the processes that run when there are `servers` servers."""
        return tuple(p for p in self.processes if p.process not in SCALED or p.number <= servers)

    def names(self, servers: int) -> tuple[str, ...]:
        """Return the names of what runs when there are `servers` servers; with the children of each composite."""
        pairs = servers if self.mode is Mode.Z_COMPOSITE else self.pairs
        found = []
        for process in self.active(servers):
            inside = child_names(pairs) if process.process == "composite" else ()
            found += [process.name, *(f"{process.name}/{child}" for child in inside)]
        return tuple(found)

    def client_urls(self, servers: int) -> tuple[str, ...]:
        """Return the URLs to which clients connect when there are `servers` servers."""
        idle = {p.public_url for p in self.processes} - {p.public_url for p in self.active(servers)}
        return tuple(url for url in self.websocket_urls if url not in idle)
