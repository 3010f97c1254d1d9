"""Measure on the running system what a plan changes: connections to servers, their work, their CPU time."""

import asyncio
import re
from collections.abc import Mapping
from time import monotonic
from typing import Final, NamedTuple

from tests.load.injection.scene import Scene
from tests.load.processes import Process

SECONDS: Final = 20.0
"""Duration of a measurement."""
EVERY_SECONDS: Final = 1.0
_TAKEN: Final = ("updates_fanned_out_total", "updates_not_subscribed_total")
_SAMPLE: Final = re.compile(r"^diem_(\w+) (\S+)$", re.MULTILINE)


class Measured(NamedTuple):
    """Means over some seconds; the mappings are by server."""

    seconds: float
    connections: float
    """Mean number to all servers: of clients that dial servers themselves, else of proxies."""
    connections_per_server: dict[str, float]
    taken: dict[str, float]
    """Fresh updates a second."""
    delivered: dict[str, float]
    """Frames a second, to clients or proxies."""
    writes: float
    """Requests a second to the Data Service."""
    cpu: dict[str, float]
    """CPU of servers and bridges, ms in a second."""


async def measure(scene: Scene) -> Measured:
    """Measure for ``SECONDS``."""
    kind = "clients" if scene.system.mode == "z-client" else "proxy_links"
    servers = [process for process in scene.system.processes() if process.name.startswith("websocket-") and process.pid]
    start, cpu, first = monotonic(), scene.system.measure(), await _metrics(scene, servers)
    requests = scene.writer.requests
    looks = []
    while monotonic() - start < SECONDS:
        looks.append(await _metrics(scene, servers))
        await asyncio.sleep(EVERY_SECONDS)
    last, used = await _metrics(scene, servers), scene.system.measure()
    took = monotonic() - start

    def rate(server: str, *names: str) -> float:
        return round(sum(last[server][name] - first[server][name] for name in names) / took, 1)

    means = {server: sum(look[server][kind] for look in looks) / len(looks) for server in first}
    return Measured(
        seconds=round(took, 1),
        connections=round(sum(means.values()), 1),
        connections_per_server={server: round(mean, 1) for server, mean in means.items()},
        taken={server: rate(server, *_TAKEN) for server in first},
        delivered={server: rate(server, "deliveries_total") for server in first},
        writes=round((scene.writer.requests - requests) / took, 2),
        cpu={
            name: round((seconds - cpu.get(name, 0.0)) / took * 1000, 1)
            for name, seconds in used.items()
            if name.startswith(("websocket-", "bridge-"))
        },
    )


async def _metrics(scene: Scene, servers: list[Process]) -> Mapping[str, Mapping[str, float]]:
    """Return the unlabelled metrics of each server, without the prefix of their names."""
    answers = await asyncio.gather(*(scene.system.ask(server.name, "GET", "/metrics") for server in servers))
    return {
        server.name: {name: float(value) for name, value in _SAMPLE.findall(answer.text)}
        for server, answer in zip(servers, answers, strict=True)
    }
