"""The table of modes: the processes of each, their ports and their order, and every setting that connects them; pure.

``diem up`` and ``diem config`` (``deploy/topology``), composites (``services/composite``) and the Helm chart
(``deploy/install/chart_modes.py``) read it. A process is a row of :data:`KINDS`, a setting one of :data:`SETTINGS`.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from ipaddress import ip_network
from typing import Final, NamedTuple

from diem.process.addresses import Ports


class StopStage(IntEnum):
    """Stages of an orderly stop, the highest first: data flows upwards, and clients leave through nginx."""

    KAFKA = 0
    DATA = 1
    BROADCAST = 2
    METADATA = 3
    BRIDGE = 4
    NGINX = 5
    WEBSOCKET = 6
    EDGE = 7
    """A proxy, or a whole composite, in front of servers without client connections."""


class Kind(NamedTuple):
    """A kind of process, with the documented ports of its first process; None means that it has no such listener."""

    stage: StopStage
    public: int | None
    internal: int | None
    numbered: bool = True
    """Each has a number and consecutive ports; of other kinds, any may serve all, and the first has no number."""


KINDS: Final[Mapping[str, Kind]] = {
    "kafka": Kind(StopStage.KAFKA, 9092, 9096),
    "data": Kind(StopStage.DATA, 8080, 9080, numbered=False),
    "broadcast": Kind(StopStage.BROADCAST, None, 9300, numbered=False),
    "metadata": Kind(StopStage.METADATA, 8400, 9400, numbered=False),
    "bridge": Kind(StopStage.BRIDGE, None, 9201),
    "nginx": Kind(StopStage.NGINX, 8000, None, numbered=False),
    "websocket": Kind(StopStage.WEBSOCKET, 8101, 9101),
    "composite": Kind(StopStage.EDGE, 8601, 9601),
    "proxy": Kind(StopStage.EDGE, 8501, 9501),
}
"""Kinds of processes, in display order."""


class Mode(StrEnum):
    """The scaling modes."""

    SINGLE = "single"
    X_BROADCAST = "x-broadcast"
    X = "x"
    ALL_TO_ALL = "all-to-all"
    Z_CLIENT = "z-client"
    Z_PROXY = "z-proxy"
    Z_COMPOSITE = "z-composite"
    XZ = "xz"

    @property
    def processes(self) -> tuple[str, ...]:
        """Kinds of its processes, with the client-serving one last."""
        return PROCESSES_OF[self]

    @property
    def behind_nginx(self) -> bool:
        """True if clients connect through nginx, balanced over equal servers, unless these share one port."""
        return "nginx" in self.processes

    @property
    def partitioned(self) -> bool:
        """True if each server has only some of the endpoints."""
        return not {"metadata", "composite"}.isdisjoint(self.processes)

    @property
    def uses_kafka(self) -> bool:
        """True if updates go through Kafka."""
        return "kafka" in self.processes

    @property
    def edge(self) -> str:
        """Kind of the process that serves clients, possibly behind nginx."""
        return self.processes[-1]

    def serves(self, process: str) -> bool:
        """Return whether processes of this kind serve clients, possibly behind nginx."""
        return process in {"data", self.edge} or (process == "metadata" and self is Mode.Z_CLIENT)


PROCESSES_OF: Final[Mapping[str, tuple[str, ...]]] = {
    Mode.SINGLE: ("data", "websocket"),
    Mode.X_BROADCAST: ("data", "broadcast", "nginx", "websocket"),
    Mode.X: ("kafka", "data", "bridge", "nginx", "websocket"),
    Mode.ALL_TO_ALL: ("data", "nginx", "websocket"),
    Mode.Z_CLIENT: ("kafka", "data", "metadata", "bridge", "websocket"),
    Mode.Z_PROXY: ("kafka", "data", "metadata", "bridge", "websocket", "proxy"),
    Mode.Z_COMPOSITE: ("kafka", "data", "composite"),
    Mode.XZ: ("kafka", "data", "nginx", "composite"),
}
INSIDE_COMPOSITE: Final = ("metadata", "bridge", "websocket", "proxy")
"""Kinds of the children of a composite."""
CLIENTS_OF_KAFKA: Final = ("data", "bridge", "metadata", "composite")
"""Processes connected to Kafka, in modes with Kafka."""
RECORDERS: Final = ("data", "websocket", "proxy", "composite")
"""Processes that record traffic, possibly to Kafka."""


@dataclass(frozen=True, slots=True)
class Place:
    """A process in its system, from which its settings follow.

    ``number`` counts within the clone. ``ports`` has all processes of the system by name. ``given`` are settings by
    group, then by their names in :data:`SETTINGS`: those decided by the system, and overrides of the table.
    """

    mode: str
    process: str
    name: str
    number: str
    ports: Mapping[str, Ports]
    given: Mapping[str, Mapping[str, str | None]]
    clone: int = 1
    clones: int = 1

    @property
    def own(self) -> Ports:
        """Ports of the process itself."""
        return self.ports[self.name]

    def all(self, process: str) -> list[Ports]:
        """Return the ports of all processes of a kind."""
        return all_of(process, self.ports)

    def twin(self, process: str) -> Ports:
        """Return the ports of the other process of the same pair."""
        return self.ports[f"{process}-{number_in(self.name)}"]


def all_of(process: str, ports: Mapping[str, Ports]) -> list[Ports]:
    """Return the ports of all processes of a kind."""
    return [own for name, own in ports.items() if name == process or name.startswith(f"{process}-")]


def number_in(name: str) -> str:
    """Return the number in a process's name, unique over all clones."""
    return name.partition("-")[2]


