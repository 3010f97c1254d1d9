"""`diem scale`: starts and stops numbered processes of a running `diem up`, and waits until they are as asked.

In mode xz these are composites; in mode z-composite the composite starts and stops its pairs, and is sent the number.
"""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import orjson
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake
from websockets.typing import Subprotocol

from deploy.system import control
from deploy.system.control import CommandRefused, ControlFailed
from deploy.system.description import with_children
from deploy.system.state_dir import StateDir
from deploy.topology import Mode, Planned, Topology
from diem.process.auth import SharedKey
from diem.process.supervisor import Spec, Supervisor
from services.composite.control import PATH, SUBPROTOCOL

RETRY_S: Final = 0.5

WITHIN_S: Final = 60.0
POLL_S: Final = 0.2


class Scaler:
    """Keeps as many servers, with their bridges, or composites as were asked for last; never touches nginx."""

    def __init__(
        self, topology: Topology, servers: int, supervisor: Supervisor, spec: Callable[[Planned], Spec], seconds: float
    ) -> None:
        self._topology = topology
        self._supervisor = supervisor
        self._spec = spec
        self._seconds = seconds
        self.changed = asyncio.Event()
        """Set when another number was asked for."""
        self.servers = servers

    def ask(self, servers: object) -> dict[str, Any]:
        """Take note of how many servers there shall be, and return what that means; `run` does it.

        Raises:
            CommandRefused: the mode does not have that many.
        """
        most = self._topology.max_servers
        if most == 1:
            raise CommandRefused(f"{self._topology.mode} runs one WebSocket server: use --mode x-broadcast for more")
        if not isinstance(servers, int) or isinstance(servers, bool) or not 1 <= servers <= most:
            what = "composites" if self._topology.mode is Mode.XZ else "servers"
            raise CommandRefused(f"it runs 1 to {most} {what}, not {servers} (see diem up --max-servers)")
        before, self.servers = self.servers, servers
        self.changed.set()
        return {
            "before": before,
            "servers": servers,
            "processes": list(self._topology.names(servers)),
        }

    async def run(self) -> None:
        """Start and stop what was asked for, one request after another, until it is cancelled."""
        while True:
            await self.changed.wait()
            self.changed.clear()
            # All servers leave at once, so that no client moves to one that leaves next; then what they were fed by.
            wanted = [self._spec(process) for process in self._topology.active(self.servers)]
            await self._supervisor.become(wanted, self._seconds)


async def scale(state: StateDir, servers: int, show: Callable[[int, int], None], within_s: float = WITHIN_S) -> int:
    """Ask the running `diem up` for a number of servers and wait until they are there, and the others gone.

    `show` is called with how many processes are as they shall be, and of how many. Returns how many servers there were.

    Raises:
        NotUp: none is running.
        ControlFailed: it refuses, or the processes are not as asked in time, or somebody else asks for another number.
    """
    asked = await control.ask(state, "scale", servers=servers)
    wanted = set(asked["processes"])
    deadline = time.monotonic() + within_s
    while True:
        status = await control.ask(state, "status")
        if status["servers"] != servers:
            raise ControlFailed(f"somebody else asked for {status['servers']} servers")
        there = dict(with_children(status["processes"]))
        ready = {name for name in wanted if ((there.get(name) or {}).get("report") or {}).get("ready")}
        show(len(ready), len(wanted) + len(there.keys() - wanted))
        if ready == wanted == there.keys():
            return int(asked["before"])
        if time.monotonic() > deadline:
            late = sorted((wanted - ready) | (there.keys() - wanted))
            raise ControlFailed(f"not as asked after {within_s:.0f} s: {', '.join(late)}")
        await asyncio.sleep(POLL_S)


async def keep(internal_url: str, key: SharedKey, wanted: Scaler) -> None:
    """Tell the composite the number, now and whenever it changes, until cancelled.

    A composite that was restarted begins with its first number, so it is told again with each connection.
    """
    url = f"ws{internal_url.removeprefix('http')}{PATH}"
    while True:
        with suppress(OSError, TimeoutError, InvalidHandshake, ConnectionClosed):
            async with connect(
                url,
                subprotocols=[Subprotocol(SUBPROTOCOL)],
                additional_headers={"Authorization": key.header},
                proxy=None,
                compression=None,
            ) as connection:
                await _tell(connection, wanted)
        await asyncio.sleep(RETRY_S)


async def _tell(connection: ClientConnection, wanted: Scaler) -> None:
    while True:
        wanted.changed.clear()
        await connection.send(orjson.dumps({"pairs": wanted.servers}), text=True)
        await connection.recv()
        waiting = [asyncio.ensure_future(wait) for wait in (wanted.changed.wait(), connection.wait_closed())]
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waiting:
                task.cancel()
