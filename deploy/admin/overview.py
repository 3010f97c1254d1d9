"""The document shown by the operator page, made from one status of ``diem up``; pure."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from deploy.admin.counters import REFUSED, Counters, Name
from deploy.admin.diagram import TITLES, diagram
from deploy.admin.findings import Situation, listed, verdict
from deploy.admin.health import NO_ANSWER, STALE, health
from deploy.clients.metadata import PlanStatus
from deploy.invocation import pasteable
from deploy.system.description import with_children
from deploy.topology import Mode
from diem.process.lifecycle import exit_reason
from diem.protocol.update import iso

SHOWN_PLANS: Final = 5
CPU: Final = "cpu_ms"
COUNTED: Final = ("deliveries", "sequence", CPU)
"""Counters in reports with displayed rates."""


class Move(NamedTuple):
    """A moving endpoint; partitions are numbers, or ``hot``."""

    endpoint: str
    home: str
    target: str


def counter_values(status: Mapping[str, Any]) -> dict[Name, int]:
    """Return the counters of a status by process and name."""
    found: dict[Name, int] = {}
    for name, process in with_children(status["processes"]):
        report = process.get("report") or {}
        # A composite's own sums are those of its children.
        counted = (CPU,) if "children" in report else COUNTED
        found |= {(name, each): report[each] for each in counted if isinstance(report.get(each), int)}
        if "children" in report:
            continue
        refused = report.get("refused")
        if isinstance(refused, Mapping):
            causes = {cause: count for cause, count in refused.items() if isinstance(count, int)}
            # The sum exists before the first cause.
            found[name, REFUSED] = sum(causes.values())
            found |= {(name, f"{REFUSED}.{cause}"): count for cause, count in causes.items()}
    return found


def overview(situation: Situation, counters: Counters, moves: Sequence[Move] | None = None) -> dict[str, Any]:
    """Return the document as JSON values.

    Args:
        situation: the status and what was read beside it.
        counters: has been updated with :func:`counter_values` of the status.
        moves: some endpoints of the plan in progress; None if they are not known.
    """
    status = situation.status
    rows = [_row(situation, counters, name, process) for name, process in with_children(status["processes"])]
    found = verdict(situation)
    totals = _totals(rows, counters)
    drawing = diagram(status, totals["clients"], totals["updates_per_second"])
    return {
        "time": iso(situation.now_ms),
        "mode": status["mode"],
        "up": status["up"],
        "since": situation.ago(status["uptime_seconds"]),
        "state": found.state,
        "headline": found.headline,
        "impact": " ".join(filter(None, (_impact(rows, totals), _unknown(rows)))),
        "findings": [
            {**each._asdict(), "detail": pasteable(each.detail), "action": pasteable(each.action)}
            for each in found.findings
        ],
        "totals": totals,
        "diagram": {
            "stages": [{"name": stage, "title": _title(stage, status["mode"])} for stage in drawing.stages],
            "rows": drawing.rows,
            "nodes": [node._asdict() for node in drawing.nodes],
            "links": [link._asdict() for link in drawing.links],
        },
        "processes": rows,
        "sources": [source for row in status["processes"] for source in (row.get("report") or {}).get("sources") or ()],
        "plans": _plans(situation.plans),
        "moves": None if moves is None else [each._asdict() for each in moves],
        "events": list(status.get("events") or ()),
    }


def _row(situation: Situation, counters: Counters, name: str, process: Mapping[str, Any]) -> dict[str, Any]:
    report = process.get("report") or {}
    state = health(dict(process))
    exited = process.get("last_exit")
    refused = report.get("refused")
    return {
        "name": name,
        "process": process["process"],
        "level": state.level,
        "word": state.word,
        # Of a state other than "ready": its start, if known.
        "since": report.get("since") if state is STALE else situation.ago(_begin_s(process)),
        "clients": report.get("clients"),
        "subscriptions": report.get("subscriptions"),
        "live": report.get("live"),
        "lag_seconds": report.get("lag_seconds"),
        "lag": (report.get("publisher") or report).get("lag"),
        "delay_seconds": report.get("delay_seconds"),
        "cores": _cores(counters, name),
        "refused": sum(refused.values()) if isinstance(refused, Mapping) else None,
        "deliveries_per_second": counters.rate((name, "deliveries")),
        "restarts": process["restarts"],
        "last_exit": None if exited is None else exit_reason(exited),
        "last_exit_time": situation.ago(process.get("last_exit_seconds")),
    }


def _cores(counters: Counters, name: str) -> float | None:
    """Return the cores that a process uses; None if unknown."""
    rate = counters.rate((name, CPU))
    return None if rate is None else rate / 1000


def _title(stage: str, mode: str) -> str:
    return "Broadcast" if stage == "log" and mode == Mode.X_BROADCAST else TITLES[stage]


def _begin_s(process: Mapping[str, Any]) -> float | None:
    """Return the seconds since a process started, or ended if not running; None if unknown."""
    running = process["state"] == "running"
    seconds: float | None = process["uptime_seconds"] if running else process.get("last_exit_seconds")
    return seconds


def _totals(rows: Sequence[Mapping[str, Any]], counters: Counters) -> dict[str, Any]:
    """Return the sums over the processes with clients; a composite's are its proxy's."""
    edges = _edges(rows)
    servers = [row for row in rows if row["process"] == "websocket"]
    return {
        "clients": _sum(row["clients"] for row in edges) or 0,
        "subscriptions": _sum(row["subscriptions"] for row in edges) or 0,
        "servers": len(servers),
        "live_servers": sum(row["live"] is True for row in servers),
        "updates_per_second": _sum(
            counters.rate((row["name"], "sequence")) for row in rows if row["process"] == "data"
        ),
        "deliveries_per_second": _sum(row["deliveries_per_second"] for row in edges),
        "delay_seconds": max((row["delay_seconds"] for row in rows if row["delay_seconds"] is not None), default=None),
        "cores": _sum(row["cores"] for row in rows),
        "refused": sum(counters.increase((row["name"], REFUSED)) for row in edges),
    }


def _edges(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    proxies = [row for row in rows if row["process"] == "proxy"]
    return proxies or [row for row in rows if row["process"] == "websocket"]


def _sum(values: Iterable[float | None]) -> Any:  # noqa: ANN401 - int of ints
    """Return the sum of the known values; None without any."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _impact(rows: Sequence[Mapping[str, Any]], totals: Mapping[str, Any]) -> str:
    """Return the impact on clients in one sentence."""
    clients = totals["clients"]
    if not clients:
        return "No clients are connected."
    if totals["servers"] and not totals["live_servers"]:
        return f"None of the {clients:,} clients gets updates." if clients > 1 else "The client is sent no updates."
    stale = sum(row["clients"] or 0 for row in _edges(rows) if row["word"] == STALE.word)
    if stale:
        return f"{clients - stale:,} of {clients:,} clients are sent updates."
    return f"All {clients:,} clients are sent updates." if clients > 1 else "The client is sent updates."


def _unknown(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return a sentence about the processes whose clients are not known, if any."""
    edges = [*_edges(rows), *(row for row in rows if row["process"] == "composite")]
    silent = [row["name"] for row in edges if row["word"] == NO_ANSWER.word]
    return f"Nothing is known of clients at {listed(silent)}." if silent else ""


def _plans(plans: Sequence[PlanStatus]) -> list[dict[str, Any]]:
    """Return the last plans, the current one first."""
    last = [plan for plan in plans[-SHOWN_PLANS:] if not plan.is_in_progress]
    busy = [plan for plan in plans if plan.is_in_progress]
    return [
        {
            "id": plan.id,
            "state": plan.state,
            "in_progress": plan.is_in_progress,
            "outdated": plan.is_outdated,
            "moves": plan.moves,
            "waiting_for": plan.waiting_for,
            "since": plan.since,
            "created": plan.created,
        }
        for plan in (*busy, *reversed(last))
    ]