Value = Callable[[Place], str | None]
"""Return the value of a setting; None: it is not set."""


def given(_place: Place) -> None:
    """Take a setting from :attr:`Place.given`: it follows from options, not from the mode."""


def servers(ports: Mapping[str, Ports]) -> list[str]:
    """Return rules that cover the internal listeners of all possible servers."""
    return [f"{_network(own.host)}:{own.internal}" for own in all_of("websocket", ports)]


def reads_urls(data: Iterable[Ports]) -> str:
    """Return the setting with the URLs of the Data Services for read reports, tried in turn."""
    return ",".join(f"http://{own.internal_address}/v1/keys/reads" for own in data)


def _interest(place: Place) -> str | None:
    """Return the URLs at which servers report what is watched, tried in turn."""
    return ",".join(f"ws://{own.internal_address}/interest" for own in place.all("data")) or None


def _network(host: str) -> str:
    network = ip_network(host)
    return f"[{network}]" if network.version == 6 else str(network)


def _feeds(place: Place) -> str:
    """Return the alternative feeds of a server, read one at a time: the nearest ones."""
    if place.all("bridge"):
        return place.twin("bridge").feed_url
    return _feeds_of(place.all("broadcast") or place.all("data"))


def _feeds_of(processes: Iterable[Ports]) -> str:
    return ",".join(each.feed_url for each in processes)


def _in_a_group(value: Value) -> Value:
    """Return a value of bridges that share the partitions."""
    return lambda place: value(place) if place.all("metadata") else None


ACCESS: Final = ("ANONYMOUS", "TOKEN_KEYS", "TOKEN_AUDIENCE", "TOKEN_ISSUERS")
"""Settings for authenticating clients: the same in all processes of a system."""
SENDERS: Final = ("ANONYMOUS_DATA", "RETAINED_DATA_BYTES")
"""Settings of the data in updates, shared by servers and their proxy."""


def _given(*names: str) -> dict[str, Value]:
    return dict.fromkeys((name for each in names for name in each.split()), given)


_CLIENTS: Final = _given(*ACCESS, "TLS_CERTIFICATE TLS_KEY ORIGINS TRUSTED_PROXIES PAGE_PORT CONNECTIONS_PER_ADDRESS")
EDGE: Final = _CLIENTS | _given(
    *SENDERS,
    "READS_URL SUBSCRIPTIONS CONNECTION_RATE_PER_ADDRESS LIMIT_LOOPBACK CONNECTIONS_PER_USER CAPACITY SHARED_PORT",
)
"""Settings for admitting clients and for the data sent to them."""
_INTERNAL: Final[dict[str, Value]] = {
    "INTERNAL_HOST": lambda place: place.own.host,
    "INTERNAL_PORT": lambda place: str(place.own.internal),
}
_LISTENERS: Final[dict[str, Value]] = {
    **_INTERNAL,
    "HOST": lambda place: place.own.host,
    "PORT": lambda place: str(place.own.public),
}
_MODE: Final[dict[str, Value]] = {"MODE": lambda place: place.mode}
_NUMBER: Final[dict[str, Value]] = {"NUMBER": lambda place: place.number}
_ALLOWED: Final[dict[str, Value]] = {"ALLOWED": lambda place: json.dumps(servers(place.ports))}

