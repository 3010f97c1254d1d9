"""Options of a topology: its mode, the number of each process, and common settings."""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from pathlib import Path

from deploy.topology.access import READS, VARIABLES, ClientAccess
from deploy.topology.public_address import BadTopology, PublicAddress
from diem.process.listeners import is_loopback
from diem.process.modes import Mode


class Traffic(StrEnum):
    """Destination of recorded subscriptions."""

    OFF = "off"
    FILES = "files"
    KAFKA = "kafka"


@dataclass(frozen=True, slots=True)
class KafkaTopology:
    """The Kafka to use: ``brokers`` local ones, or those of ``bootstrap_servers``. Paths are absolute."""

    brokers: int = 1
    bootstrap_servers: str | None = None
    topic_prefix: str | None = None
    partitions: int | None = None
    replication: int | None = None
    topic: str | None = None
    """A topic of other programs that is served as it is."""
    topic_key: str | None = None
    topic_key_form: str | None = None
    topic_partitioner: str | None = None
    topic_type: str | None = None
    security_protocol: str | None = None
    sasl_mechanism: str | None = None
    sasl_username: str | None = None
    sasl_password_file: Path | None = None
    ca_file: Path | None = None
    certificate_file: Path | None = None
    key_file: Path | None = None

    @property
    def local_brokers(self) -> int:
        """Number of local brokers."""
        return 0 if self.bootstrap_servers else self.brokers

    @classmethod
    def settings(cls) -> list[str]:
        """Return the names of the fields that are settings of the processes, without the prefix ``kafka_``."""
        return [each.name for each in fields(cls) if each.name != "brokers"]

    @classmethod
    def security(cls) -> list[str]:
        """Return the security settings for an external cluster, which are declared last."""
        return cls.settings()[cls.settings().index("security_protocol") :]


@dataclass(frozen=True, slots=True)
class Scaling:
    """Number of processes of each kind.

    ``servers`` is the number per clone, with a bridge each in modes with Kafka. ``clones`` are groups with every
    endpoint each; None = 1, in mode xz 2. ``max_servers`` is the maximum number of servers, in mode xz of clones, for
    ``diem scale``; None = 8, or the initial number if greater.
    """

    servers: int = 1
    max_servers: int | None = None
    clones: int | None = None
    standbys: int = 0
    """Number of Data Services waiting for the store, besides its owner."""
    proxies: int = 1
    """Of mode z-proxy."""
    balancers: int = 1
    """Of nginx, in modes behind it: all the same; 0: none, and servers share one port."""


@dataclass(frozen=True, slots=True)
class Clients:
    """Permissions of clients to connect and read."""

    public: PublicAddress = field(default_factory=PublicAddress)
    origins: tuple[str, ...] = ()
    """Origins of pages that may connect, besides those of ``public``, which may read as well."""
    readers: tuple[str, ...] = ()
    """Origins of pages that may read, besides those of ``public``."""
    front_proxies: tuple[str, ...] = ()
    """Networks of proxies in front of DIEM with trusted X-Forwarded-For."""
    access: ClientAccess = field(default_factory=ClientAccess)
    per_address: int | None = None
    """Maximum number of clients per address; None: the processes' default."""
    is_local: bool = True
    """True if all processes run on this machine, under ``diem up``."""

    def trusts_loopback(self, *, behind_nginx: bool) -> bool:
        """Return whether clients with an address of this machine may need no token.

        Not if some processes are on other hosts. Not behind a front proxy: one without header fields would give its own
        address to all clients. And not if edges listen on a public address: their ``auto`` means ``off``, which must
        apply to the processes behind them.
        """
        return self.is_local and not self.front_proxies and (behind_nginx or is_loopback(self.public.listen))

    @property
    def limits_loopback(self) -> bool:
        """True if local clients have the limits of one address: if these were set, or remote clients may look local.

        They do behind a front proxy, or via a TCP relay on this machine to a public listener.
        """
        given = self.per_address is not None
        return given or not self.is_local or bool(self.front_proxies) or not is_loopback(self.public.listen)

    @property
    def cross_origin_readers(self) -> tuple[str, ...]:
        """The origins whose pages may read across origins.

        The first name of a public system is its own page's, which needs no permission: listing it would make all
        answers vary by origin for caches.
        """
        own = self.public.own_origins[:1] if self.front_proxies or self.public.certificate else ()
        return tuple(dict.fromkeys((*(each for each in self.public.origins if each not in own), *self.readers)))


@dataclass(frozen=True, slots=True)
class Content:
    """Content of the Data Service. Paths are absolute."""

    config: Path | None = None
    pages: Path | None = None
    """Directory of the operator's own pages."""
    hot: tuple[str, ...] = ()
    """Endpoints on every server, in partitioned modes."""
    operator_url: str | None = None
    """URL of the operator page; None without one."""


@dataclass(frozen=True, slots=True)
class Durations:
    """Time limits of processes, in seconds and as a factor of all timeouts."""

    drain_seconds: float = 3.0
    time_factor: float = 1.0


@dataclass(frozen=True, slots=True)
class Options:
    """Options of a system; each room gets only its part. Paths are absolute."""

    mode: Mode
    state_dir: Path
    scaling: Scaling = field(default_factory=Scaling)
    clients: Clients = field(default_factory=Clients)
    content: Content = field(default_factory=Content)
    durations: Durations = field(default_factory=Durations)
    kafka: KafkaTopology = field(default_factory=KafkaTopology)
    traffic: Traffic | None = None
    """None = Kafka in the modes that use it, else files."""
    log_level: str = "info"
    settings: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Variables by process name, overriding the topology's."""

    @property
    def behind_nginx(self) -> bool:
        """True if clients connect through nginx."""
        return self.mode.behind_nginx and self.scaling.balancers > 0

    def admits(self, process: str) -> bool:
        """Return whether clients connect directly to processes of this kind."""
        return process == "nginx" if self.behind_nginx else self.mode.serves(process)

    @property
    def traffic_sink(self) -> Traffic:
        """Destination of recorded traffic."""
        own_kafka = self.mode.uses_kafka and self.kafka.topic is None
        return self.traffic or (Traffic.KAFKA if own_kafka else Traffic.FILES)

    @property
    def public_reads(self) -> bool:
        """True if the Data Service answers everybody without a key, so that answers may be cached for all."""
        return self.settings.get("data", {}).get(READS, self.clients.access.anonymous_reads) == "on"


_FORM = re.compile(r"([a-z0-9-]+):([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)


def parse_settings(texts: Iterable[str]) -> dict[str, dict[str, str]]:
    """Return the variables by process; of duplicates the last one counts.

    Raises:
        BadTopology: a text is not NAME:VARIABLE=VALUE, or the variable is a setting of all processes.
    """
    parsed: dict[str, dict[str, str]] = {}
    for text in texts:
        match = _FORM.fullmatch(text)
        if match is None or "\0" in text:
            raise BadTopology(f"--set takes NAME:VARIABLE=VALUE (websocket-1:DIEM_LOG_LEVEL=debug), not {text!r}")
        name, variable, value = match.groups()
        if variable.upper() in VARIABLES:
            raise BadTopology(f"--set: {variable} is the same for all processes: set it in the environment")
        parsed.setdefault(name, {})[variable] = value
    return parsed


def check_settings(settings: Mapping[str, object], names: Collection[str]) -> None:
    """Check that settings are for existing processes.

    Raises:
        BadTopology: with the name of the first unknown process.
    """
    for name in settings:
        if name not in names:
            raise BadTopology(f"--set: no process is called {name!r} here: there are {', '.join(names)}")
