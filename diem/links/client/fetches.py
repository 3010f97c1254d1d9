"""Fetches what events announce without data, when and by which version docs/protocol.md section 1.2 says.

The SDK has the same rules (``client/src/sdk/fetches.ts``).
"""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

from diem.errors import DiemError
from diem.links.client.client import Event, EventQueue

Fetch = Callable[[str, int | None], Awaitable[Mapping[str, Any] | None]]
"""Returns the dataset of an endpoint: of the version, or the current one without. None: that version is not kept."""
Sleep = Callable[[float], Awaitable[None]]


@dataclass(eq=False)
class DataMissing(DiemError):
    """There is no current dataset."""

    template = "{endpoint} has no data"

    endpoint: str


class _Pending:
    """The fetch of one endpoint, at most one at a time."""

    def __init__(self, event: Event) -> None:
        self.event = event
        """The last one that announced something to fetch."""
        self.task: asyncio.Task[None]


class CompletedEvents:
    """An asynchronous iterator of a client's events, whose updates have data if that can be fetched.

    An update is yielded once it has its data, which may be newer; if its fetch fails, an ``error`` of the endpoint
    comes first, and the update without data. All other events are yielded at once. The bounds are those of the client:
    of each endpoint there is one fetch, and one event of each kind waits. The iteration ends after the client's, when
    all fetches have ended.

    Args:
        events: of a client.
        fetch: requests data; it bounds its own time, and raises ``DiemError`` if that fails.
        sleep: waits for some seconds.
    """

    def __init__(self, events: AsyncIterator[Event], fetch: Fetch, sleep: Sleep = asyncio.sleep) -> None:
        self._events = events
        self._fetch = fetch
        self._sleep = sleep
        self._queue: Final = EventQueue()
        self._pending: dict[str, _Pending] = {}
        self._held: set[str] = set()
        """Endpoints whose data has been yielded: what is displayed may wait to be replaced."""
        self._reading: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._reading = asyncio.create_task(self._read())
        return self

    async def __aexit__(self, *_: object) -> None:
        tasks = [pending.task for pending in self._pending.values()]
        tasks += [] if self._reading is None else [self._reading]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        event = await self._queue.get()
        if event is None:
            raise StopAsyncIteration
        return event

    async def _read(self) -> None:
        try:
            async for event in self._events:
                self._receive(event)
            await asyncio.gather(*(pending.task for pending in self._pending.values()))
        finally:
            self._queue.close()

    def _receive(self, event: Event) -> None:
        name = event.endpoint
        if name is None:
            self._put(event)
        elif event.kind == "update" and event.data is None and not event.gone:
            self._announce(name, event)
        else:
            if event.kind in {"update", "rejected", "unsubscribed"}:
                self._end(name, holds=event.data is not None)
            self._put(event)
            if event.kind == "resync":
                self._announce(name, event)

    def _put(self, event: Event) -> None:
        self._queue.put((event.kind, event.endpoint), event)

    def _end(self, name: str, *, holds: bool) -> None:
        """End the fetch of an endpoint whose data came with an update, or that has no data any more."""
        pending = self._pending.pop(name, None)
        if pending is not None:
            pending.task.cancel()
        if holds:
            self._held.add(name)
        else:
            self._held.discard(name)

    def _announce(self, name: str, event: Event) -> None:
        pending = self._pending.get(name)
        if pending is not None:
            # The time of the fetch remains, or updates that follow each other would put it off for ever.
            pending.event = event
            return
        pending = self._pending[name] = _Pending(event)
        pending.task = asyncio.create_task(self._complete(name, pending))

    async def _complete(self, name: str, pending: _Pending) -> None:
        try:
            while True:
                if name in self._held and pending.event.fetch_window_s:
                    await self._sleep(random.uniform(0, pending.event.fetch_window_s))  # noqa: S311 - no secret
                wanted = pending.event
                found = await self._yield_data(name, wanted)
                # Without a version it was a resync: an answer to a request before it does not count.
                if pending.event is wanted or (pending.event.version is not None and pending.event.version <= found):
                    return
        finally:
            if self._pending.get(name) is pending:
                del self._pending[name]

    async def _yield_data(self, name: str, wanted: Event) -> int:
        """Yield the data that was announced, or why there is none; return its version, or 0."""
        try:
            data = await self._request(name, wanted.version)
        except DiemError as error:
            self._put(Event("error", name, message=str(error)))
            if wanted.kind == "update":
                self._put(wanted)
            return 0
        self._held.add(name)
        version = int(data["version"])
        self._put(Event("update", name, version, data=data))
        return version

    async def _request(self, name: str, version: int | None) -> Mapping[str, Any]:
        """Request the announced version, whose answer caches have, or else the current one."""
        data = None if version is None else await self._fetch(name, version)
        if data is None:
            data = await self._fetch(name, None)
        if data is None:
            raise DataMissing(name)
        return data
