"""The client process as the runner controls it: its plan, its commands, and the figures that it reports."""

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import Any, Self

import orjson

from tests.load.clients import ORDER_BYTES, Plan

POLL_SECONDS = 0.1
FINISH_SECONDS = 120.0


class ClientProcessLost(Exception):
    """The client process ended early; the reason is on standard error."""


class ClientProcess:
    """A process of load clients, as an asynchronous context manager: it ends with the context."""

    def __init__(self, plan: Plan) -> None:
        self.figures: dict[str, Any] = {}
        """The last report: see :meth:`tests.load.clients.ClientPool.figures`."""
        self._plan = plan
        self._process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None

    @property
    def count(self) -> int:
        """Number of clients."""
        return self._plan.clients

    @property
    def token_seconds(self) -> int | None:
        """Life of the clients' first tokens; None: that of the key's plan."""
        return self._plan.token_seconds

    async def __aenter__(self) -> Self:
        pipe = asyncio.subprocess.PIPE
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.load.clients", stdin=pipe, stdout=pipe, limit=ORDER_BYTES
        )
        self._reading = asyncio.create_task(self._read())
        await self._send(self._plan.model_dump_json().encode())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process is not None
        if self._process.stdin:
            # The end of its input is the end of the process.
            self._process.stdin.close()
        try:
            await asyncio.wait_for(self._process.wait(), 5)
        except TimeoutError:
            self._process.kill()
            await self._process.wait()
        if self._reading:
            await self._reading

    async def until(self, condition: Callable[[dict[str, Any]], bool], within: float) -> bool:
        """Wait until the figures satisfy ``condition``; return False if they do not ``within`` seconds."""
        limit = monotonic() + within
        while not (self.figures and condition(self.figures)):
            self._check()
            if monotonic() > limit:
                return False
            await asyncio.sleep(POLL_SECONDS)
        return True

    async def expect(self, versions: dict[str, int]) -> None:
        """Set the versions that all clients should reach; from the next report, ``behind`` counts those below."""
        self.figures = {}
        await self._send(orjson.dumps({"expect": versions}))

    async def churn(self, seconds: float) -> None:
        """Change the mean time between two endpoint swaps of a client; 0 ends them."""
        await self._send(orjson.dumps({"churn": seconds}))

    async def issue(self, seconds: int | None) -> None:
        """Set the life of the tokens that clients request from now on; None: that of the key's plan."""
        await self._send(orjson.dumps({"token_seconds": seconds}))

    async def count_refreshes(self) -> None:
        """Count refreshed tokens from now on: from the next report, ``refreshed`` is the number since."""
        self.figures = {}
        await self._send(orjson.dumps({"count_refreshes": True}))

    async def drop(self, share: float) -> None:
        """Abort the connections of a share of the clients, as a network failure would."""
        await self._send(orjson.dumps({"drop": share}))

    async def play(self) -> None:
        """Start the trace: clients come, change their endpoints and leave as in it."""
        await self._send(orjson.dumps({"play": True}))

    async def finish(self, folder: Path) -> float:
        """End the run and write the histories below ``folder``; return the end of the observation."""
        await self._send(orjson.dumps({"finish": str(folder)}))
        if not await self.until(lambda figures: "end" in figures, FINISH_SECONDS):
            raise ClientProcessLost("the clients did not write their histories in time")
        return float(self.figures["end"])

    def _check(self) -> None:
        # A process that has ended may have said more than has been read.
        if self._reading is None or self._reading.done():
            raise ClientProcessLost("the client process has ended")

    async def _send(self, order: bytes) -> None:
        self._check()
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(order + b"\n")
        await self._process.stdin.drain()

    async def _read(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            self.figures = orjson.loads(line)
