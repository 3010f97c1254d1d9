"""Work on large contents beside the event loop."""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, TypeVar

LARGE_BYTES: Final = 64 * 1024
"""Size of contents above which work takes milliseconds, and a thread."""
T = TypeVar("T")


async def run_sized(work: Callable[[], T], size: int) -> T:
    """Run work on ``size`` bytes and return its result: at once, or in a thread if they are many."""
    if size <= LARGE_BYTES:
        return work()
    import asyncio  # noqa: PLC0415  # a fifth of the start of the process that reads files, which has no loop

    return await asyncio.to_thread(_uncollected, work)


@contextmanager
def collector_paused() -> Iterator[None]:
    """Pause the garbage collector, until the first of several threads ends its pause.

    It would traverse the values of a large body time and again while they are parsed, which is one step of the
    interpreter: it takes twice as long then, and the event loop waits.
    """
    if not gc.isenabled():
        # Another thread's pause, which may have ended by now: this one must not begin it again.
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _uncollected(work: Callable[[], T]) -> T:
    with collector_paused():
        return work()
