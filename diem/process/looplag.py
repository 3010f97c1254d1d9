"""Measures how late the event loop runs its timers: the first sign of a callback that holds everybody up."""

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Final

from diem.process import metrics

PERIOD_S: Final = 0.25


class LoopLag:
    """The greatest delay of a periodic timer since it was last asked, in seconds."""

    __slots__ = ("_due", "_handle", "_loop", "_worst")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._worst = 0.0
        self._schedule()

    def take(self) -> float:
        """Return the worst delay since the last call, and begin anew."""
        worst, self._worst = self._worst, 0.0
        return max(worst, self._loop.time() - self._due)

    def close(self) -> None:
        """Stop measuring."""
        self._handle.cancel()

    def _schedule(self) -> None:
        self._due = self._loop.time() + PERIOD_S
        self._handle = self._loop.call_at(self._due, self._fire)

    def _fire(self) -> None:
        self._worst = max(self._worst, self._loop.time() - self._due)
        self._schedule()


@contextlib.contextmanager
def watching() -> Iterator[LoopLag]:
    """Measure the running loop and expose the result as `diem_loop_lag_seconds`."""
    lag = LoopLag(asyncio.get_running_loop())
    forget = metrics.register(lambda: [metrics.LOOP_LAG_SECONDS.sample(lag.take())])
    try:
        yield lag
    finally:
        forget()
        lag.close()
