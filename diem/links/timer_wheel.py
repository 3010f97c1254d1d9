"""One timer for all connections: a wheel that comes to each of them in turn, instead of a timer or a task each."""

import asyncio
import random
from collections.abc import Hashable
from typing import Final, Generic, Protocol, TypeVar

PING_EVERY: Final = 25
"""Seconds between two pings to one client (docs/reliability.md S14); also between two status frames."""
PONG_WITHIN: Final = 10
"""Seconds that a client has to show a sign of life after a ping."""

T = TypeVar("T", bound=Hashable)
T_contra = TypeVar("T_contra", contravariant=True)


class Turn(Protocol[T_contra]):
    """What is done when the wheel comes to a member."""

    def __call__(self, member: T_contra, /, *, due: bool) -> None:
        """``due``: the turn itself; otherwise the look 10 s after it."""
        ...


class TimerWheel(Generic[T]):
    """Calls ``turn`` for every member once in 25 s, and again 10 s later, spread evenly over the seconds."""

    def __init__(self, turn: Turn[T]) -> None:
        self._turn = turn
        self._slots: list[set[T]] = [set() for _ in range(PING_EVERY)]
        self._now = 0

    def add(self, member: T) -> int:
        """Take a member; returns its slot, which :meth:`discard` wants back."""
        slot = random.randrange(PING_EVERY)  # noqa: S311 - jitter is no secret
        self._slots[slot].add(member)
        return slot

    def discard(self, member: T, slot: int) -> None:
        """Let a member go."""
        self._slots[slot].discard(member)

    def tick(self) -> None:
        """One second has passed."""
        self._now = (self._now + 1) % PING_EVERY
        # Copies: a turn may close its member, which then leaves its slot. A slot holds 1/25 of all members.
        for member in tuple(self._slots[self._now - PONG_WITHIN]):
            self._turn(member, due=False)
        for member in tuple(self._slots[self._now]):
            self._turn(member, due=True)

    async def run(self) -> None:
        """Tick every second until cancelled."""
        while True:
            await asyncio.sleep(1.0)
            self.tick()
