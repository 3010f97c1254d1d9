"""The load to recommend a mode for: from numbers, from recorded traffic, or from the running system."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic
from typing import Any, Final

from deploy.system import control
from deploy.system.description import updates_per_commit, with_children
from deploy.system.state_dir import StateDir
from deploy.terminal import Terminal
from deploy.topology import Mode
from diem.errors import ConfigurationError
from learning.modes.configuration import Configuration, Size
from learning.modes.load import USUAL_BATCH, Load, touched

SAMPLE_S: Final = 3.0
"""Duration of counting a running system's updates."""
LEAST_UPTIME_S: Final = 60.0
"""Of a Data Service: before, its mean rate of updates is that of the first data of its sources."""
NUMBERS: Final = ("clients", "endpoints", "updates")
"""Fields of a load required for a recommendation."""


ONE: Final = Size()


class NoLoad(ConfigurationError):
    """There is nothing to recommend a mode for."""


@dataclass(frozen=True, slots=True)
class LoadSource:
    """A load and its origin."""

    load: Load
    text: str
    """For people."""
    present: Configuration | None = None
    """The current mode; None without one, or if unknown."""
    size: Size = ONE
    """The numbers of its servers and clones."""


def from_numbers(given: Mapping[str, Any]) -> LoadSource:
    """Return the load of given fields of ``Load``. Raises ``NoLoad``: one is missing."""
    missing = [f"--{name}" for name in NUMBERS if given.get(name) is None]
    if missing:
        raise NoLoad(f"{' and '.join(missing)}: required, because no `diem up` runs here and --traffic is not given")
    return LoadSource(Load(**{name: value for name, value in given.items() if value is not None}), "the numbers given")


def from_traffic(folder: Path, terminal: Terminal) -> LoadSource:
    """Return the load of recorded traffic, or of its statistics; without Spark.

    Raises:
        NoTrafficToPlan: there is none.
        DiemError: it cannot be read, or packages are missing.
    """
    from learning.planning import context, traffic_input  # noqa: PLC0415  # they take long to import

    traffic_input.require_planner()
    found = traffic_input.read_input(context.PlanRequest(folder, spark=False), terminal)
    return LoadSource(found.instance.load, f"{found.source}, {found.start} to {found.end}")


async def from_system(state: StateDir) -> LoadSource:
    """Return the load of the running system, whose updates are counted for ``SAMPLE_S``.

    Raises:
        NotUp: nothing runs in the state directory.
        ControlFailed: the ``diem up`` there does not answer.
    """
    before, began = await control.request(state, "status"), monotonic()
    await asyncio.sleep(SAMPLE_S)
    after = await control.request(state, "status")
    return source_of(before, after, monotonic() - began)


def source_of(before: Mapping[str, Any], after: Mapping[str, Any], seconds: float) -> LoadSource:
    """Return the load described by two replies of ``status``."""
    updates = max(0.0, (_sequence(after) - _sequence(before)) / seconds)
    return _running(after, updates, f"updates of {seconds:.0f} s")


def mean_source_of(status: Mapping[str, Any]) -> LoadSource | None:
    """Return the load that one reply of ``status`` describes, with the mean rate of updates since the start.

    None: the Data Service does not answer, or has not run for ``LEAST_UPTIME_S``.
    """
    data = next((process for process in status["processes"] if process["process"] == "data"), None)
    changes = None if data is None else (data.get("report") or {}).get("changes")
    if data is None or changes is None or data["uptime_seconds"] < LEAST_UPTIME_S:
        return None
    seconds = float(data["uptime_seconds"])
    return _running(status, changes / seconds, f"updates of {seconds:.0f} s")


def _running(after: Mapping[str, Any], updates: float, text: str) -> LoadSource:
    """Return the load of a running system with this many updates a second."""
    reports = [(process["process"], process.get("report") or {}) for _, process in with_children(after["processes"])]
    edge = "proxy" if any(kind == "proxy" for kind, _ in reports) else "websocket"
    edges = [report for kind, report in reports if kind == edge]
    clients, subscriptions = (sum(int(each.get(name) or 0) for each in edges) for name in ("clients", "subscriptions"))
    present = Configuration(after["mode"])
    size = Size(*_size(after))
    connected = _clients(clients, subscriptions, size) if present is Configuration.Z_CLIENT else float(clients)
    load = Load(
        clients=connected,
        endpoints=float(max((int(each.get("endpoints") or 0) for kind, each in reports if kind == "data"), default=0)),
        updates=updates,
        subscriptions=subscriptions / connected if connected else 0.0,
        batch=updates_per_commit(after["processes"]) or USUAL_BATCH,
    )
    return LoadSource(load, f"the running {present}, {text}", present, size)


def _size(status: Mapping[str, Any]) -> tuple[int, int]:
    servers, clones = int(status.get("servers") or 1), int(status.get("clones") or 1)
    if status["mode"] != Mode.XZ:
        return servers, clones
    # ``servers`` is the number of composites there.
    children = sum(name.startswith("composite-1/websocket") for name, _ in with_children(status["processes"]))
    return max(1, children), servers


def _clients(connections: int, subscriptions: int, size: Size) -> float:
    """Return the clients that have this many connections: each has one to every server that it needs."""
    clients = float(connections)
    for _ in range(20):
        each = subscriptions / clients if clients else 0.0
        clients = connections / max(1.0, touched(size.servers, each))
    return clients


def _sequence(status: Mapping[str, Any]) -> int:
    found = [
        (process.get("report") or {}).get("sequence") for process in status["processes"] if process["process"] == "data"
    ]
    return int(found[0] or 0) if found else 0


def overridden(source: LoadSource, given: Mapping[str, Any]) -> LoadSource:
    """Return a source with the given fields of ``Load`` in place of its own.

    Raises:
        NoLoad: the load has no clients, endpoints or updates.
    """
    values = {name: value for name, value in given.items() if value is not None}
    load = replace(source.load, **values)
    if {"clients", "endpoints", "subscriptions"} & values.keys() and source.load.subscribers is not None:
        load = replace(load, subscribers=None)
    if missing := [f"--{name}" for name in NUMBERS if not getattr(load, name) > 0]:
        raise NoLoad(f"{source.text}: it has no {' and no '.join(missing)}; give the numbers to plan for")
    return replace(
        source, load=load, text=f"{source.text}, with {', '.join(values)} as given" if values else source.text
    )
