"""Statuses of ``diem up``, made of few words."""

from pathlib import Path
from typing import Any

from deploy.admin.findings import Situation
from deploy.clients.metadata import PlanStatus
from diem.protocol.partition_map import HOT

NOW_MS = 1_767_323_045_000  # 2026-01-02T03:04:05Z
LOGS = Path("/state/logs")


def process(name: str, report: dict[str, Any] | None = None, /, **differences: Any) -> dict[str, Any]:
    """Return a process that has run for an hour; ``report`` is added to that of one that is well, None: no answer."""
    return {
        "name": name,
        "process": name.partition("-")[0],
        "state": "running",
        "pid": 7,
        "uptime_seconds": 3600.0,
        "restarts": 0,
        "last_exit": None,
        "last_exit_seconds": None,
        "urls": {"internal": f"http://{name}"},
        "report": None if report is None else {"ready": True, **report},
        **differences,
    }


def server(name: str, clients: int = 0, **report: Any) -> dict[str, Any]:
    """Return a WebSocket server that is live."""
    numbers = {"clients": clients, "subscriptions": 2 * clients, "deliveries": 0, "lag_seconds": 0.5}
    return process(name, {"live": True, "since": "2026-01-02T00:00:00Z", **numbers, **report})


def dead(name: str, code: int = -9, seconds: float = 5.0) -> dict[str, Any]:
    """Return a process that has died and waits for its restart."""
    ended = {"last_exit": code, "last_exit_seconds": seconds, "restarts": 1}
    return process(name, None, state="waiting", pid=None, uptime_seconds=0.0, **ended)


def data(**report: Any) -> dict[str, Any]:
    """Return a Data Service with one source."""
    sources = [{"name": "market", "type": "market", "ok": True, "error": None, "endpoints": 40}]
    return process("data", {"live": True, "sequence": 100, "endpoints": 40, "sources": sources, **report})


def status(mode: str, *processes: dict[str, Any], **differences: Any) -> dict[str, Any]:
    """Return the status of a system that is up."""
    return {"mode": mode, "up": True, "uptime_seconds": 7200.0, "processes": list(processes), **differences}


def situation(of: dict[str, Any], *plans: PlanStatus, **refusals: dict[str, int]) -> Situation:
    """Return a situation at :data:`NOW_MS`; names in ``refusals`` have ``_`` for ``-``."""
    return Situation(of, NOW_MS, LOGS, plans, {name.replace("_", "-"): causes for name, causes in refusals.items()})


def z_client(servers: int = 2, clients: int = 10) -> dict[str, Any]:
    """Return a system of mode z-client with local brokers that is well."""
    groups = {"1": {"state": "stable", "members": ["b1"] * servers, "owned": 12}}
    return status(
        "z-client",
        process("kafka-1", {}),
        data(publisher={"failure": None, "lag": 0}),
        process("metadata", {"live": True, "epoch": 3, "phase": "stable", "partitions": 12, "clones": groups}),
        *(process(f"bridge-{n}", {"live": True, "lag": 0}) for n in range(1, servers + 1)),
        *(server(f"websocket-{n}", clients) for n in range(1, servers + 1)),
    )


def composites(count: int, pairs: int = 2) -> dict[str, Any]:
    """Return a system of mode xz that is well."""
    return status(
        "xz",
        process("kafka-1", {}),
        data(publisher={"failure": None, "lag": 0}),
        process("nginx", {}),
        *(
            process(f"composite-{n}", {"live": True, "clients": 5, "children": _children(pairs)})
            for n in range(1, count + 1)
        ),
    )


def _children(pairs: int) -> list[dict[str, Any]]:
    numbers = range(1, pairs + 1)
    return [
        process("metadata", {"live": True, "epoch": 3, "phase": "stable"}),
        *(process(f"bridge-{n}", {"live": True, "lag": 0}) for n in numbers),
        *(server(f"websocket-{n}", 0, proxies=1, partitions=[1, 2, HOT]) for n in numbers),
        process("proxy", {"clients": 5, "subscriptions": 9, "metadata": True, "deliveries": 0}),
    ]


def change(of: dict[str, Any], name: str, **differences: Any) -> dict[str, Any]:
    """Return the status with a process changed; ``report`` is added to the one it has."""
    changed = []
    for each in of["processes"]:
        if each["name"] == name:
            report = differences.pop("report", {})
            merged = None if report is None else {**(each["report"] or {}), **report}
            changed.append({**each, **differences, "report": merged})
        else:
            changed.append(each)
    return {**of, "processes": changed}


def replace(of: dict[str, Any], *others: dict[str, Any]) -> dict[str, Any]:
    """Return the status with other processes of these names."""
    by_name = {each["name"]: each for each in others}
    return {**of, "processes": [by_name.get(each["name"], each) for each in of["processes"]]}
