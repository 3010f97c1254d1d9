"""Counts the time in which this process was not let run, so that what is measured in it can be told from that."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Final

_EVERY_S: Final = 0.02


class Stalls:
    """``seconds`` for which the event loop stood still while it should not have."""

    def __init__(self) -> None:
        self.seconds = 0.0

    async def count(self) -> None:
        """Count until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + _EVERY_S
            await asyncio.sleep(_EVERY_S)
            self.seconds += max(0.0, loop.time() - due - _EVERY_S)


@contextlib.asynccontextmanager
async def stalls() -> AsyncIterator[Stalls]:
    """Count while this is open: a bound of a test in the same loop holds for the time without them."""
    counted = Stalls()
    counting = asyncio.create_task(counted.count())
    try:
        yield counted
    finally:
        counting.cancel()
