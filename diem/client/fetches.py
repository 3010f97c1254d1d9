"""Fetches the data of updates without data; time and version follow docs/protocol.md section 1.2.

The SDK has the same rules (``client/src/sdk/fetches.ts``).
"""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Final, Self

from diem.client.client import Event, EventQueue
from diem.client.values import EndpointSnapshot
from diem.errors import DiemError
from diem.process.backoff import Backoff

BASE_S: Final = 0.5
CAP_S: Final = 8.0
"""First and longest window between attempts to fetch a dataset."""
OUTDATED_CAP_S: Final = 60.0
"""Longest window while the service answers with older data than announced: it may have lost the newer."""

Fetch = Callable[[str, int | None], Awaitable[EndpointSnapshot | None]]
"""Returns the value of an endpoint: of the version if given, else the current one. None: that version is not kept."""
Correct = Callable[[str, int], None]
"""Called with an endpoint and the service's version, less than one announced or shown."""
Sleep = Callable[[float], Awaitable[None]]


@dataclass(eq=False)
class DataMissing(DiemError):
    """There is no current dataset."""

    template = "{endpoint} has no data"

    endpoint: str


@dataclass(eq=False)
class FetchDelayed(DiemError):
    """The request may succeed later, not before ``retry_after_s`` if given in the answer."""

    retriable = True
    template = "{reason}"

    reason: str
    retry_after_s: float = 0.0


class _OutdatedError(FetchDelayed):
    """The service answers with older data than announced."""


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
    """An asynchronous iterator of a client's events that adds the data of updates by fetching it.

    An update is yielded once it has its data, which may be newer. If its fetch fails, an ``error`` of the endpoint
    comes first, then the update without data, and again with data once an attempt succeeds. All other events are
    yielded at once. Updates not newer than the yielded data are dropped: displayed data never goes back, unless the
    service itself has only an older version. It is queried when a server reports an older version than was yielded.

    Bounded like the client: per endpoint, at most one fetch is in flight and one event of each kind is queued. The
    iteration ends after the client's, with its requests in flight.

    Args:
        events: of a client.
        fetch: requests data, within its own time limit; raises :class:`FetchDelayed` if a retry may succeed, else
            another ``DiemError``.
        correct: the client's :meth:`~diem.client.BaseClient.correct`, so that it reports the service's next
            versions.
        sleep: waits for some seconds.
    """

    def __init__(
        self, events: AsyncIterator[Event], fetch: Fetch, correct: Correct, sleep: Sleep = asyncio.sleep
    ) -> None:
        self._events = events
        self._fetch = fetch
        self._correct = correct
        self._sleep = sleep
        self._queue: Final = EventQueue()
        self._pending: dict[str, _Pending] = {}
        self._held: set[str] = set()
        """Endpoints whose data has been yielded: what is displayed may wait to be replaced."""
        self._shown: dict[str, int] = {}
        """Endpoint -> version of the data, or of the deletion, that was yielded last."""
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

    def forget(self, name: str) -> None:
        """Drop the state of an endpoint that is unsubscribed: another subscription yields its version again."""
        self._end(name, holds=False)
        self._shown.pop(name, None)

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
            return
        shown, version = self._shown.get(name, 0), event.version or 0
        if event.kind == "update":
            self._receive_update(name, event, version, shown)
            return
        if event.kind in {"rejected", "unsubscribed"}:
            self.forget(name)
        self._put(event)
        if event.kind == "resync" or (event.kind == "subscribed" and version < shown):
            self._announce(name, replace(event, kind="resync", version=None))

    def _receive_update(self, name: str, event: Event, version: int, shown: int) -> None:
        if version <= shown:
            return
        if not event.has_value and not event.gone:
            self._announce(name, event)
            return
        self._end(name, holds=event.has_value)
        self._shown[name] = version
        self._put(event)

    def _put(self, event: Event) -> None:
        self._queue.put((event.kind, event.endpoint), event)

    def _end(self, name: str, *, holds: bool) -> None:
        """End the fetch of an endpoint whose data came with an update, or is gone."""
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
            # The time of the fetch stays, or a series of updates would postpone it forever.
            pending.event = event
            return
        pending = self._pending[name] = _Pending(event)
        pending.task = asyncio.create_task(self._complete(name, pending))

    async def _complete(self, name: str, pending: _Pending) -> None:
        backoff, outdated = Backoff(BASE_S, CAP_S), Backoff(BASE_S, OUTDATED_CAP_S)
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
                    delays = outdated if isinstance(error, _OutdatedError) else backoff
                    delay_s = error.retry_after_s + delays.next_delay()
                    continue
                except DiemError as error:
                    self._report(pending, wanted, error)
                    found = 0
                # Without a version it was a resync: answers to earlier requests do not count.
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
        """Yield the reason for the missing data, and an update without it, once."""
        self._put(Event("error", wanted.endpoint, message=str(error)))
        if wanted.kind == "update" and wanted is not pending.yielded:
            pending.yielded = wanted
            self._put(wanted)

    async def _request(self, name: str, wanted: Event) -> int:
        """Yield the announced version, likely cached, or else the current one; return its version.

        Raises:
            FetchDelayed: it is older than announced.
            DiemError: there is none.
        """
        version, shown = wanted.version or 0, self._shown.get(name, 0)
        snapshot = await self._fetch(name, version) if version else None
        is_current = snapshot is None
        if snapshot is None:
            snapshot = await self._fetch(name, None)
        if snapshot is None:
            raise DataMissing(name)
        found = snapshot.version
        if found > shown or is_current:
            self._held.add(name)
            self._shown[name] = found
            self._put(Event("update", name, **snapshot._asdict()))
        if is_current and found < max(shown, version):
            self._correct(name, found)
        if found < version:
            raise _OutdatedError(f"version {version} is not there; the current one is {found}")
        return found
