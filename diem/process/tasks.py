"""The end of tasks that others, or nobody, await, and the handling of their errors."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager
from typing import Any


def on_failure(report: Callable[[BaseException], None]) -> Callable[["asyncio.Task[Any]"], None]:
    """Return a done callback for a task that reports its error, if any."""

    def done(task: "asyncio.Task[Any]") -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            report(error)

    return done


@asynccontextmanager
async def cancelled_at_the_end() -> AsyncIterator[list[asyncio.Task[None]]]:
    """Yield a list for tasks to cancel at the end of the block; the error of a failed one is raised."""
    tasks: list[asyncio.Task[None]] = []
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
    for error in ended:
        if isinstance(error, Exception):
            raise error


async def run_until(return_when: str, work: Iterable[Coroutine[Any, Any, Any]]) -> None:
    """Run coroutines until one has failed or ended, as ``asyncio.wait`` defines it; then cancel the others.

    Raises:
        Exception: that of the one which failed.
    """
    tasks = [asyncio.create_task(one) for one in work]
    try:
        done, _ = await asyncio.wait(tasks, return_when=return_when)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
