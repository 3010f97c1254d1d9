"""The least distance between requests to one host, which all sources of a process share."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from diem.process.clock import Clock

Sleep = Callable[[float], Awaitable[None]]
PER_MINUTE: Final = 120.0
"""Requests to one host, unless its sources are polled more often or say otherwise."""
_HEADROOM: Final = 2.0
"""Of this rate above that of the polls, for pages and days."""


class HostPacer:
    """Spaces requests to each host, in the order in which they are made.

    Holds two numbers for each host of the configuration; a source has one request at a time, so few wait.
    """

    def __init__(self, clock: Clock, sleep: Sleep = asyncio.sleep) -> None:
        self._clock = clock
        self._sleep = sleep
        self._free_at: dict[str, float] = {}
        self._polls: dict[str, float] = {}

    def expect(self, host: str, per_minute: float) -> None:
        """Raise the default of a host for a source with so many polls."""
        self._polls[host] = self._polls.get(host, 0.0) + per_minute

    async def wait(self, host: str, per_minute: float | None = None) -> None:
        """Wait for a turn; ``per_minute`` turns like it are possible, by default as many as the polls need."""
        rate = per_minute or max(PER_MINUTE, _HEADROOM * self._polls.get(host, 0.0))
        now = self._clock.monotonic()
        at = max(now, self._free_at.get(host, now))
        self._free_at[host] = at + 60 / rate
        if at > now:
            await self._sleep(at - now)
