"""Children of a composite and the settings of each; pure."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import Final, NamedTuple

HOST: Final = "127.0.0.1"
MAX_PAIRS: Final = 64


class ChildStage(IntEnum):
    """The order of an orderly stop, the highest first: clients leave before what they were served by."""

    METADATA = 0
    BRIDGE = 1
    WEBSOCKET = 2
    PROXY = 3


class ChildPorts(NamedTuple):
    """The ports of one child; a bridge has no public one."""

    public: int
    internal: int


class Child(NamedTuple):
    """One child as it is to be run: `env` is laid over the environment of the composite."""

    name: str
    process: str
    stage: ChildStage
    internal_port: int
    env: Mapping[str, str]

    @property
    def internal_url(self) -> str:
        """Where it says how it is."""
        return f"http://{HOST}:{self.internal_port}"


@dataclass(frozen=True, slots=True)
class CompositePlan:
    """What the children of one composite have in common.

    `number` is the clone that its group is, `host` and `port` what its proxy listens on, and `edge` what the proxy is
    told besides, by the names of its settings; `sockets` is the directory of Unix sockets for links among them.
    """

    number: int
    mode: str
    proxy: str
    host: str
    port: int
    drain_seconds: float = 3.0
    edge: Mapping[str, str] = field(default_factory=dict)
    sockets: Path | None = None


def child_names(pairs: int) -> tuple[str, ...]:
    """Return the names of the children of a composite, in the order in which they are shown."""
    numbers = range(1, pairs + 1)
    return ("metadata", *(f"bridge-{n}" for n in numbers), *(f"websocket-{n}" for n in numbers), "proxy")


def children(plan: CompositePlan, pairs: int, ports: Callable[[str], ChildPorts]) -> tuple[Child, ...]:
    """Describe the children of a composite of `pairs` pairs; `ports` returns a child's ports, always the same."""
    made = []
    for name in child_names(pairs):
        process, _, number = name.partition("-")
        # A child's own listeners; the proxy's public one is the composite's.
        own = ports(name)
        env = {"INTERNAL_HOST": HOST, "INTERNAL_PORT": str(own.internal)}
        if process in {"metadata", "websocket"}:
            env |= {"HOST": HOST, "PORT": str(own.public)}
        env |= _TOLD[process](plan, number, ports)
        shared = {
            "DIEM_SUPERVISED": "1",
            "DIEM_DRAIN_SECONDS": str(_drain_seconds(plan, process)),
            # Other composites have children of the same names.
            "DIEM_TRAFFIC_EDGE": f"composite-{plan.number}.{name}",
        }
        if plan.sockets is not None:
            shared["DIEM_INTERNAL_SOCKETS"] = str(plan.sockets)
        prefixed = {f"DIEM_{process.upper()}_{variable}": value for variable, value in env.items()}
        made.append(Child(name, process, ChildStage[process.upper()], own.internal, shared | prefixed))
    return tuple(made)


def _drain_seconds(plan: CompositePlan, process: str) -> float:
    # The others come after the proxy within the same time; without their clients they need little of it.
    return plan.drain_seconds / 2 if process == "proxy" else plan.drain_seconds


def _metadata(plan: CompositePlan, _number: str, _ports: Callable[[str], ChildPorts]) -> dict[str, str]:
    return {"CLONES": json.dumps([plan.number])}


def _bridge(plan: CompositePlan, number: str, ports: Callable[[str], ChildPorts]) -> dict[str, str]:
    server = f"ws://{HOST}:{ports(f'websocket-{number}').internal}/ws"
    return {
        "NUMBER": number,
        "CLONE": str(plan.number),
        "SERVER_INTERNAL_URL": server,
        # Servers name each other by it to who subscribes; that is the composite's own proxy, and nobody else.
        "SERVER_PUBLIC_URL": server,
    }


def _websocket(plan: CompositePlan, number: str, ports: Callable[[str], ChildPorts]) -> dict[str, str]:
    return {
        "NUMBER": number,
        "MODE": plan.mode,
        "FEED_URL": f"ws://{HOST}:{ports(f'bridge-{number}').internal}/feed",
    }


def _proxy(plan: CompositePlan, _number: str, ports: Callable[[str], ChildPorts]) -> dict[str, str]:
    return {
        **plan.edge,
        "NUMBER": str(plan.number),
        "CLONE": str(plan.number),
        "MODE": plan.proxy,
        "SCALING": plan.mode,
        "HOST": plan.host,
        "PORT": str(plan.port),
        "METADATA_URLS": json.dumps([f"ws://{HOST}:{ports('metadata').internal}/watch"]),
        "ALLOWED": json.dumps([f"{HOST}/32"]),
    }


_TOLD: Final = {"metadata": _metadata, "bridge": _bridge, "websocket": _websocket, "proxy": _proxy}
