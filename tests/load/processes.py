"""The processes of a running system, and their CPU time."""

import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Process:
    """One process of the system, as ``processes.json`` describes it."""

    name: str
    pid: int | None
    internal_url: str | None
    """None for third-party programs: nginx and the brokers."""
    public_port: int | None
    restarts: int

    @classmethod
    def described(cls, entry: dict[str, Any], parent: str = "") -> "Process":
        """Return a process from an entry of ``processes.json``, or of the ``/status`` of the composite ``parent``."""
        name = f"{parent}/{entry['name']}" if parent else entry["name"]
        public = entry.get("ports", {}).get("public")
        return cls(name, entry["pid"], entry["urls"]["internal"], public, entry["restarts"])


class Cpu:
    """CPU seconds by process name, user and system, over restarts."""

    def __init__(self) -> None:
        self._used: dict[tuple[str, int], float] = {}

    def measure(self, processes: Iterable[Process]) -> dict[str, float]:
        """Return CPU seconds so far; for a killed process, until the last call. Children count for their parents."""
        for process in processes:
            if process.pid:
                for pid in (process.pid, *children(process.pid)):
                    with suppress(OSError):
                        self._used[process.name, pid] = _cpu_seconds(pid)
        total: dict[str, float] = {}
        for (name, _), seconds in self._used.items():
            total[name] = round(total.get(name, 0.0) + seconds, 2)
        return total


def children(pid: int) -> list[int]:
    """Return the child processes: workers of nginx, children of a composite."""
    with suppress(OSError):
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="utf-8").split()]
    return []


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
