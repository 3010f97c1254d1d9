"""The drawing of a system: stages from the sources to the clients, nodes in rows, and links; pure.

Positions are stages and rows; the page maps them to pixels, and stacks the stages on narrow screens.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from deploy.admin.health import STALE, HealthLevel, SystemHealth, health, worst
from deploy.system.description import with_children
from deploy.terminal import amount
from deploy.topology import Mode
from diem.protocol.partition_map import HOT

STAGES: Final = ("sources", "data", "log", "bridges", "servers", "edge", "nginx", "clients")
TITLES: Final[Mapping[str, str]] = {
    "sources": "Sources",
    "data": "Data Service",
    "log": "Kafka",
    "bridges": "Bridges",
    "servers": "Servers",
    "edge": "Proxies",
    "nginx": "Balancer",
    "clients": "Clients",
}
_STAGE_OF: Final[Mapping[str, str]] = {
    "data": "data",
    "kafka": "log",
    "broadcast": "log",
    "bridge": "bridges",
    "metadata": "bridges",
    "websocket": "servers",
    "proxy": "edge",
    "nginx": "nginx",
}
MAX_PAIRS: Final = 12
"""Maximum number of drawn pairs of bridge and server, or servers; the others are one node."""
MAX_GROUPS: Final = 4
"""Maximum number of composites drawn with their children; the others are one node each."""
GROUP_GAP: Final = 0.7
"""Rows between two composites."""


class DiagramNode(NamedTuple):
    """One process, or several of a kind, in a row of a stage."""

    id: str
    stage: str
    row: float
    label: str
    detail: str
    level: HealthLevel
    word: str
    group: str = ""
    """Name of its composite."""


class Link(NamedTuple):
    """A way of updates from one node to another; ``control`` links carry owners of partitions instead."""

    source: str
    target: str
    flows: bool
    control: bool = False


class Diagram(NamedTuple):
    """Everything that is drawn. ``stages`` have at least one node each."""

    stages: list[str]
    rows: float
    nodes: list[DiagramNode]
    links: list[Link]


class _Process(NamedTuple):
    """A process other than a composite."""

    name: str
    group: str
    process: str
    number: int
    health: SystemHealth
    report: Mapping[str, Any]


def diagram(status: Mapping[str, Any], clients: int, updates_per_s: float | None) -> Diagram:
    """Return the drawing of a status of ``diem up``."""
    processes = list(_processes(status["processes"]))
    placed = _Placed()
    groups = _groups(processes)
    for group, members in groups.items():
        _place_group(placed, group, members, MAX_PAIRS if len(groups) == 1 else max(2, MAX_PAIRS // len(groups)))
    for entry in status["processes"]:
        if entry["process"] == "composite" and entry["name"] not in groups:
            state = health(entry)
            placed.add("servers", placed.next_row(), entry["name"], _children(entry), state)
    middle = max(0.0, (placed.rows - 1) / 2)
    by_process: dict[str, list[_Process]] = {}
    for each in processes:
        if not each.group:
            by_process.setdefault(each.process, []).append(each)
    for each in by_process.get("data", ()):
        _place_sources(placed, middle, each.report)
        rate = "" if updates_per_s is None else f"{_rate(updates_per_s)} updates/s"
        placed.add("data", middle, each.name, rate, each.health)
    _place_log(placed, middle, status, by_process)
    for process in ("proxy", "nginx"):
        for offset, each in enumerate(by_process.get(process, ())):
            detail = amount(each.report["clients"], "client") if "clients" in each.report else ""
            placed.add(_STAGE_OF[process], middle + offset, each.name, detail, each.health)
    placed.add("clients", middle, "clients", f"{clients:,}", SystemHealth(HealthLevel.OK, ""))
    links = list(_links(placed.nodes))
    present = {node.stage for node in placed.nodes}
    return Diagram([stage for stage in STAGES if stage in present], max(1.0, placed.rows), placed.nodes, links)


def _processes(entries: Iterable[dict[str, Any]]) -> Iterator[_Process]:
    for name, entry in with_children(entries):
        if entry["process"] != "composite":
            number = name.rpartition("-")[2]
            yield _Process(
                name,
                name.rpartition("/")[0],
                entry["process"],
                int(number) if number.isdecimal() else 0,
                health(entry),
                entry.get("report") or {},
            )


class _Placed:
    """Nodes with their places."""

    def __init__(self) -> None:
        self.nodes: list[DiagramNode] = []
        self.rows = 0.0
        """Rows that are in use."""

    def add(self, stage: str, row: float, name: str, detail: str, state: SystemHealth, *, group: str = "") -> None:
        shown = detail if state.level is HealthLevel.OK else state.word
        label = name.rpartition("/")[2]
        self.nodes.append(DiagramNode(name, stage, row, label, shown, state.level, state.word, group))
        self.rows = max(self.rows, row + 1)

    def next_row(self) -> float:
        return self.rows


def _groups(processes: list[_Process]) -> dict[str, list[_Process]]:
    """Return the bridges, servers and other children by composite; ``""`` has those without one."""
    found: dict[str, list[_Process]] = {}
    for each in processes:
        if each.group or each.process in {"bridge", "websocket", "metadata"}:
            found.setdefault(each.group, []).append(each)
    if len(found) <= MAX_GROUPS:
        return found
    bad = [
        name for name, members in found.items() if worst(each.health.level for each in members) is not HealthLevel.OK
    ]
    shown = sorted([*bad, *(name for name in found if name not in bad)][:MAX_GROUPS], key=list(found).index)
    return {name: found[name] for name in shown}


def _children(entry: Mapping[str, Any]) -> str:
    children = (entry.get("report") or {}).get("children") or ()
    return amount(sum(child["process"] == "websocket" for child in children), "server")


def _place_group(placed: _Placed, group: str, members: list[_Process], most: int) -> None:
    first = placed.next_row() + (GROUP_GAP if group and placed.nodes else 0)
    numbers = sorted({each.number for each in members if each.process in {"bridge", "websocket"}})
    of = {(each.process, each.number): each for each in members}

    def is_bad(number: int) -> bool:
        pair = [of[process, number] for process in ("bridge", "websocket") if (process, number) in of]
        return worst(each.health.level for each in pair) is not HealthLevel.OK

    shown = numbers
    if len(numbers) > most:
        # Bad ones first: they are of interest.
        ranked = sorted(numbers, key=lambda number: (not is_bad(number), number))
        shown = sorted(ranked[:most])
    row = first
    for number in shown:
        for process in ("bridge", "websocket"):
            if (process, number) in of:
                each = of[process, number]
                placed.add(_STAGE_OF[process], row, each.name, _detail(each), each.health, group=group)
        row += 1
    if hidden := [number for number in numbers if number not in shown]:
        levels = [of["websocket", number].health for number in hidden if ("websocket", number) in of]
        level = worst(each.level for each in levels)
        name = f"{group}/more" if group else "more"
        state = SystemHealth(level, "ready" if level is HealthLevel.OK else "not all well")
        placed.add("servers", row, name, f"{len(hidden)} more, all ready", state, group=group)
        row += 1
    for each in members:
        if each.process == "metadata":
            placed.add("bridges", row, each.name, _detail(each), each.health, group=group)
            row += 1
        elif each.process == "proxy":
            placed.add("edge", first + max(0, len(shown) - 1) / 2, each.name, _detail(each), each.health, group=group)


def _detail(each: _Process) -> str:
    report = each.report
    match each.process:
        case "bridge":
            return "" if report.get("lag") is None else f"lag {report['lag']:,}"
        case "websocket" if report.get("proxies"):
            return amount(sum(each != HOT for each in report.get("partitions") or ()), "partition")
        case "websocket" | "proxy":
            return amount(report["clients"], "client") if "clients" in report else ""
        case "metadata" if report.get("epoch") is not None:
            return f"epoch {report['epoch']}, {report.get('phase')}"
    return ""


def _place_sources(placed: _Placed, row: float, report: Mapping[str, Any]) -> None:
    sources = report.get("sources") or ()
    if not sources:
        return
    failing = sum(not each.get("ok") and bool(each.get("error")) for each in sources)
    state = SystemHealth(HealthLevel.WARNING if failing else HealthLevel.OK, f"{failing} of {len(sources)} fail")
    placed.add("sources", row, "sources", f"{len(sources)} working", state)


def _place_log(
    placed: _Placed, row: float, status: Mapping[str, Any], by_process: Mapping[str, list[_Process]]
) -> None:
    """Place the brokers, as one node, or the Broadcast node."""
    for each in by_process.get("broadcast", ()):
        placed.add("log", row, each.name, amount(each.report.get("readers") or 0, "reader"), each.health)
    if status["mode"] not in set(Mode) or not Mode(status["mode"]).uses_kafka:
        return
    brokers = by_process.get("kafka", [])
    data = by_process.get("data", [])
    unreachable = any((each.report.get("publisher") or {}).get("failure") for each in data)
    if not brokers:
        state = (
            SystemHealth(HealthLevel.CRITICAL, "unreachable") if unreachable else SystemHealth(HealthLevel.OK, "ready")
        )
        placed.add("log", row, "kafka", "of another system", state)
        return
    bad = [each.health for each in brokers if each.health.level is not HealthLevel.OK]
    state = max(
        bad, key=lambda each: list(HealthLevel).index(each.level), default=SystemHealth(HealthLevel.OK, "ready")
    )
    if bad and len(brokers) > 1:
        state = state._replace(word=f"{len(bad)} of {len(brokers)} {state.word}")
    placed.add("log", row, "kafka", amount(len(brokers), "broker"), state)


def _links(nodes: list[DiagramNode]) -> Iterator[Link]:
    """Yield the links of updates, then those of owners."""
    stages: dict[str, list[DiagramNode]] = {}
    for node in nodes:
        stages.setdefault(node.stage, []).append(node)
    servers = stages.get("servers", [])
    bridges = [node for node in stages.get("bridges", ()) if not node.label.startswith("metadata")]
    metadata = [node for node in stages.get("bridges", ()) if node not in bridges]
    bridge_of = {(node.group, _number(node.label)): node for node in bridges}
    edge, front, clients = (stages.get(name, []) for name in ("edge", "nginx", "clients"))
    log = stages.get("log", [])
    data = stages.get("data", [])

    yield from _all(stages.get("sources", []), data)
    yield from _all(data, log)
    for server in servers:
        own = bridge_of.get((server.group, _number(server.label)))
        yield from _all([own] if own else log or data, [server])
    yield from _all(log, bridges)
    for server in servers:
        after = [node for node in edge if node.group == server.group] or front or clients
        yield from _all([server], after)
    yield from _all(edge, front or clients)
    yield from _all(front, clients)
    for service in metadata:
        yield from _all(log, [service], control=True)
        yield from _all([service], [node for node in edge if node.group == service.group] or clients, control=True)


def _number(label: str) -> str:
    return label.rpartition("-")[2]


def _all(sources: Iterable[DiagramNode], targets: list[DiagramNode], *, control: bool = False) -> Iterator[Link]:
    for source in sources:
        for target in targets:
            flows = all(node.level is not HealthLevel.CRITICAL and node.word != STALE.word for node in (source, target))
            yield Link(source.id, target.id, flows, control)


def _rate(per_s: float) -> str:
    return f"{per_s:,.0f}" if per_s >= 10 or per_s == 0 else f"{per_s:.1f}"
