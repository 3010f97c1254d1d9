"""A page in any engine: the few commands that the stories need."""

import abc
import asyncio
import contextlib
from typing import Any

from tests.support.patience import PATIENCE_S


class NoEngine(Exception):
    """The engine is not installed."""

    def __init__(self, name: str) -> None:
        super().__init__(f"no {name} here: make {name}")


class Page(abc.ABC):
    """The only page of a browser of its own."""

    version: str
    errors: list[str]
    """Errors in the console, and uncaught ones, since :meth:`take_errors`."""
    can_be_offline = True
    """Whether the engine's driver emulates the loss of the network."""

    @abc.abstractmethod
    async def goto(self, url: str) -> None:
        """Open an address and wait for its load event."""

    @abc.abstractmethod
    async def evaluate(self, expression: str) -> Any:
        """Return the value of an expression, or of its promise, as JSON has it; raises ``AssertionError``."""

    @abc.abstractmethod
    async def reload(self) -> None:
        """Reload the document."""

    @abc.abstractmethod
    async def back(self) -> None:
        """Return to the document before."""

    async def take_errors(self) -> list[str]:
        """Return the errors of all documents since the last call."""
        found, self.errors = self.errors, []
        return found

    async def set_offline(self, value: bool) -> None:
        """Cut the page off from the network, or connect it again."""
        raise NotImplementedError

    async def becomes(self, expression: str, within: float = PATIENCE_S) -> None:
        """Wait until an expression is true; one that throws is not, nor is any in a document that is being replaced."""
        async with asyncio.timeout(within):
            while True:
                with contextlib.suppress(AssertionError):
                    if await self.evaluate(f"(async () => !!({expression}))()"):
                        return
                await asyncio.sleep(0.05)
