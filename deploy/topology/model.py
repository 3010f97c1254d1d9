"""The words in which a topology is described: modes, options, slots, ports, planned processes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, IntEnum, StrEnum
from pathlib import Path
from typing import ClassVar, Final, NamedTuple

from diem.process.faults import ConfigurationError

HOST: Final = "127.0.0.1"
SCALED: Final = frozenset({"bridge", "websocket"})
"""The processes whose number `diem scale` changes."""


class Mode(StrEnum):
    """The scaling modes that `diem up` can start."""

    SINGLE = "single"
    X_BROADCAST = "x-broadcast"
    X = "x"
    ALL_TO_ALL = "all-to-all"

    @property
    def behind_nginx(self) -> bool:
        """Whether clients come through nginx, so that there can be several servers."""
        return self is not Mode.SINGLE


class Stage(IntEnum):
    """The order of an orderly stop, the highest first: data flows upwards, and clients leave through nginx."""

    KAFKA = 0
    DATA = 1
    BROADCAST = 2
    BRIDGE = 3
    NGINX = 4
    WEBSOCKET = 5


class Readiness(Enum):
    """How one sees from outside that a process is ready."""

    READYZ = "its internal listener says so"
    HTTP = "its public port answers HTTP, whatever it says"
    CONNECT = "its public port takes connections"


class BadTopology(ConfigurationError):
    """The options do not fit the mode."""


class Slot(NamedTuple):
    """A process of a mode before it has ports; port None means that it has no such listener."""

    name: str
    process: str
    number: int
    stage: Stage
    public: int | None
    internal: int | None


class Ports(NamedTuple):
    """The ports of one process. A broker's internal one is its controller's."""

    public: int | None
    internal: int | None


@dataclass(frozen=True, slots=True)
class KafkaOptions:
    """Which Kafka mode x uses: `brokers` of our own, or those that `bootstrap_servers` names. Paths are absolute."""

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

    `max_servers` is how many servers `diem scale` can start later; None = 8, or `servers` if that is more.
    """

    mode: Mode
    state_dir: Path
    servers: int = 1
    config: Path | None = None
    log_level: str = "info"
    drain_seconds: float = 3.0
    time_factor: float = 1.0
    max_servers: int | None = None
    clients_per_address: int | None = None
    kafka: KafkaOptions = field(default_factory=KafkaOptions)
    settings: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Variables for one process each, by its name; they win over what the plan gives it."""


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
    max_servers: int
    page_url: str
    rest_url: str
    websocket_urls: tuple[str, ...]

    def active(self, servers: int) -> tuple[Planned, ...]:
        """Return the processes that run when there are `servers` servers."""
        return tuple(p for p in self.processes if p.process not in SCALED or p.number <= servers)
