"""How tests wait for events of other processes, on a machine that may be slow and runs other tests."""

import asyncio
import os
from collections.abc import Callable
from typing import Final

FACTOR: Final = float(os.environ.get("DIEM_TIME_FACTOR", "1"))
"""Factor by which this machine is slower than the slowest usual one."""
PATIENCE_S: Final = 90.0 * FACTOR
"""Longer than DIEM itself waits for its processes (60 s), so that DIEM's own error comes first."""


async def until(condition: Callable[[], object], within: float = PATIENCE_S) -> None:
    """Wait until a condition holds, of which no event is known. Raises ``TimeoutError``."""
    async with asyncio.timeout(within):
        while not condition():
            await asyncio.sleep(0.01)
