"""Keep processes down: kill them as often as they are restarted."""

import asyncio
from contextlib import suppress
from time import monotonic

from tests.load.system import NotUp, System

LOOK_SECONDS = 0.05


class KeepDown:
    """Keeps processes down from its construction until `release`."""

    def __init__(self, system: System, names: tuple[str, ...]) -> None:
        self.since = monotonic()
        self._system = system
        self._killed: dict[str, int] = dict.fromkeys(names, 0)
        self._task = asyncio.create_task(self._keep_down())

    async def release(self) -> float:
        """Let the processes restart; return the time when all are ready."""
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task
        return max([await self._system.back(name, pid) for name, pid in self._killed.items()])

    async def _keep_down(self) -> None:
        while True:
            for name, killed in self._killed.items():
                with suppress(NotUp):
                    process = await self._system.find(name)
                    if process.pid not in (None, killed):
                        self._system.measure()
                        self._system.end(process)
                        self._killed[name] = process.pid or 0
            await asyncio.sleep(LOOK_SECONDS)
