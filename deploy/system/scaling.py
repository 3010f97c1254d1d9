"""Scaling of a running ``diem up``: starts and stops numbered processes, and waits until they are ready.

In mode xz these are composites. In mode z-composite the composite itself starts and stops pairs, on request.
"""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import orjson

from deploy.system import control
from deploy.system.control import CommandRefused, ControlFailed
from deploy.system.description import with_children
from deploy.system.state_dir import StateDir
from deploy.topology import Mode, Planned, Topology
from diem.links.dialer import DIAL_ERRORS, LinkConnection, dial
from diem.process.auth import SharedKey
from diem.process.key_ring import KeyRing, KeyRole
from diem.process.supervisor import Spec, Supervisor
from services.composite.control import PATH, SUBPROTOCOL

RETRY_S: Final = 0.5

TIMEOUT_S: Final = 60.0
POLL_S: Final = 0.2


class Scaler:
    """Maintains the requested number of servers with their bridges, or of composites; nginx is never touched."""

    def __init__(
        self,
        topology: Topology,
        servers: int,
        supervisor: Supervisor,
        spec: Callable[[Planned], Spec],
        seconds: float,
        *,
        on_applied: Callable[[], None] = lambda: None,
    ) -> None:
        self._topology = topology
        self._supervisor = supervisor
        self._spec = spec
        self._seconds = seconds
        self._on_applied = on_applied
        """Called after each change, once the removed processes are forgotten."""
        self.changed = asyncio.Event()
        """Set when a new number was requested."""
        self.servers = servers

    def request(self, servers: object) -> dict[str, Any]:
        """Set the number of servers, applied by ``run``, and return the names of the resulting processes.

        Raises:
            CommandRefused: the mode does not support that number.
        """
        most = self._topology.max_servers
        if most == 1:
            raise CommandRefused(f"mode {self._topology.mode} runs one WebSocket server: x-broadcast runs more")
        if not isinstance(servers, int) or isinstance(servers, bool) or not 1 <= servers <= most:
            noun = "composites" if self._topology.mode is Mode.XZ else "servers"
            high = isinstance(servers, int) and servers > most
            limit = f"the limit is {most} (`diem up --max-servers`)" if high else f"give a number from 1 to {most}"
            raise CommandRefused(f"cannot run {servers!r} {noun}: {limit}")
        before, self.servers = self.servers, servers
        self.changed.set()
        return {
            "before": before,
            "servers": servers,
            "processes": list(self._topology.names(servers)),
        }

    async def run(self) -> None:
        """Apply requests one after another until cancelled."""
        while True:
            await self.changed.wait()
            self.changed.clear()
            # All servers stop at once, so that no client moves to one about to stop; then their bridges.
            wanted = [self._spec(process) for process in self._topology.active(self.servers)]
            await self._supervisor.become(wanted, self._seconds)
            self._on_applied()


async def scale(state: StateDir, servers: int, show: Callable[[int, int], None], within_s: float = TIMEOUT_S) -> int:
    """Request a number of servers of the running ``diem up``, and wait until they are ready and the others gone.

    ``show`` is called with the number of ready processes and the total. Returns the previous number.

    Raises:
        NotUp: none is running.
        ControlFailed: it refuses, the deadline passes, or another command requests another number.
    """
    answer = await control.request(state, "scale", servers=servers)
    wanted = set(answer["processes"])
    deadline = time.monotonic() + within_s
    while True:
        status = await control.request(state, "status")
        if status["servers"] != servers:
            raise ControlFailed(f"another command requested {status['servers']} servers")
        there = dict(with_children(status["processes"]))
        ready = {name for name in wanted if ((there.get(name) or {}).get("report") or {}).get("ready")}
        show(len(ready), len(wanted) + len(there.keys() - wanted))
        if ready == wanted == there.keys():
            return int(answer["before"])
        if time.monotonic() > deadline:
            late = sorted((wanted - ready) | (there.keys() - wanted))
            raise ControlFailed(f"not done after {within_s:.0f} s: {', '.join(late)}")
        await asyncio.sleep(POLL_S)


async def drive_composite(internal_url: str, keys: KeyRing | SharedKey, scaler: Scaler) -> None:
    """Send the composite the number of pairs, now and on every change, until cancelled.

    A restarted composite has its initial number, so every connection starts with it.
    """
    url = f"ws{internal_url.removeprefix('http')}{PATH}"

    ring = KeyRing.of(keys)

    def connection(authorization: str) -> LinkConnection:
        return LinkConnection(url, authorization, subprotocol=SUBPROTOCOL)

    while True:
        with suppress(*DIAL_ERRORS):
            link = await dial(url, ring.key(KeyRole.ADMIN), connection)
            try:
                await _send_numbers(link, scaler)
            finally:
                link.abort()
        await asyncio.sleep(RETRY_S)


async def _send_numbers(link: LinkConnection, scaler: Scaler) -> None:
    lost = asyncio.ensure_future(link.lost.wait())
    try:
        while not lost.done():
            scaler.changed.clear()
            link.send_text(orjson.dumps({"pairs": scaler.servers}))
            changed = asyncio.ensure_future(scaler.changed.wait())
            try:
                await asyncio.wait({changed, lost}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                changed.cancel()
    finally:
        lost.cancel()
