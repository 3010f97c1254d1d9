"""Description of a running ``diem up`` for ``processes.json`` and ``diem status``; pure."""

import os
from collections.abc import Iterable, Iterator
from typing import Any, Final

from deploy.topology import Topology
from diem.process.supervisor import ChildStatus


def describe(
    topology: Topology,
    statuses: Iterable[ChildStatus],
    *,
    up: bool,
    uptime_seconds: float,
    servers: int,
    operator_url: str | None = None,
) -> dict[str, Any]:
    """Describe the current processes.

    ``servers`` is the requested number of servers, in mode xz of composites; ``operator_url`` is the operator page's.
    """
    now = {status.name: status for status in statuses}
    urls: dict[str, Any] = {
        "page": topology.page_url,
        "rest": topology.rest_url,
        "websocket": list(topology.client_urls(servers)),
    }
    if topology.metadata_urls:
        urls["metadata"] = list(topology.metadata_urls)
    if operator_url is not None:
        urls["operator"] = operator_url
    return {
        "pid": os.getpid(),
        "mode": str(topology.mode),
        "up": up,
        "uptime_seconds": round(uptime_seconds, 1),
        "servers": servers,
        "max_servers": topology.max_servers,
        # For commands on the same cluster; passwords are in files.
        "kafka": _kafka(topology),
        "traffic": _settings(topology, "DIEM_TRAFFIC_"),
        "clones": topology.clones,
        "urls": urls,
        # For commands to recognise this system, whatever name they connect to.
        "certificate": str(topology.public.certificate) if topology.public.certificate else None,
        "processes": [
            {
                "name": process.name,
                "process": process.process,
                "clone": process.clone,
                "state": str(now[process.name].state),
                "pid": now[process.name].pid,
                "uptime_seconds": round(now[process.name].uptime_seconds, 1),
                "restarts": now[process.name].restarts,
                "last_exit": now[process.name].last_exit,
                "last_exit_seconds": _rounded(now[process.name].last_exit_seconds),
                "ports": {"public": process.ports.public, "internal": process.ports.internal},
                "urls": {"public": process.public_url, "internal": process.internal_url},
            }
            for process in topology.processes
            if process.name in now
        ],
    }


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 1)


def _kafka(topology: Topology) -> dict[str, str]:
    settings = _settings(topology, "DIEM_KAFKA_")
    if any(process.process == "kafka" for process in topology.processes):
        # Each process has its own user there, and so has each command.
        for name in ("sasl_username", "sasl_password_file"):
            settings.pop(name, None)
    return settings


def _settings(topology: Topology, prefix: str) -> dict[str, str]:
    env = {name: value for process in topology.processes for name, value in process.env.items()}
    return {name.removeprefix(prefix).lower(): value for name, value in env.items() if name.startswith(prefix)}


def with_children(processes: Iterable[dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the processes of a status by name; after each composite its children, named ``composite-1/websocket-1``."""
    for process in processes:
        yield process["name"], process
        for child in (process.get("report") or {}).get("children", ()):
            yield f"{process['name']}/{child['name']}", child


LEAST_COMMITS: Final = 100
"""Minimum number of commits since the Data Service's start for a meaningful mean."""


def updates_per_commit(processes: Iterable[dict[str, Any]]) -> float | None:
    """Return the average number of updates per commit since the start; None if not known yet.

    Updates committed together arrive together at the servers.
    """
    reports = [process.get("report") or {} for process in processes if process["process"] == "data"]
    commits, changes = (sum(int(report.get(name) or 0) for report in reports) for name in ("commits", "changes"))
    return max(1.0, changes / commits) if commits >= LEAST_COMMITS else None
