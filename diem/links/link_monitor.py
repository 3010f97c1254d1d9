"""Both ends of an internal link ping it every 2 s and give it up after 5 s of silence (docs/protocol.md section 2)."""

import asyncio
from typing import Final

import structlog

from diem.links.connection import Connection

LOOK_EVERY: Final = 1.0
PING_EVERY: Final = 2.0
GIVE_UP_AFTER: Final = 5.0
"""Seconds without anything from the other end after which a link is cut."""


class LinkMonitor:
    """Keeps links under watch. Call :meth:`look` once a second, or have :meth:`run` do it.

    Args:
        what: whom the other ends are, for the log.
        ping_every: seconds between two pings.
        give_up_after: seconds of silence after which a link is cut.
    """

    def __init__(self, what: str, *, ping_every: float = PING_EVERY, give_up_after: float = GIVE_UP_AFTER) -> None:
        self._what = what
        self._ping_every = max(1, round(ping_every / LOOK_EVERY))
        self._give_up_after = give_up_after
        self._heard: dict[Connection, float] = {}
        self._ticks = 0
        self._log = structlog.get_logger("links")

    def add(self, connection: Connection) -> None:
        """Watch a link."""
        self._heard[connection] = asyncio.get_running_loop().time()

    def discard(self, connection: Connection) -> None:
        """Watch it no longer; one that is not watched changes nothing."""
        self._heard.pop(connection, None)

    def look(self) -> None:
        """A second is over: cut what is silent, ping what is due."""
        now = asyncio.get_running_loop().time()
        self._ticks += 1
        for connection, heard in list(self._heard.items()):
            if connection.alive:
                self._heard[connection], connection.alive = now, False
            elif now - heard >= self._give_up_after:
                self._log.warning(f"{self._what} silent, link cut")
                connection.abort()
            if self._ticks % self._ping_every == 0:
                connection.ping()

    async def run(self) -> None:
        """Look every second until cancelled."""
        while True:
            await asyncio.sleep(LOOK_EVERY)
            self.look()