SETTINGS: Final[Mapping[str, Mapping[str, Value]]] = {
    "all": _given(
        "STATE_DIR INTERNAL_SOCKETS INTERNAL_KEY_FILE LOG_LEVEL LOG_FORMAT DRAIN_SECONDS TIME_FACTOR",
        "SUPERVISED HEALTH_HOST HEALTH_PORT",
    ),
    "kafka": _given(
        "BOOTSTRAP_SERVERS TOPIC_PREFIX PARTITIONS REPLICATION SECURITY_PROTOCOL",
        "SASL_MECHANISM SASL_USERNAME SASL_PASSWORD_FILE CA_FILE CERTIFICATE_FILE KEY_FILE",
        "TOPIC TOPIC_KEY TOPIC_KEY_FORM TOPIC_PARTITIONER TOPIC_TYPE",
    ),
    "traffic": _given("SINK DIR SALT_FILE EDGE"),
    "data": _LISTENERS
    | _MODE
    | _given(
        "TLS_CERTIFICATE TLS_KEY WRITE_KEY_FILE DATABASE_URL_FILE STANDBY CONFIG OWN_PAGES WEBSOCKET_SERVERS",
        "METADATA_SERVICES HOSTS ANONYMOUS_READS CLIENT_ORIGINS CORS_ORIGINS TRUSTED_PROXIES OPERATOR_URL HOT",
        "RETAINED_BY",
    ),
    "broadcast": _INTERNAL | {"FEED_URL": lambda place: _feeds_of(place.all("data"))},
    "bridge": _INTERNAL
    | _NUMBER
    | {
        "CLONE": _in_a_group(lambda place: str(place.clone)),
        "SERVER_HOST": given,
        "SERVER_INTERNAL_URL": _in_a_group(lambda place: place.twin("websocket").link_url),
        # Used by servers to redirect subscribers to each other.
        "SERVER_PUBLIC_URL": _in_a_group(lambda place: f"ws://{place.twin('websocket').public_address}/ws"),
    },
    "metadata": _LISTENERS
    | _ALLOWED
    | _CLIENTS
    | {"CLONES": lambda place: json.dumps(list(range(1, place.clones + 1)))},
    "websocket": _LISTENERS
    | _MODE
    | EDGE
    | {
        "NUMBER": lambda place: number_in(place.name),  # unique over all clones
        "FEED_URL": _feeds,
        "INTEREST_URL": _interest,
    },
    "proxy": _LISTENERS
    | _NUMBER
    | _ALLOWED
    | EDGE
    | _given("SCALING CLONE")
    | {"METADATA_URLS": lambda place: json.dumps([each.watch_url for each in place.all("metadata")])},
    "composite": _LISTENERS | _MODE | _NUMBER | EDGE | _given("PAIRS MAX_PAIRS") | {"INTEREST_URL": _interest},
}
"""Settings by process, or by shared group, each with its value."""


GROUPS: Final = ("all", "kafka", "traffic")
"""Groups of settings shared by several processes; those of ``all`` have no prefix."""


def settings(place: Place, group: str) -> dict[str, str]:
    """Return the variables of a process that are of one group, or of the process alone."""
    prefix = "DIEM_" if group == "all" else f"DIEM_{group.upper()}_"
    others = place.given.get(group, {})
    values = {name: others[name] if name in others else value(place) for name, value in SETTINGS[group].items()}
    return {f"{prefix}{name}": value for name, value in values.items() if value is not None}


def environment(place: Place) -> dict[str, str]:
    """Return the variables of a process: its own settings, and those of its groups."""
    found: dict[str, str] = {}
    for group in (*GROUPS, place.process):
        found |= settings(place, group)
    return found
