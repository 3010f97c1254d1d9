"""Adds to the day's counts in the store: what many keys want at a time in one transaction."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from services.data.access.records import Units

MAX_BATCH: Final = 200
"""Keys in one transaction: all want something when a day begins, and changes of data are not to wait for them."""
Commit = Callable[[Sequence[Units]], Awaitable[list[int]]]
"""Adds to the counts, all or none; returns, committed, each one's total. Raises StoreUnavailable."""


class UsageLedger:
    """Hands out what was committed, and nothing else. Callers bound what waits: one request for each key."""

    def __init__(self, commit: Commit) -> None:
        self._commit = commit
        self._waiting: list[tuple[Units, asyncio.Future[int]]] = []
        self._work: asyncio.Task[None] | None = None
        self.commits = 0

    async def add(self, key_id: str, day: int, units: int) -> int:
        """Add to the count of a key on a day; returns the total since then. 0 units only ask.

        Raises:
            StoreUnavailable: the store cannot commit now; the units may be lost.
        """
        answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._waiting.append((Units(key_id, day, units), answer))
        if self._work is None:
            self._work = asyncio.create_task(self._run())
        return await answer

    async def _run(self) -> None:
        try:
            while self._waiting:
                batch, self._waiting = self._waiting[:MAX_BATCH], self._waiting[MAX_BATCH:]
                await self._settle(batch)
        finally:
            self._work = None

    async def _settle(self, batch: list[tuple[Units, "asyncio.Future[int]"]]) -> None:
        try:
            totals = await self._commit([wanted for wanted, _ in batch])
        except Exception as error:  # noqa: BLE001  # each that waits raises it
            for _, answer in batch:
                if not answer.done():
                    answer.set_exception(error)
            return
        self.commits += 1
        for (_, answer), total in zip(batch, totals, strict=True):
            if not answer.done():
                answer.set_result(total)
