"""Faults of servers that share the endpoints: servers down, rebalance storms, no metadata service."""

import asyncio
import os
import signal
from collections.abc import Sequence
from contextlib import suppress
from time import monotonic

import orjson
from websockets.typing import Subprotocol

from diem.process.auth import SharedKey
from services.composite.control import PATH, SUBPROTOCOL
from tests.load.injection.keep_down import KeepDown
from tests.load.injection.scene import Inject, Scene
from tests.load.system import START_SECONDS, NotUp
from tests.oracle.history import Fault
from tests.support.internal import InternalConnect

TAKEN_OVER_SECONDS, LOCATED_SECONDS = 20.0, 25.0
"""Time within which others serve the endpoints of a lost server: a group gives up a bridge after 10 s, and a client
that locates servers itself asks again only every 5 to 10 s."""
WRITTEN_SECONDS = 3.0
"""Time in which every endpoint changes: clients that have converged since do not need the lost servers."""
DOWN_SECONDS = 25.0
"""Shortest time without a server; in a quick run only until all clients have converged without it."""
UNKNOWN_SECONDS, UNKNOWN_QUICK_SECONDS = 30.0, 10.0
STORM_SECONDS, STORM_QUICK_SECONDS = 60.0, 15.0
STORM_PAIRS = 8
EVERY_SECONDS = 5.0
STOPPED_SECONDS = 10.0
"""Longer than any link waits; after 12 s the process would be replaced."""
LOST_SHARE = 0.1
"""Share of the clients that lose their connections without a metadata service; twice."""


def down(kind: str, *targets: str) -> Inject:
    """Kill processes and keep them down until :func:`up`; others take over within 20 s."""

    async def inject(scene: Scene) -> Fault:
        hold = scene.kept_down[kind] = KeepDown(scene.system, targets)
        heal = LOCATED_SECONDS if scene.system.mode == "z-client" else TAKEN_OVER_SECONDS
        await asyncio.sleep(WRITTEN_SECONDS)
        return Fault(kind, ", ".join(targets), hold.since, hold.since, heal=heal)

    return inject


def up(kind: str, before: str) -> Inject:
    """Release processes that were kept down; over when they are ready."""

    async def inject(scene: Scene) -> Fault:
        hold = scene.kept_down.pop(before)
        await asyncio.sleep(0 if scene.quick else hold.since + DOWN_SECONDS - monotonic())
        start = monotonic()
        return Fault(kind, before, start, await hold.release())

    return inject


def scaled(kind: str, change: int) -> Inject:
    """Add or remove servers, or composites, for good. No client may notice."""

    async def inject(scene: Scene) -> Fault:
        start, before = monotonic(), int(scene.system.described()["servers"])
        await scene.system.scale(before + change)
        return Fault(kind, f"{before} {change:+}", start, monotonic(), excuses=False)

    return inject


async def storm(scene: Scene) -> Fault:
    """Add and remove a server every 5 s, each a rebalance. No client may notice."""
    start = monotonic()
    total = STORM_QUICK_SECONDS if scene.quick else STORM_SECONDS
    few = await _servers(scene)
    for turn in range(round(total / EVERY_SECONDS)):
        await asyncio.sleep(start + turn * EVERY_SECONDS - monotonic())
        await _ask_for(scene, few + 1 - turn % 2)
    await asyncio.sleep(start + total - monotonic())
    await _ask_for(scene, few)
    return Fault("rebalance-storm", f"{few} and {few + 1} servers", start, monotonic(), excuses=False)


def settings_of(mode: str, faults: Sequence[str]) -> list[str]:
    """Return the options of ``diem up`` that these faults need."""
    if mode != "xz" or "rebalance-storm" not in faults:
        return []
    # There, composites are scaled, and the pairs of each are as many as at the start.
    return ["--set", f"composite-1:DIEM_COMPOSITE_MAX_PAIRS={STORM_PAIRS}"]


async def metadata_down(scene: Scene) -> Fault:
    """Keep the metadata service down while some clients have to reconnect. No other client may notice."""
    hold = KeepDown(scene.system, ("metadata",))
    total = UNKNOWN_QUICK_SECONDS if scene.quick else UNKNOWN_SECONDS
    for _ in range(2):
        await asyncio.sleep(total / 3)
        await scene.clients.drop(LOST_SHARE)
    await asyncio.sleep(total / 3)
    return Fault("metadata-down", "metadata", hold.since, await hold.release(), excuses=False)


async def stop_server(scene: Scene) -> Fault:
    """Stop a server (SIGSTOP): all its links are black holes."""
    server = await scene.system.find("websocket-1")
    if server.pid is None:
        raise NotUp(f"{server.name} does not run")
    start = monotonic()
    os.kill(server.pid, signal.SIGSTOP)
    try:
        await asyncio.sleep(STOPPED_SECONDS)
    finally:
        with suppress(ProcessLookupError):
            os.kill(server.pid, signal.SIGCONT)
    return Fault("stop-server", server.name, start, monotonic())


async def _servers(scene: Scene) -> int:
    """Return the number of servers that share the endpoints; in mode xz, in the first composite."""
    if scene.system.mode != "xz":
        return int(scene.system.described()["servers"])
    children = await scene.system.children(scene.system.process("composite-1"))
    return sum("/websocket-" in child.name for child in children)


async def _ask_for(scene: Scene, servers: int) -> None:
    if scene.system.mode != "xz":
        await scene.system.scale(servers)
        return
    url = scene.system.process("composite-1").internal_url or ""
    key = SharedKey.load(scene.system.state / "internal.key")
    control_url = f"ws{url.removeprefix('http')}{PATH}"
    async with InternalConnect(control_url, key, subprotocols=[Subprotocol(SUBPROTOCOL)]) as control:
        await control.send(orjson.dumps({"pairs": servers}), text=True)
        await control.recv()
    limit = monotonic() + START_SECONDS
    names = {f"composite-1/websocket-{number}" for number in range(1, servers + 1)}
    while monotonic() < limit:
        children = await scene.system.children(scene.system.process("composite-1"))
        there = [child for child in children if "/websocket-" in child.name]
        if {child.name for child in there} == names and all([await scene.system.is_ready(child) for child in there]):
            return
        await asyncio.sleep(0.1)
    raise NotUp(f"composite-1 had not {servers} servers within {START_SECONDS:.0f} s")
