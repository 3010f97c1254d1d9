"""A pytest plugin: every event loop of the tests pauses at random, as on a machine with other work (``make pauses``).

A test that takes the order of two events for granted, instead of waiting for the second, then fails within minutes and
not in one of twenty runs. Pauses follow the clock, so a run cannot be repeated exactly. Processes that tests execute do
not pause.
"""

import asyncio
import random
import time
from collections.abc import Callable
from typing import Any, Final

import pytest

SHORT_EVERY_S: Final = 0.1
"""Mean time between two pauses that are short."""
SHORT_S: Final = 0.12
LONG_EVERY_S: Final = 2.0
LONG_S: Final = (0.3, 1.5)
"""A loaded machine with two cores was seen to hold a process up for 1 to 3 s."""


class Pauses:
    """When the loops of this process pause, and for how long; all times in seconds.

    ``choose`` draws from a uniform distribution, ``wait`` from an exponential one with the mean given.
    """

    def __init__(self, choose: Callable[[float, float], float], wait: Callable[[float], float], now: float) -> None:
        self._choose, self._wait = choose, wait
        self._short, self._long = now + wait(SHORT_EVERY_S), now + wait(LONG_EVERY_S)

    def due(self, now: float) -> float:
        """Return how long to pause, which is 0 most of the time."""
        if now >= self._long:
            pause = self._choose(*LONG_S)
            self._long = now + pause + self._wait(LONG_EVERY_S)
        elif now >= self._short:
            pause = self._choose(0, SHORT_S)
        else:
            return 0.0
        self._short = now + pause + self._wait(SHORT_EVERY_S)
        return pause


def pytest_configure(config: pytest.Config) -> None:
    """Let loops pause from now on, after each of their rounds: asyncio has no public place for that."""
    drawn = random.SystemRandom()  # tests seed the module's own generator
    pauses = Pauses(drawn.uniform, lambda mean: drawn.expovariate(1 / mean), time.monotonic())
    run_once = asyncio.BaseEventLoop._run_once  # type: ignore[attr-defined]

    def pausing(loop: Any) -> None:
        if pause := pauses.due(time.monotonic()):
            time.sleep(pause)
        run_once(loop)

    patch = pytest.MonkeyPatch()
    patch.setattr(asyncio.BaseEventLoop, "_run_once", pausing)
    config.add_cleanup(patch.undo)
