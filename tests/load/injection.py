"""The faults of the convergence runs: what each does to the system, and when it is over."""

import asyncio
from collections.abc import Awaitable, Callable
from time import monotonic

from tests.load.system import System
from tests.load.writes import Writer
from tests.oracle.accounting import WIPE
from tests.oracle.history import Fault

EMPTY_SECONDS = 4.0
"""How long a wiped store stays empty, so that its readers catch up with nothing and give up what they held."""

Inject = Callable[[System, Writer], Awaitable[Fault]]


def _kill(kind: str, target: str) -> Inject:
    async def inject(system: System, writer: Writer) -> Fault:
        start = monotonic()
        return Fault(kind, target, start, await system.back(target, await system.kill(target)))

    return inject


async def _wipe(system: System, writer: Writer) -> Fault:
    start = monotonic()
    with writer.held():
        # First the files, then the process: the next one, which is started at once, must not find them.
        for path in system.state.glob("data.db*"):
            if path.suffix != ".lock":
                path.unlink()
        await system.back("data", await system.kill("data"))
        await asyncio.sleep(EMPTY_SECONDS)
    await writer.put_all()
    return Fault(WIPE, "data", start, monotonic())


FAULTS: dict[str, Inject] = {
    "kill-websocket": _kill("kill-websocket", "websocket-1"),
    "kill-broadcast": _kill("kill-broadcast", "broadcast"),
    "kill-data": _kill("kill-data", "data"),
    WIPE: _wipe,
}
"""Every fault by name; each returns when what it hit is back in service."""

MODES = ("single", "x-broadcast", "all-to-all")


def faults_of(mode: str) -> list[str]:
    """The faults that a mode can have."""
    return [name for name in FAULTS if mode == "x-broadcast" or name != "kill-broadcast"]
