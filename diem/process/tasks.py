"""Tasks that nobody awaits: what becomes of their errors."""

import asyncio
from collections.abc import Callable
from typing import Any


def on_failure(report: Callable[[BaseException], None]) -> Callable[["asyncio.Task[Any]"], None]:
    """Return a done callback of a task that reports its error, if it ended with one."""

    def done(task: "asyncio.Task[Any]") -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            report(error)

    return done
