"""Processes that are kept down: killed, and again as often as they are started."""

import asyncio
from contextlib import suppress
from time import monotonic

from tests.load.system import NotUp, System

LOOK_SECONDS = 0.05


class Hold:
    """Keeps processes down from the start until it is let go."""

    def __init__(self, system: System, names: tuple[str, ...]) -> None:
        self.since = monotonic()
        self._system = system
        self._killed: dict[str, int] = dict.fromkeys(names, 0)
        self._task = asyncio.create_task(self._keep_down())

    async def release(self) -> float:
        """Let them live; returns when all are ready again."""
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
