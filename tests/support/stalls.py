"""Measure the time in which this process did not get the CPU, to exclude it from measurements."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Final

_EVERY_S: Final = 0.02


class Stalls:
    """``seconds`` is the time for which the event loop was stalled."""

    def __init__(self) -> None:
        self.seconds = 0.0

    async def count(self) -> None:
        """Measure until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + _EVERY_S
            await asyncio.sleep(_EVERY_S)
            self.seconds += max(0.0, loop.time() - due - _EVERY_S)


@contextlib.asynccontextmanager
async def stalls() -> AsyncIterator[Stalls]:
    """Measure stalls in a block: bounds of a test in the same loop apply to the time without them."""
    counted = Stalls()
    counting = asyncio.create_task(counted.count())
    try:
        yield counted
    finally:
        counting.cancel()
