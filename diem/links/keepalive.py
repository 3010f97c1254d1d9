"""Keepalive: a monitor for the links between processes, and one timer wheel for all client connections.

A process has a handful of links, whose loss it must notice within seconds, but ten thousand clients, for which a timer
each, or a scan every second, would cost too much.
"""

import asyncio
import random
from collections.abc import Hashable, Iterator
from typing import Final, Generic, Protocol, TypeVar

import structlog

from diem.links.connection import Connection
from diem.process.clock import until_next

CHECK_EVERY_S: Final = 1.0
PING_EVERY_S: Final = 2.0
SILENCE_TIMEOUT_S: Final = 5.0
"""Seconds without data from the peer after which a link is aborted."""


class LinkMonitor:
    """Pings internal links every 2 s and cuts them after 5 s of silence (docs/internals.md section 2).

    Call :meth:`tick` once a second, or use :meth:`run`.

    Args:
        what: name of the peers in the log.
        ping_every_s: interval of pings.
        silence_timeout_s: seconds without data from the peer after which a link is aborted.
    """

    def __init__(
        self, what: str, *, ping_every_s: float = PING_EVERY_S, silence_timeout_s: float = SILENCE_TIMEOUT_S
    ) -> None:
        self._what = what
        self._ping_every = max(1, round(ping_every_s / CHECK_EVERY_S))
        self._silence_timeout_s = silence_timeout_s
        self._last_alive: dict[Connection, float] = {}
        self._ticks = 0
        self._log = structlog.get_logger("links")

    def add(self, connection: Connection) -> None:
        """Start monitoring a link."""
        self._last_alive[connection] = asyncio.get_running_loop().time()

    def discard(self, connection: Connection) -> None:
        """Stop monitoring a link; a no-op if it is not monitored."""
        self._last_alive.pop(connection, None)

    def tick(self) -> None:
        """Advance by one second: abort silent links, and ping the others when due."""
        now = asyncio.get_running_loop().time()
        self._ticks += 1
        for connection, last_alive in list(self._last_alive.items()):
            if connection.alive:
                self._last_alive[connection], connection.alive = now, False
            elif now - last_alive >= self._silence_timeout_s:
                self._log.warning(f"{self._what} silent, link cut")
                connection.abort()
            if self._ticks % self._ping_every == 0:
                connection.ping()

    async def run(self) -> None:
        """Tick every second until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(until_next(loop.time(), CHECK_EVERY_S))
            self.tick()


CLIENT_PING_EVERY_S: Final = 25
"""Seconds between two pings to one client (docs/reliability.md S14)."""
HEARTBEAT_S: Final = 4
"""Seconds within which a client is sent a frame, visible to it unlike a ping (ADR 23)."""
HEARTBEAT_CHECK_S: Final = HEARTBEAT_S // 2
"""Seconds between two checks of one client, which gets a frame if sent nothing since the last."""
PONG_TIMEOUT_S: Final = 10
"""Seconds after a ping within which data must arrive from the client."""


class WheelMember(Hashable, Protocol):
    """A connection that a wheel pings."""

    def on_ping_due(self) -> None:
        """Called every :data:`CLIENT_PING_EVERY_S` seconds."""
        ...

    def on_pong_deadline(self) -> None:
        """Called :data:`PONG_TIMEOUT_S` seconds after every :meth:`on_ping_due`."""
        ...


T = TypeVar("T", bound=WheelMember)


class TimerWheel(Generic[T]):
    """Calls every member's :meth:`~WheelMember.on_ping_due` once in 25 s, spread evenly over the seconds."""

    def __init__(self) -> None:
        self._slots: list[set[T]] = [set() for _ in range(CLIENT_PING_EVERY_S)]
        self._now = 0

    def add(self, member: T) -> int:
        """Add a member; return its slot, which :meth:`discard` needs."""
        slot = random.randrange(CLIENT_PING_EVERY_S)  # noqa: S311 - jitter is no secret
        self._slots[slot].add(member)
        return slot

    def discard(self, member: T, slot: int) -> None:
        """Remove a member."""
        self._slots[slot].discard(member)

    def due_every(self, seconds: int) -> Iterator[tuple[T, ...]]:
        """Return the members, slot by slot, due for an action with this period.

        Call it once after each :meth:`tick`. A round is no multiple of ``seconds``: an action may be one second early.
        """
        for age in range(0, CLIENT_PING_EVERY_S, seconds):
            yield tuple(self._slots[self._now - age])

    def tick(self) -> None:
        """Advance by one second."""
        self._now = (self._now + 1) % CLIENT_PING_EVERY_S
        # Copies of the slots, each 1/25 of all members: a call may close its member, removing it from its slot.
        for member in tuple(self._slots[self._now - PONG_TIMEOUT_S]):
            member.on_pong_deadline()
        for member in tuple(self._slots[self._now]):
            member.on_ping_due()

    async def run(self) -> None:
        """Tick every second until cancelled."""
        while True:
            await asyncio.sleep(1.0)
            self.tick()
