"""What the processes of a running system use and count: CPU, memory, connections, updates taken; and the difference."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import httpx

from diem.process.auth import SharedKey
from tests.bench.procfs import cpu_seconds, pss_kib, serving_seconds
from tests.load.processes import Process, children
from tests.load.system import System
from tests.support.patience import PATIENCE_S

_SAMPLE: Final = re.compile(r"^diem_(\w+) (\S+)$", re.MULTILINE)
BROKER: Final = "kafka"
"""The only processes that are JVMs."""
Seen = Mapping[str, Mapping[str, float]]
"""By process: ``cpu`` in seconds, ``compiling``, ``memory_kib`` (proportional), and its unlabelled metrics.

``compiling`` is what a JVM compiles, most of it in the first minutes, and is not in ``cpu``.
"""


async def running(system: System) -> list[Process]:
    """Return the processes that run, including the children of composites."""
    return [process for process in await system.everything() if process.pid is not None]


def usage(processes: Sequence[Process]) -> dict[str, dict[str, float]]:
    """Return CPU and memory of each process."""
    found = {}
    for process, pids in _pids(processes):
        cpu, compiling = sum(map(cpu_seconds, pids)), 0.0
        if kind_of(process.name) == BROKER:
            serving = sum(map(serving_seconds, pids))
            cpu, compiling = serving, max(0.0, cpu - serving)
        found[process.name] = {"cpu": cpu, "compiling": compiling, "memory_kib": sum(map(pss_kib, pids))}
    return found


async def counters(system: System, processes: Sequence[Process]) -> dict[str, dict[str, float]]:
    """Return the metrics of each process, which costs it some CPU."""
    seen: dict[str, dict[str, float]] = {}
    headers = {"Authorization": SharedKey.load(system.state / "internal.key").header}
    async with httpx.AsyncClient(headers=headers, trust_env=False, timeout=PATIENCE_S) as http:
        for process in processes:
            if process.internal_url is not None:
                text = (await http.get(f"{process.internal_url}/metrics")).text
                seen[process.name] = {name: float(value) for name, value in _SAMPLE.findall(text)}
    return seen


async def look(system: System) -> dict[str, dict[str, float]]:
    """Return CPU, memory and metrics of each process."""
    processes = await running(system)
    used, counted = usage(processes), await counters(system, processes)
    return joined(used, counted)


def joined(used: Seen, counted: Seen) -> dict[str, dict[str, float]]:
    """Return what is known of each process."""
    return {name: {**own, **counted.get(name, {})} for name, own in used.items()}


def _pids(processes: Sequence[Process]) -> Iterator[tuple[Process, list[int]]]:
    """Yield each process with its children that are no processes of their own here: workers of nginx."""
    own = {process.pid for process in processes}
    for process in processes:
        assert process.pid is not None
        more = [pid for pid in children(process.pid) if pid not in own]
        yield process, [process.pid, *more]


def kind_of(name: str) -> str:
    """Return the kind of a process by its name: ``composite-1/websocket-2`` is a ``websocket``."""
    return name.rpartition("/")[2].rstrip("-0123456789")


def measured(before: Seen, after: Seen, seconds: float) -> dict[str, Any]:
    """Return what happened between two looks: CPU by kind of process in ms/s, connections, updates taken.

    Raises:
        LookupError: a process was not there at both times, or began anew.
    """
    if before.keys() != after.keys():
        raise LookupError(f"processes have come or gone: {sorted(before.keys() ^ after.keys())}")
    cpu, memory, updates = defaultdict[str, float](float), defaultdict[str, float](float), Counter[str]()
    connections = compiling = 0.0
    for name, now in after.items():
        kind, then = kind_of(name), before[name]
        if now["cpu"] < then["cpu"]:
            raise LookupError(f"{name} began anew")
        cpu[kind] += (now["cpu"] - then["cpu"]) * 1000 / seconds
        compiling += (now.get("compiling", 0.0) - then.get("compiling", 0.0)) * 1000 / seconds
        memory[kind] += now["memory_kib"]
        if kind in {"websocket", "proxy"}:
            for what in ("clients", "proxy_links"):
                connections += (then.get(what, 0.0) + now.get(what, 0.0)) / 2
        if kind == "websocket":
            for what in ("received", "fanned_out", "not_subscribed", "stale"):
                counter = f"updates_{what}_total"
                updates[what] += int(now.get(counter, 0.0) - then.get(counter, 0.0))
    taken = updates["fanned_out"] + updates["not_subscribed"]
    return {
        "seconds": round(seconds, 3),
        "cpu_ms": {kind: round(ms, 3) for kind, ms in cpu.items()},
        "compiling_ms": round(compiling, 3),
        "memory_kib": {kind: round(kib) for kind, kib in memory.items()},
        "connections": connections,
        "taken": taken,
        "not_subscribed": updates["not_subscribed"],
        "waste": round(updates["not_subscribed"] / taken, 4) if taken else 0.0,
    }
