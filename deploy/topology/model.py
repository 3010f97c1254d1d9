"""Types of a topology: slots without ports, planned processes, and the topology as a whole."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple

from deploy.topology.public_address import PublicAddress
from diem.process.addresses import HOST, Ports
from diem.process.modes import Mode, StopStage, number_in
from services.composite.plan import child_names

__all__ = ["HOST", "SCALED", "Planned", "Ports", "Readiness", "Slot", "StopStage", "Topology"]

SCALED: Final = frozenset({"bridge", "websocket", "composite"})
"""Processes scaled by ``diem scale``."""


class Readiness(Enum):
    """Means of observing readiness from outside."""

    READYZ = "/readyz of its internal listener"
    HTTP = "any HTTP response of its public port"
    CONNECT = "connections to its public port"


class Slot(NamedTuple):
    """A process of a mode with its default ports; None means that it has no such listener.

    ``number`` counts within the clone: two clones of two servers are websocket-1 to -4, with numbers 1, 2, 1, 2.
    ``shares_port``: all of its kind have one public port.
    """

    name: str
    process: str
    number: int
    stage: StopStage
    public: int | None
    internal: int | None
    clone: int = 1
    shares_port: bool = False

    def twin(self, process: str) -> str:
        """Return the name of the other process of the same pair."""
        return f"{process}-{number_in(self.name)}"


@dataclass(frozen=True, slots=True)
class Planned:
    """One process to run; ``env`` overrides the environment of ``diem up``."""

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
    """Kill its process group after its death: its own children survive it."""
    reloads: bool = False
    """SIGHUP makes it reload its certificate."""
    clone: int | None = None
    """Number of its clone; None if the mode or process has only one."""


@dataclass(frozen=True, slots=True)
class Topology:
    """The processes of a mode, and the addresses for people and programs."""

    mode: Mode
    processes: tuple[Planned, ...]
    """All possible processes, in display order."""
    servers: int
    """Initial number of scaled processes: servers, in mode xz composites."""
    max_servers: int
    clones: int
    pairs: int
    """Initial number in each composite; 0 without composites."""
    page_url: str
    rest_url: str
    websocket_urls: tuple[str, ...]
    """All possible URLs for clients, running or not."""
    metadata_urls: tuple[str, ...] = ()
    """Services for clients to locate endpoints; empty if not needed."""
    public: PublicAddress = field(default_factory=PublicAddress)

    @property
    def topic(self) -> str | None:
        """The topic that is served as it is; None without one."""
        return next((p.env["DIEM_KAFKA_TOPIC"] for p in self.processes if p.env.get("DIEM_KAFKA_TOPIC")), None)

    @property
    def local_brokers(self) -> tuple[str, ...]:
        """Addresses of the brokers among the processes."""
        return tuple(f"{p.ports.host}:{p.ports.public}" for p in self.processes if p.process == "kafka")

    def active(self, servers: int) -> tuple[Planned, ...]:
        """Return the processes for ``servers`` servers."""
        return tuple(p for p in self.processes if p.process not in SCALED or p.number <= servers)

    def names(self, servers: int) -> tuple[str, ...]:
        """Return the names of the processes for ``servers`` servers, including children of composites."""
        pairs = servers if self.mode is Mode.Z_COMPOSITE else self.pairs
        found = []
        for process in self.active(servers):
            inside = child_names(pairs) if process.process == "composite" else ()
            found += [process.name, *(f"{process.name}/{child}" for child in inside)]
        return tuple(found)

    def client_urls(self, servers: int) -> tuple[str, ...]:
        """Return the URLs for clients with ``servers`` servers."""
        idle = {p.public_url for p in self.processes} - {p.public_url for p in self.active(servers)}
        return tuple(url for url in self.websocket_urls if url not in idle)
