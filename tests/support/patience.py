"""How tests wait for events of other processes, on a machine that may be slow and runs other tests."""

import asyncio
import os
from collections.abc import Callable
from typing import Final, TypeVar

FACTOR: Final = float(os.environ.get("DIEM_TIME_FACTOR", "1"))
"""Factor by which this machine is slower than the slowest usual one."""
PATIENCE_S: Final = 90.0 * FACTOR
"""Longer than DIEM itself waits for its processes (60 s), so that DIEM's own error comes first."""

LONGEST_PAUSE_S: Final = 0.03
"""Between two looks at a condition that takes long: at 10 ms, a test that waits takes 2 % of a core."""
_T = TypeVar("_T")


async def until(condition: Callable[[], _T], within: float = PATIENCE_S, every: float = 0.01) -> _T:
    """Wait until a condition holds, of which no event is known, and return its value. Raises ``TimeoutError``."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + within
    # Checked after the deadline, too: the machine may have stood still until then.
    while not (value := condition()):
        if loop.time() > deadline:
            raise TimeoutError
        await asyncio.sleep(every)
        every = max(every, min(1.1 * every, LONGEST_PAUSE_S))
    return value
