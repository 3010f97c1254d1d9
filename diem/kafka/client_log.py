"""Silence the client library's own log, but for one line about each object that it leaves behind."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final

import structlog
from aiokafka.errors import KafkaError

Handler = Callable[[asyncio.AbstractEventLoop, dict[str, Any]], object]


def quieten() -> None:
    """Keep the lines of aiokafka, and its exceptions that nobody retrieves, out of the log of the running loop.

    It writes a line for each of its attempts, ten in a second; what is wrong is in the exceptions that its callers get.
    And it leaves tasks behind: of a commit or a request that was given up, the part that is under way goes on, and may
    fail later with what the cluster says then (``GroupLoadInProgressError``, ``NotCoordinatorForGroupError``,
    ``NodeNotReadyError`` and so on). The loop would write a traceback of that; whoever gave up has tried again.
    """
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    loop = asyncio.get_running_loop()
    before = loop.get_exception_handler()
    if not isinstance(before, _LeftBehind):
        loop.set_exception_handler(_LeftBehind(before))


class _LeftBehind:
    """An exception handler of a loop (:meth:`asyncio.loop.set_exception_handler`)."""

    def __init__(self, before: Handler | None) -> None:
        self._before: Final = before
        self._log = structlog.get_logger("kafka")

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if isinstance(error, KafkaError) and "future" in context:
            said = f"{type(error).__name__} {error}".strip()
            self._log.warning("a request to Kafka that was given up has failed", error=said)
        elif self._before is None:
            loop.default_exception_handler(context)
        else:
            self._before(loop, context)
