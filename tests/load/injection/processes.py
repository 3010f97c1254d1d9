"""Faults of processes: kill, hang, add, remove, and wipe the store."""

import asyncio
import signal
from time import monotonic

from tests.load.injection.scene import Inject, Scene
from tests.oracle.history import WIPE, Fault

EMPTY_SECONDS = 4.0
"""Time for which a wiped store stays empty, so that its readers drop what they held."""
SCALED_SECONDS = 3.0
"""Time with more servers, or fewer."""


def kill(kind: str, target: str, with_signal: signal.Signals = signal.SIGKILL) -> Inject:
    """Kill a process; over when its successor is ready (nginx: when clients can connect again)."""

    async def inject(scene: Scene) -> Fault:
        start = monotonic()
        return Fault(kind, target, start, await scene.system.back(target, await scene.system.kill(target, with_signal)))

    return inject


def hang(kind: str, target: str) -> Inject:
    """Stop a process (SIGSTOP), whose supervisor kills it when it notices; over when its successor is ready."""
    return kill(kind, target, signal.SIGSTOP)


async def wipe(scene: Scene) -> Fault:
    """Delete the store's files and kill the process."""
    start = monotonic()
    with scene.writer.held():
        # First the files, then the process: the next one, which is started at once, must not find them.
        for path in scene.system.state.glob("data.db*"):
            if path.suffix != ".lock":
                path.unlink()
        await scene.system.back("data", await scene.system.kill("data"))
        await asyncio.sleep(EMPTY_SECONDS)
    await scene.writer.put_all()
    return Fault(WIPE, "data", start, monotonic())


def rescale(kind: str, change: int) -> Inject:
    """Add or remove servers by ``diem scale``, and undo it."""

    async def inject(scene: Scene) -> Fault:
        start, before = monotonic(), int(scene.system.described()["servers"])
        await scene.system.scale(before + change)
        await asyncio.sleep(SCALED_SECONDS)
        await scene.system.scale(before)
        return Fault(kind, f"{before} servers {change:+}", start, monotonic())

    return inject
