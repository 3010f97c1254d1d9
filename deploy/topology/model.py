"""The words in which a topology is described: modes, options, slots, ports, planned processes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, IntEnum, StrEnum
from pathlib import Path
from typing import ClassVar, Final, NamedTuple

from diem.process.faults import ConfigurationError
from services.composite.plan import child_names

HOST: Final = "127.0.0.1"
SCALED: Final = frozenset({"bridge", "websocket", "composite"})
"""The processes whose number `diem scale` changes."""


class Mode(StrEnum):
    """The scaling modes that `diem up` can start."""

    SINGLE = "single"
    X_BROADCAST = "x-broadcast"
    X = "x"
    ALL_TO_ALL = "all-to-all"
    Z_CLIENT = "z-client"
    Z_PROXY = "z-proxy"
    Z_COMPOSITE = "z-composite"
    XZ = "xz"

    @property
    def behind_nginx(self) -> bool:
        """Whether clients come through nginx, which spreads them over equal servers."""
        return self in {Mode.ALL_TO_ALL, Mode.X_BROADCAST, Mode.X, Mode.XZ}

    @property
    def partitioned(self) -> bool:
        """Whether each server has only some of the endpoints."""
        return self in {Mode.Z_CLIENT, Mode.Z_PROXY, Mode.Z_COMPOSITE, Mode.XZ}

    @property
    def uses_kafka(self) -> bool:
        """Whether updates go through Kafka."""
        return self is Mode.X or self.partitioned

    @property
    def edge(self) -> str:
        """The process that serves clients, whether or not nginx stands before it."""
        return {Mode.Z_PROXY: "proxy", Mode.Z_COMPOSITE: "composite", Mode.XZ: "composite"}.get(self, "websocket")


class ProxyMode(StrEnum):
    """How a proxy reaches servers: one connection to each for all its clients, or one for each client."""

    SHARED = "shared"
    PASSTHROUGH = "passthrough"


class Traffic(StrEnum):
    """Where is recorded what clients subscribe to."""

    OFF = "off"
    FILES = "files"
    KAFKA = "kafka"


class Stage(IntEnum):
    """The order of an orderly stop, the highest first: data flows upwards, and clients leave through nginx."""

    KAFKA = 0
    DATA = 1
    BROADCAST = 2
    METADATA = 3
    BRIDGE = 4
    NGINX = 5
    WEBSOCKET = 6
    EDGE = 7
    """What stands before servers that are not the clients' own business: a proxy, or a composite as a whole."""


class Readiness(Enum):
    """How one sees from outside that a process is ready."""

    READYZ = "its internal listener says so"
    HTTP = "its public port answers HTTP, whatever it says"
    CONNECT = "its public port takes connections"


class BadTopology(ConfigurationError):
    """The options do not fit the mode."""


class Slot(NamedTuple):
    """A process of a mode before it has ports; port None means that it has no such listener.

    `number` counts within the clone: two clones of two servers have websocket-1 to websocket-4, and numbers 1, 2, 1, 2.
    """

    name: str
    process: str
    number: int
    stage: Stage
    public: int | None
    internal: int | None
    clone: int = 1

    def twin(self, process: str) -> str:
        """Return the name of the other process of the same pair."""
        return f"{process}-{self.name.rpartition('-')[2]}"


class Ports(NamedTuple):
    """The ports of one process. A broker's internal one is its controller's."""

    public: int | None
    internal: int | None


@dataclass(frozen=True, slots=True)
class KafkaOptions:
    """Which Kafka is used: `brokers` of our own, or those that `bootstrap_servers` names. Paths are absolute."""

    NAMES: ClassVar[tuple[str, ...]] = (
        "bootstrap_servers",
        "topic_prefix",
        "partitions",
        "replication",
        "security_protocol",
        "sasl_mechanism",
        "sasl_username",
        "sasl_password_file",
        "ca_file",
        "certificate_file",
        "key_file",
    )

    brokers: int = 1
    bootstrap_servers: str | None = None
    topic_prefix: str | None = None
    partitions: int | None = None
    replication: int | None = None
    security_protocol: str | None = None
    sasl_mechanism: str | None = None
    sasl_username: str | None = None
    sasl_password_file: Path | None = None
    ca_file: Path | None = None
    certificate_file: Path | None = None
    key_file: Path | None = None

    @property
    def local_brokers(self) -> int:
        """How many brokers run here."""
        return 0 if self.bootstrap_servers else self.brokers


@dataclass(frozen=True, slots=True)
class Options:
    """What all processes of one `diem up` have in common. Paths are absolute.

    `servers` counts for each clone, with a bridge for each in the modes with Kafka. `clones` are groups that have
    every endpoint; None = 1, in mode xz 2. `max_servers` is how many servers, in mode xz clones, `diem scale` can start
    later; None = 8, or as many as there are at first if that is more.
    """

    mode: Mode
    state_dir: Path
    servers: int = 1
    config: Path | None = None
    log_level: str = "info"
    drain_seconds: float = 3.0
    time_factor: float = 1.0
    max_servers: int | None = None
    clones: int | None = None
    proxy: ProxyMode | None = None
    """Of modes with a proxy; None = shared."""
    hot: tuple[str, ...] = ()
    """Endpoints that every server shall have, for partitioned modes."""
    clients_per_address: int | None = None
    traffic: Traffic | None = None
    """None = in Kafka in the modes that use it, else in files."""
    kafka: KafkaOptions = field(default_factory=KafkaOptions)
    settings: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Variables for one process each, by its name; they win over what the plan gives it."""

    @property
    def traffic_sink(self) -> Traffic:
        """Where traffic is recorded."""
        return self.traffic or (Traffic.KAFKA if self.mode.uses_kafka else Traffic.FILES)


@dataclass(frozen=True, slots=True)
class Planned:
    """One process as it is to be run: `env` is laid over the environment of `diem up`."""

    name: str
    process: str
    number: int
    stage: Stage
    argv: tuple[str, ...]
    env: Mapping[str, str]
    ports: Ports
    public_url: str | None
    internal_url: str | None
    readiness: Readiness
    sweep: bool = False
    """What it leaves behind when it is killed has to be killed, too."""


@dataclass(frozen=True, slots=True)
class Topology:
    """The processes of a mode, and where people and programs find them."""

    mode: Mode
    processes: tuple[Planned, ...]
    """All that may ever run, in the order in which they are shown."""
    servers: int
    """How many there are at first of what `diem scale` changes: servers, in mode xz composites."""
    max_servers: int
    clones: int
    pairs: int
    """In each composite at first; 0 where there are none."""
    page_url: str
    rest_url: str
    websocket_urls: tuple[str, ...]
    """What clients may dial, whether or not it runs now."""
    metadata_urls: tuple[str, ...] = ()
    """Where clients ask who has an endpoint; empty where they need not."""

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

    def dialled(self, servers: int) -> tuple[str, ...]:
        """Return what clients may dial when there are `servers` servers."""
        idle = {p.public_url for p in self.processes} - {p.public_url for p in self.active(servers)}
        return tuple(url for url in self.websocket_urls if url not in idle)
