"""Which processes a scaling mode has, and what each is told of the others; pure (docs/protocol.md section 7)."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final, NamedTuple

from diem.process.faults import ConfigurationError
from diem.process.listeners import PortTaken

HOST: Final = "127.0.0.1"
MAX_SERVERS: Final = 64
PORT_STEP: Final = 20
PORT_TRIES: Final = 50
DATA, BROADCAST, WEBSOCKET = 0, 1, 2
"""Stages: data flows upwards, so the edge stops first and the Data Service last."""


class Mode(StrEnum):
    """The scaling modes that `diem up` can start."""

    SINGLE = "single"
    X_BROADCAST = "x-broadcast"
    ALL_TO_ALL = "all-to-all"


class BadTopology(ConfigurationError):
    """The options do not fit the mode."""


class Slot(NamedTuple):
    """A process of a mode before it has ports; port None means that it has no public listener."""

    name: str
    process: str
    number: int
    stage: int
    public: int | None
    internal: int


class Ports(NamedTuple):
    """The ports of one process."""

    public: int | None
    internal: int


@dataclass(frozen=True, slots=True)
class Options:
    """What all processes of one `diem up` have in common. Paths are absolute."""

    mode: Mode
    state_dir: Path
    servers: int = 1
    config: Path | None = None
    log_level: str = "info"
    drain_seconds: float = 3.0
    time_factor: float = 1.0


@dataclass(frozen=True, slots=True)
class Planned:
    """One process as it is to be run: `env` is laid over the environment of `diem up`."""

    name: str
    process: str
    stage: int
    argv: tuple[str, ...]
    env: Mapping[str, str]
    ports: Ports
    public_url: str | None
    internal_url: str


@dataclass(frozen=True, slots=True)
class Topology:
    """The processes of a mode, and where people and programs find them."""

    mode: Mode
    processes: tuple[Planned, ...]
    page_url: str
    rest_url: str
    websocket_urls: tuple[str, ...]


def slots(mode: Mode, servers: int) -> tuple[Slot, ...]:
    """Return the processes of a mode with `servers` WebSocket servers, the Data Service first.

    Raises:
        BadTopology: the mode does not have that many servers.
    """
    if mode is Mode.X_BROADCAST:
        if not 1 <= servers <= MAX_SERVERS:
            raise BadTopology(f"x-broadcast runs 1 to {MAX_SERVERS} WebSocket servers, not {servers}")
    elif servers != 1:
        raise BadTopology(f"{mode} runs one WebSocket server, not {servers}: use --mode x-broadcast for more")
    node = [Slot("broadcast", "broadcast", 0, BROADCAST, None, 9300)] if mode is Mode.X_BROADCAST else []
    return (
        Slot("data", "data", 0, DATA, 8080, 9080),
        *node,
        *(Slot(f"websocket-{n}", "websocket", n, WEBSOCKET, 8100 + n, 9100 + n) for n in range(1, servers + 1)),
    )


def assign_ports(
    wanted: tuple[Slot, ...], fixed: Mapping[str, int], first: Callable[[int], int], is_free: Callable[[int], bool]
) -> dict[str, Ports]:
    """Give every process its ports: the fixed one of its name (public), else the next free one from its own on.

    `first` maps a default port to where the search starts. No port is given twice.

    Raises:
        PortTaken: a fixed port is not free, or no free one was found.
    """
    taken: set[int] = set(fixed.values())

    def choose(default: int) -> int:
        start = first(default)
        for port in range(start, start + PORT_STEP * PORT_TRIES, PORT_STEP):
            if port < 65536 and port not in taken and is_free(port):
                taken.add(port)
                return port
        raise PortTaken(HOST, default)

    def public(slot: Slot) -> int | None:
        if slot.name not in fixed:
            return None if slot.public is None else choose(slot.public)
        if not is_free(fixed[slot.name]):
            raise PortTaken(HOST, fixed[slot.name])
        return fixed[slot.name]

    return {slot.name: Ports(public(slot), choose(slot.internal)) for slot in wanted}


def fixed_ports(wanted: tuple[Slot, ...], page: int | None, websocket: int | None) -> dict[str, int]:
    """Return the public ports that were asked for, by name; WebSocket servers count up from the first one's.

    Raises:
        BadTopology: a port would be beyond 65535, or given twice.
    """
    edges = [slot for slot in wanted if slot.process == "websocket"]
    fixed = {} if websocket is None else {slot.name: websocket + slot.number - 1 for slot in edges}
    if page is not None:
        fixed["data"] = page
    if len(set(fixed.values())) < len(fixed) or max(fixed.values(), default=0) > 65535:
        raise BadTopology("the ports that were asked for overlap or are too high")
    return fixed


def moved_ports(wanted: tuple[Slot, ...], chosen: Mapping[str, Ports]) -> list[str]:
    """Say, line by line, which public listeners are not at their documented ports."""
    return [
        f"port {slot.public} is taken: {slot.name} listens on {chosen[slot.name].public}"
        for slot in wanted
        if slot.public is not None and chosen[slot.name].public != slot.public
    ]


def compose(options: Options, ports: Mapping[str, Ports], command: tuple[str, ...]) -> Topology:
    """Describe every process of the mode; `command` is what runs `diem`."""
    wanted = slots(options.mode, options.servers)
    edges = [slot for slot in wanted if slot.process == "websocket"]
    feed_of_edges = "broadcast" if options.mode is Mode.X_BROADCAST else "data"
    rest_url = f"http://{HOST}:{ports['data'].public}"

    def own_env(slot: Slot) -> dict[str, str]:
        match slot.process:
            case "data":
                return _data_env(options, [ports[edge.name].public for edge in edges])
            case "broadcast":
                return {"DIEM_BROADCAST_FEED_URL": _feed_url(ports["data"])}
            case _:
                return {
                    "DIEM_WEBSOCKET_NUMBER": str(slot.number),
                    "DIEM_WEBSOCKET_MODE": str(options.mode),
                    "DIEM_WEBSOCKET_FEED_URL": _feed_url(ports[feed_of_edges]),
                    "DIEM_WEBSOCKET_PAGE_PORT": str(ports["data"].public),
                }

    def plan(slot: Slot) -> Planned:
        own = ports[slot.name]
        return Planned(
            name=slot.name,
            process=slot.process,
            stage=slot.stage,
            argv=(*command, "run", slot.process),
            env=_shared_env(options) | _listener_env(slot, own) | own_env(slot),
            ports=own,
            public_url=_public_url(slot, own),
            internal_url=f"http://{HOST}:{own.internal}",
        )

    return Topology(
        mode=options.mode,
        processes=tuple(plan(slot) for slot in wanted),
        page_url=f"{rest_url}/",
        rest_url=f"{rest_url}/v1",
        websocket_urls=tuple(f"ws://{HOST}:{ports[edge.name].public}/ws" for edge in edges),
    )


def overridden(topology: Topology, environ: Mapping[str, str]) -> list[str]:
    """Return the variables of the environment that the plan gives other values, which would be ignored in silence."""
    planned = {name: value for process in topology.processes for name, value in process.env.items()}
    own = {"DIEM_STATE_DIR", "DIEM_LOG_LEVEL", "DIEM_DRAIN_SECONDS", "DIEM_TIME_FACTOR"}
    return sorted(name for name in planned if name not in own and environ.get(name, planned[name]) != planned[name])


def _shared_env(options: Options) -> dict[str, str]:
    return {
        "DIEM_STATE_DIR": str(options.state_dir),
        "DIEM_INTERNAL_KEY_FILE": str(options.state_dir / "internal.key"),
        "DIEM_LOG_LEVEL": options.log_level,
        "DIEM_LOG_FORMAT": "json",
        "DIEM_DRAIN_SECONDS": str(options.drain_seconds),
        "DIEM_TIME_FACTOR": str(options.time_factor),
        "DIEM_SUPERVISED": "1",
    }


def _listener_env(slot: Slot, ports: Ports) -> dict[str, str]:
    prefix = f"DIEM_{slot.process.upper()}_"
    env = {f"{prefix}INTERNAL_HOST": HOST, f"{prefix}INTERNAL_PORT": str(ports.internal)}
    if ports.public is not None:
        env |= {f"{prefix}HOST": HOST, f"{prefix}PORT": str(ports.public)}
    return env


def _data_env(options: Options, edges: list[int | None]) -> dict[str, str]:
    env = {
        "DIEM_DATA_WRITE_KEY_FILE": str(options.state_dir / "write.key"),
        "DIEM_DATA_MODE": str(options.mode),
        "DIEM_DATA_WEBSOCKET_SERVERS": json.dumps([{"port": port, "path": "/ws"} for port in edges]),
    }
    return env if options.config is None else env | {"DIEM_DATA_CONFIG": str(options.config)}


def _feed_url(ports: Ports) -> str:
    return f"ws://{HOST}:{ports.internal}/feed"


def _public_url(slot: Slot, ports: Ports) -> str | None:
    if ports.public is None:
        return None
    return f"ws://{HOST}:{ports.public}/ws" if slot.process == "websocket" else f"http://{HOST}:{ports.public}/"
