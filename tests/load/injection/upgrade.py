"""A rolling upgrade and its rollback under load: process by process, each stopped in order and started as the other.

The order is that of docs/operations.md section 4.1. ``diem up`` itself goes on as the release that it was started as.
"""

import asyncio
import signal
from collections.abc import Iterable
from time import monotonic
from typing import Final

from diem.protocol.compatibility import OURS, UNANNOUNCED
from tests.load.bench import Goal
from tests.load.injection.scene import Scene
from tests.load.processes import Process
from tests.load.system import NotUp
from tests.oracle.history import Fault

UPGRADE: Final = "upgrade"
ROLLBACK: Final = "rollback"
MIXED_SECONDS: Final = 2.0
"""Time for which each mixture of releases is under load."""
HEALED_SECONDS: Final = 20.0
"""Longest time until all clients are live again: the only server of an endpoint ends, and the next one has to start."""
WITH_KAFKA: Final = ("bridge", "websocket", "data", "metadata", "proxy")
"""Who is dialled before who dials, and who reads from Kafka before who writes."""
WITHOUT_KAFKA: Final = ("data", "broadcast", "websocket")


def order_of(names: Iterable[str]) -> list[str]:
    """Return the processes of DIEM among ``names`` in the order of an upgrade; pairs one after the other."""
    named = [(name.partition("-")[0], int(name.partition("-")[2] or 0), name) for name in names]
    order = WITH_KAFKA if any(kind == "bridge" for kind, _, _ in named) else WITHOUT_KAFKA
    paired = {"bridge", "websocket"} if order is WITH_KAFKA else set[str]()
    known = [each for each in named if each[0] in order]
    # The pairs come first; in each, the bridge.
    return [
        name
        for _, _, _, name in sorted(
            (kind not in paired, number if kind in paired else 0, order.index(kind), name)
            for kind, number, name in known
        )
    ]


async def upgraded(scene: Scene) -> Fault:
    """Replace the processes of the last release by those of this checkout. No client may miss anything."""
    return await _exchange(scene, UPGRADE, order_of(_names(scene)), OURS.newest)


async def rolled_back(scene: Scene) -> Fault:
    """Go back to the last release, in the reverse order. No client may miss anything."""
    return await _exchange(scene, ROLLBACK, order_of(_names(scene))[::-1], UNANNOUNCED.newest)


def _names(scene: Scene) -> list[str]:
    return [process.name for process in scene.system.processes()]


async def _exchange(scene: Scene, kind: str, names: list[str], newest: int) -> Fault:
    system = scene.system
    if system.trees is None:
        raise NotUp("the run has one release only")
    start, converged = monotonic(), 0
    system.trees.exchange()
    for name in names:
        await system.back(name, await system.kill(name, signal.SIGTERM))
        await asyncio.sleep(MIXED_SECONDS)
        converged += await _converged(scene)
    end = monotonic()
    there = [await _newest(scene, system.process(name)) for name in names]
    scene.goals.extend(
        [
            Goal(
                f"processes of the other release after the {kind}", "", len(names), there.count(newest), at_least=True
            ),
            Goal(f"mixtures in which all clients got everything, {kind}", "", len(names), converged, at_least=True),
        ]
    )
    # Without another server that clients could go to, its start is an outage.
    alone = system.mode == "single"
    return Fault(kind, ", ".join(names), start, end, excuses=alone, heal=HEALED_SECONDS)


async def _converged(scene: Scene) -> bool:
    """Return whether all clients become live, with all that was written: the releases do speak with each other."""
    await scene.clients.expect(scene.writer.newest())
    return await scene.clients.until(
        lambda figures: figures["behind"] == 0 and figures["live"] == figures["connected"] == figures["present"],
        HEALED_SECONDS,
    )


async def _newest(scene: Scene, process: Process) -> int:
    status = (await scene.system.ask(process.name, "GET", "/status")).json()
    return int(status.get("protocol", UNANNOUNCED._asdict())["newest"])
