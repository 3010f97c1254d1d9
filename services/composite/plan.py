"""The children of a composite, and the settings of each. Pure."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from diem.process import environment
from diem.process.environment import HOST, Ports, StopStage
from diem.process.listeners import is_loopback

MAX_PAIRS: Final = 64


class Child(NamedTuple):
    """One child: how to run it. ``env`` overrides the environment of the composite."""

    name: str
    process: str
    stage: StopStage
    internal_port: int
    env: Mapping[str, str]

    @property
    def internal_url(self) -> str:
        """Base URL of the internal listener."""
        return f"http://{HOST}:{self.internal_port}"


@dataclass(frozen=True, slots=True)
class CompositePlan:
    """Settings that the children of one composite share.

    ``number`` is the clone that its group serves, ``host`` and ``port`` are the public address of its proxy, ``edge``
    has further settings of the proxy by name, ``sockets`` is the directory of Unix sockets for links between children.
    """

    number: int
    mode: str
    proxy: str
    host: str
    port: int
    drain_seconds: float = 3.0
    edge: Mapping[str, str] = field(default_factory=dict)
    sockets: Path | None = None
    max_pairs: int = 1
    """Pairs that it may ever have: the metadata service and the proxy dial their servers and nothing else."""


def child_names(pairs: int) -> tuple[str, ...]:
    """Return the names of the children of a composite, in display order."""
    numbers = range(1, pairs + 1)
    return ("metadata", *(f"bridge-{n}" for n in numbers), *(f"websocket-{n}" for n in numbers), "proxy")


def children(plan: CompositePlan, pairs: int, ports: Callable[[str], Ports]) -> tuple[Child, ...]:
    """Return the children of a composite of ``pairs`` pairs; ``ports`` must always return the same ports for a name."""
    planned = []
    # Also those of pairs that do not run now: a child keeps its settings when the number of pairs changes.
    most = range(1, max(pairs, plan.max_pairs) + 1)
    servers = [f"{HOST}/32:{ports(f'websocket-{number}').internal}" for number in most]
    for name in child_names(pairs):
        process, _, number = name.partition("-")
        own = ports(name)
        # A bridge has no public listener; the proxy's is the composite's.
        own = own._replace(public={"bridge": None, "proxy": plan.port}.get(process, own.public))
        env = {
            "DIEM_SUPERVISED": "1",
            "DIEM_HEALTH_PORT": "",  # the composite's own
            "DIEM_DRAIN_SECONDS": str(_drain_seconds(plan, process)),
            # With the number, as other composites have children of the same names.
            "DIEM_TRAFFIC_EDGE": f"composite-{plan.number}.{name}",
            **({} if plan.sockets is None else {"DIEM_INTERNAL_SOCKETS": str(plan.sockets)}),
            **environment.listeners(process, own),
            **_access(plan, process),
            **_environment(plan, process, number, ports),
            **_allowed(process, servers),
        }
        stage = StopStage.EDGE if process == "proxy" else StopStage[process.upper()]
        planned.append(Child(name, process, stage, own.internal or 0, env))
    return tuple(planned)


_DATA: Final = ("ANONYMOUS_DATA", "RETAINED_DATA_BYTES")
"""Settings of the data in updates, which servers have in common with their proxy."""


def _access(plan: CompositePlan, process: str) -> dict[str, str]:
    """Return the settings by which a child decides who its clients are: those of the proxy.

    Servers and the metadata service listen on loopback. Where the proxy does not, ``auto`` gives nobody the rights of
    this machine there, so it must not give them here.
    """
    if process not in {"websocket", "metadata"}:
        return {}
    auto = plan.edge.get("ANONYMOUS") == "auto"
    closed = {"ANONYMOUS": "off"} if auto and not is_loopback(plan.host) else {}
    return environment.access(process, {**plan.edge, **closed})


def _allowed(process: str, servers: list[str]) -> dict[str, str]:
    """Return the rules for what a child may dial: the internal listeners of ``servers``."""
    if process not in {"metadata", "proxy"}:
        return {}
    return {f"DIEM_{process.upper()}_ALLOWED": json.dumps(servers)}


def _drain_seconds(plan: CompositePlan, process: str) -> float:
    # The other children stop after the proxy, within the same time; without clients they need little of it.
    return plan.drain_seconds / 2 if process == "proxy" else plan.drain_seconds


def _environment(plan: CompositePlan, process: str, number: str, ports: Callable[[str], Ports]) -> dict[str, str]:
    if process == "metadata":
        return environment.metadata([plan.number])
    if process == "bridge":
        server = ports(f"websocket-{number}")
        # Servers redirect to this URL, and the proxy of the composite is the only client that they redirect.
        return environment.paired_bridge(number, plan.number, server, server.link_url)
    if process == "websocket":
        data = {f"DIEM_WEBSOCKET_{name}": plan.edge[name] for name in _DATA if name in plan.edge}
        return environment.websocket(number, plan.mode, ports(f"bridge-{number}")) | data
    return {
        **{f"DIEM_PROXY_{name}": value for name, value in plan.edge.items()},
        **environment.proxy(plan.number, plan.proxy, ports("metadata"), []),
        "DIEM_PROXY_CLONE": str(plan.number),
        "DIEM_PROXY_SCALING": plan.mode,
        "DIEM_PROXY_HOST": plan.host,
    }
