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
from diem.process.backoff import Backoff

BASE_S: Final = 0.5
CAP_S: Final = 8.0
"""First and longest window between attempts to fetch a dataset."""

Fetch = Callable[[str, int | None], Awaitable[Mapping[str, Any] | None]]
"""Returns the dataset of an endpoint: of the version, or the current one without. None: that version is not kept."""
Sleep = Callable[[float], Awaitable[None]]


@dataclass(eq=False)
class DataMissing(DiemError):
    """There is no current dataset."""

    template = "{endpoint} has no data"

    endpoint: str


@dataclass(eq=False)
class FetchDelayed(DiemError):
    """The request may succeed later, not before ``retry_after_s`` if the answer said so."""

    retriable = True
    template = "{reason}"

    reason: str
    retry_after_s: float = 0.0


class _Pending:
    """The fetch of one endpoint, at most one at a time."""

    def __init__(self, event: Event) -> None:
        self.event = event
        """The last one that announced something to fetch."""
        self.yielded: Event | None = None
        """The last update that was yielded without data, because its fetch failed."""
        self.is_delayed = False
        """It waits for its next attempt."""
        self.task: asyncio.Task[None]


class CompletedEvents:
    """An asynchronous iterator of a client's events, whose updates have data if that can be fetched.

    An update is yielded once it has its data, which may be newer. If its fetch fails, an ``error`` of the endpoint
    comes first, then the update without data, and again with data once an attempt succeeds. All other events are
    yielded at once. The bounds are those of the client: of each endpoint there is one fetch, and one event of each kind
    waits. The iteration ends after the client's, with the requests that are under way.

    Args:
        events: of a client.
        fetch: requests data; it bounds its own time, and raises :class:`FetchDelayed` if that may succeed later,
            another ``DiemError`` if not.
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
        self._ended = False
        """The client's events have ended."""
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
            self._ended = True
            for pending in self._pending.values():
                if pending.is_delayed:
                    pending.task.cancel()
            await asyncio.gather(*(pending.task for pending in self._pending.values()), return_exceptions=True)
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
        backoff = Backoff(BASE_S, CAP_S)
        try:
            delay_s = self._window_s(name, pending)
            while True:
                if delay_s:
                    await self._sleep(delay_s)
                pending.is_delayed = False
                wanted = pending.event
                try:
                    found = await self._request(name, wanted)
                except FetchDelayed as error:
                    self._report(pending, wanted, error)
                    if self._ended:
                        return
                    pending.is_delayed = True
                    delay_s = error.retry_after_s + backoff.next_delay()
                    continue
                except DiemError as error:
                    self._report(pending, wanted, error)
                    found = 0
                # Without a version it was a resync: an answer to a request before it does not count.
                if pending.event is wanted or (pending.event.version is not None and pending.event.version <= found):
                    return
                delay_s = self._window_s(name, pending)
        finally:
            if self._pending.get(name) is pending:
                del self._pending[name]

    def _window_s(self, name: str, pending: _Pending) -> float:
        if name not in self._held:
            return 0.0
        return random.uniform(0, pending.event.fetch_window_s)  # noqa: S311 - spreads clients, is no secret

    def _report(self, pending: _Pending, wanted: Event, error: DiemError) -> None:
        """Yield why there is no data, and an update without it, once."""
        self._put(Event("error", wanted.endpoint, message=str(error)))
        if wanted.kind == "update" and wanted is not pending.yielded:
            pending.yielded = wanted
            self._put(wanted)

    async def _request(self, name: str, wanted: Event) -> int:
        """Yield the announced version, whose answer caches have, or else the current one; return which it was.

        Raises:
            FetchDelayed: it is still older than what was announced.
            DiemError: there is none.
        """
        version = wanted.version
        data = None if version is None else await self._fetch(name, version)
        if data is None:
            data = await self._fetch(name, None)
        if data is None:
            raise DataMissing(name)
        found = int(data["version"])
        if version is not None and found < version:
            raise FetchDelayed(f"version {version} is not there yet")
        self._held.add(name)
        self._put(Event("update", name, found, data=data))
        return found
