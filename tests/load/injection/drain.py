"""A planned restart of a server with all clients of the run, while another one can take them."""

import os
import signal
from collections.abc import Mapping
from time import monotonic
from typing import Final

from diem.protocol.codes import Close
from tests.load.bench import Goal
from tests.load.injection.scene import Scene
from tests.load.system import NotUp
from tests.oracle.history import Event, Fault, History, Kind
from tests.support.patience import FACTOR

DRAIN: Final = "drain-server"
WITHOUT_SERVER_SECONDS: Final = 2.0
"""Longest time in which a client has no server, where the drain has time to close one client after the other."""
DRAINED_SHARE: Final = 0.9
"""Least share of the clients that must have been closed: a drain without clients proves nothing."""
SERVER: Final = "websocket-1"


async def drained(scene: Scene) -> Fault:
    """Start a second server, and stop the first one by SIGTERM; over when its successor is ready."""
    await scene.system.scale(2)
    start, server = monotonic(), scene.system.process(SERVER)
    if server.pid is None:
        raise NotUp(f"{SERVER} does not run")
    scene.system.measure()
    scene.system.kills[SERVER] += 1
    os.kill(server.pid, signal.SIGTERM)
    end = await scene.system.back(SERVER, server.pid)
    scene.figures["drain_and_restart_s"] = round(end - start, 2)
    scene.later.extend((longest_absence, clients_moved))
    return Fault(DRAIN, SERVER, start, end, excuses=False)


def absences(clients: Mapping[str, list[Event]]) -> dict[str, float]:
    """Return, for each client that was closed with 1012, the longest time until it was subscribed again, in seconds."""
    found: dict[str, float] = {}
    for client, events in clients.items():
        closed: float | None = None
        for event in events:
            if event.kind == Kind.CLOSE and closed is None and event.code == Close.RESTART:
                closed = event.time
            elif event.kind == Kind.SUBSCRIBED and closed is not None:
                found[client] = max(found.get(client, 0.0), event.time - closed)
                closed = None
        if closed is not None:
            found[client] = float("inf")
    return found


def longest_absence(history: History) -> Goal:
    """Return the goal for the longest time that a client of the stopped server was without a server."""
    longest = max(absences(history.clients).values(), default=None)
    limit = WITHOUT_SERVER_SECONDS * FACTOR
    return Goal(f"{DRAIN}, longest time without a server", "s", limit, longest and round(longest, 3))


def clients_moved(history: History) -> Goal:
    """Return the goal for the number of clients that the stopped server has sent away."""
    least = round(DRAINED_SHARE * len(history.clients))
    return Goal(f"{DRAIN}, clients sent away", "", least, len(absences(history.clients)), at_least=True)
