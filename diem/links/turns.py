"""Shares the event loop out among connections: in one turn of the loop so many requests begin, and the others wait."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

PER_TURN: Final = 16
"""Requests that begin in one turn, some milliseconds of work: what takes many turns, as a commit does, goes on."""


class ReadyConnection(Protocol):
    """A connection that has received something."""

    def take_turn(self) -> None:
        """Work on what was received."""
        ...


class Turns:
    """What was received waits here when a turn of the loop has enough to do: first come, first served.

    Otherwise a thousand readers that ask at once are worked on in a single turn, and whatever needs the loop twenty
    times waits for twenty thousand of their requests. Bounded by the connections, each of which waits once.
    """

    def __init__(self, soon: Callable[[Callable[[], None]], object], per_turn: int) -> None:
        self._soon = soon
        self._per_turn = per_turn
        self._left = per_turn
        self._waiting: deque[ReadyConnection] = deque()
        self._scheduled = False

    def __len__(self) -> int:
        return len(self._waiting)

    def may_begin(self) -> bool:
        """Whether something may be worked on now; counts it."""
        if not self._scheduled:
            self._scheduled = True
            self._soon(self._next)
        if self._waiting or not self._left:
            return False
        self._left -= 1
        return True

    def wait(self, connection: ReadyConnection) -> None:
        """Let a connection wait for its turn, after :meth:`may_begin` was false."""
        self._waiting.append(connection)

    def _next(self) -> None:
        self._scheduled = False
        self._left = self._per_turn
        if self._waiting:
            self._scheduled = True
            self._soon(self._next)
        while self._waiting and self._left:
            self._left -= 1
            self._waiting.popleft().take_turn()


def turns_of_loop() -> Turns:
    """Return the turns of the running event loop."""
    return Turns(lambda call: asyncio.get_running_loop().call_soon(call), PER_TURN)
