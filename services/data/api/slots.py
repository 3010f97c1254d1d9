"""Room for the requests of readers: so many are worked on at once that a write never waits behind all of them."""

import asyncio
from typing import Final

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from diem.links.problems import problem

WAIT_S: Final = 5.0
"""A read that has waited for so long is answered 503."""
RETRY_AFTER_S: Final = 2


class Slots:
    """ASGI middleware: at most ``at_once`` requests are worked on; the others wait in the order in which they came.

    The event loop takes what is ready in turn, so a write waits for all reads that are ready before it: this bounds
    how many those are. As many wait as readers have connections. A slot is free again when the answer begins: how
    quickly clients take answers is no matter of slots.
    """

    def __init__(self, app: ASGIApp, at_once: int) -> None:
        self._app = app
        self._free = asyncio.Semaphore(at_once)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request when it is its turn."""
        if not await self._acquired():
            await _busy()(scope, receive, send)
            return
        held = True

        def release() -> None:
            nonlocal held
            if held:
                held = False
                self._free.release()

        async def sending(message: Message) -> None:
            release()
            await send(message)

        try:
            await self._app(scope, receive, sending)
        finally:
            release()

    async def _acquired(self) -> bool:
        if not self._free.locked():
            return await self._free.acquire()
        try:
            async with asyncio.timeout(WAIT_S):
                return await self._free.acquire()
        except TimeoutError:
            return False


def _busy() -> Response:
    return problem(503, "busy", "too many readers at once", headers={"Retry-After": str(RETRY_AFTER_S)})
