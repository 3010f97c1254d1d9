"""Client tokens that expire: every client must replace its own on the open connection, and miss nothing."""

import asyncio
from collections.abc import Iterable, Mapping
from time import monotonic
from typing import Any, Final, NamedTuple

from tests.load.bench import Goal
from tests.load.injection.repartition import lost
from tests.load.injection.scene import Scene
from tests.oracle.history import Fault
from tests.support.patience import PATIENCE_S

EXPIRY: Final = "token-expiry"
_REPORT_SECONDS: Final = PATIENCE_S
"""Longest wait for figures of the client process."""


class Window(NamedTuple):
    """What happened in one of the two windows."""

    seconds: float
    refreshed: int
    """Number of tokens that servers have accepted on open connections."""
    not_refreshed: int
    """Number of clients without any."""
    cpu: Mapping[str, float]
    """CPU seconds by process; ``clients`` is the client process, ``servers`` all WebSocket servers together."""


async def expiring(scene: Scene) -> Fault:
    """Let every token expire once, and compare with a window of the same length in which none does.

    The tokens of the clients have the life ``Scenario.token_seconds``, so all that are held at the start of the first
    window expire within it. Then clients are given tokens of half an hour, and as soon as the last short one has
    expired, the second window begins.
    """
    seconds = scene.clients.token_seconds
    if seconds is None:
        raise ValueError("the clients' tokens do not expire: the scenario has no token_seconds")
    start = monotonic()
    expiring_ = await _window(scene, seconds)
    end = monotonic()
    await scene.clients.issue(None)
    await asyncio.sleep(seconds)
    calm = await _window(scene, seconds)
    scene.figures[EXPIRY] = figures_of(expiring_, calm)
    scene.goals.extend(goals_of(expiring_, calm, scene.clients.count))
    # A connection outlives its token: a client that could not replace it is closed in one of the later windows.
    over = monotonic()
    scene.later.append(lambda history: Goal("tokens expire, connections lost", "", 0, lost(history, start, over)))
    return Fault(EXPIRY, "all clients", start, end, excuses=False)


async def _window(scene: Scene, seconds: float) -> Window:
    """Measure for a time."""
    await scene.clients.count_refreshes()
    start, before = monotonic(), _cpu(scene, await _figures_now(scene))
    await asyncio.sleep(seconds)
    figures = await _figures_now(scene)
    after = _cpu(scene, figures)
    cpu = {name: after[name] - before.get(name, 0.0) for name in after}
    return Window(monotonic() - start, figures["refreshed"], figures["not_refreshed"], cpu)


async def _figures_now(scene: Scene) -> dict[str, Any]:
    """Return the next report of the client process."""
    scene.clients.figures = {}
    if not await scene.clients.until(bool, _REPORT_SECONDS):
        raise TimeoutError("the client process does not report")
    return scene.clients.figures


def _cpu(scene: Scene, figures: Mapping[str, Any]) -> dict[str, float]:
    used = scene.system.measure()
    servers = sum(seconds for name, seconds in used.items() if name.startswith("websocket-"))
    return {**used, "servers": servers, "clients": figures["cpu"]}


def figures_of(expiring_: Window, calm: Window) -> dict[str, Any]:
    """Return the figures of a bench file."""

    def per_refresh(name: str) -> float:
        """Return milliseconds of CPU for one refresh: what the first window took more, at the length of the second."""
        more = expiring_.cpu[name] - calm.cpu.get(name, 0.0) * expiring_.seconds / calm.seconds
        return round(more * 1000 / max(1, expiring_.refreshed), 3)

    return {
        "seconds": round(expiring_.seconds, 1),
        "refreshes": expiring_.refreshed,
        "cpu_seconds": {name: round(used, 2) for name, used in expiring_.cpu.items()},
        "cpu_seconds_without_expiry": {name: round(used, 2) for name, used in calm.cpu.items()},
        "cpu_ms_per_refresh": {name: per_refresh(name) for name in expiring_.cpu},
    }


def goals_of(expiring_: Window, calm: Window, clients: int) -> Iterable[Goal]:
    """Yield the goals, besides those of the oracle, for a number of clients."""
    yield Goal("tokens expire, clients that replaced none", "", 0, expiring_.not_refreshed)
    yield Goal("tokens expire, refreshes on open connections", "", clients, expiring_.refreshed, at_least=True)
    # The comparison is worth something only if tokens were replaced in one of the windows alone.
    yield Goal("tokens expire, refreshes in the window without expiry", "", 0, calm.refreshed)
