"""The children of a composite, and the settings of each. Pure."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from diem.process.addresses import HOST, Ports
from diem.process.listeners import is_loopback
from diem.process.modes import ACCESS, INSIDE_COMPOSITE, KINDS, SENDERS, Place, StopStage, environment

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
    """Shared settings of one composite's children.

    ``number`` is the clone served by its group, ``host`` and ``port`` are the public address of its proxy, ``edge`` has
    further settings of the proxy by name, ``sockets`` is the directory of Unix sockets for links between children.
    """

    number: int
    mode: str
    host: str
    port: int
    drain_seconds: float = 3.0
    edge: Mapping[str, str] = field(default_factory=dict)
    sockets: Path | None = None
    interest_url: str = ""
    """URLs at which the servers report what is watched."""
    max_pairs: int = 1
    """Maximum number of pairs: the metadata service and the proxy dial only their servers."""


def child_names(pairs: int) -> tuple[str, ...]:
    """Return the names of the children of a composite, in display order."""
    numbers = range(1, pairs + 1)
    return tuple(
        name
        for process in INSIDE_COMPOSITE
        for name in ([f"{process}-{n}" for n in numbers] if process in {"bridge", "websocket"} else [process])
    )


def children(plan: CompositePlan, pairs: int, ports: Callable[[str], Ports]) -> tuple[Child, ...]:
    """Return the children of a composite with ``pairs`` pairs; ``ports`` must be stable for each name."""
    # Including servers of stopped pairs: a child keeps its settings when the number of pairs changes.
    spare = (f"websocket-{number}" for number in range(pairs + 1, plan.max_pairs + 1))
    found = {name: ports(name) for name in (*child_names(pairs), *spare)}
    found["proxy"] = found["proxy"]._replace(public=plan.port)
    return tuple(_child(plan, name, found) for name in child_names(pairs))


def _child(plan: CompositePlan, name: str, ports: Mapping[str, Ports]) -> Child:
    process, _, number = name.partition("-")
    place = Place(
        mode=plan.mode,
        process=process,
        name=name,
        number=number or str(plan.number),
        ports=ports,
        given=_given(plan, name, ports),
        clone=plan.number,
    )
    return Child(name, process, KINDS[process].stage, ports[name].internal or 0, environment(place))


def _given(plan: CompositePlan, name: str, ports: Mapping[str, Ports]) -> dict[str, Mapping[str, str | None]]:
    """Return the settings derived from the composite's; others are inherited from its environment."""
    process, _, number = name.partition("-")
    shared = {
        "SUPERVISED": "1",
        "HEALTH_PORT": "",  # the composite's own
        "DRAIN_SECONDS": str(_drain_seconds(plan, process)),
        "INTERNAL_SOCKETS": None if plan.sockets is None else str(plan.sockets),
    }
    # With the number, because children of other composites have the same names.
    given: dict[str, Mapping[str, str | None]] = {
        "all": shared,
        "traffic": {"EDGE": f"composite-{plan.number}.{name}"},
    }
    match process:
        case "metadata":
            given[process] = {"CLONES": json.dumps([plan.number]), **_access(plan)}
        case "bridge":
            # The composite's proxy is the only client that its servers redirect.
            given[process] = {"SERVER_PUBLIC_URL": ports[f"websocket-{number}"].link_url}
        case "websocket":
            shared_edge = {each: plan.edge[each] for each in SENDERS if each in plan.edge}
            given[process] = {**_access(plan), **shared_edge, "INTEREST_URL": plan.interest_url or None}
        case "proxy":
            own = {"SCALING": plan.mode, "CLONE": str(plan.number), "HOST": plan.host}
            given[process] = {**plan.edge, **own}
    return given


def _access(plan: CompositePlan) -> dict[str, str]:
    """Return the client authentication settings of children behind the proxy: the proxy's own.

    They listen on loopback. If the proxy does not, its ``auto`` gives nobody the rights of this machine, so theirs must
    not either.
    """
    auto = plan.edge.get("ANONYMOUS") == "auto"
    closed = {"ANONYMOUS": "off"} if auto and not is_loopback(plan.host) else {}
    return {name: value for name, value in {**plan.edge, **closed}.items() if name in ACCESS}


def _drain_seconds(plan: CompositePlan, process: str) -> float:
    # The other children stop after the proxy, within the same time, of which they need little without clients.
    return plan.drain_seconds / 2 if process == "proxy" else plan.drain_seconds
