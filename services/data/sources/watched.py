"""HTTP source with ``{rest}`` in its URL: polls the URL of each endpoint while that is watched (docs/adr/0038).

The WebSocket servers report what is watched (``services.data.interest``), and this one process polls it for all.
"""

import asyncio
import random
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from itertools import islice
from math import inf
from typing import Final

import httpx

from diem.process.backoff import wait
from diem.process.clock import Clock
from services.data.errors import EndpointDeleted, StoreUnavailable, UnknownEndpoint
from services.data.files.target import Converter
from services.data.sources.fetch import PollFailed, PollingClient
from services.data.sources.http_reader import FAULTS, HttpReader, backoff_s, fault_in, requested_wait_s, text_of
from services.data.sources.pacing import HostPacer
from services.data.sources.poll_queue import PollQueue, next_slot
from services.data.sources.source import MAX_ERRORS, Claim, Fault, Health, Sink, StoredState
from services.data.sources.tables import HttpConfig

RESUME_S: Final = 60.0
"""Longest time after a start in which stored endpoints wait for their turn: the process before may have polled them."""
MISSING_S: Final = 60.0
"""Longest interval between polls of an endpoint that the server does not have, unless ``every`` is longer."""
MAX_FORGOTTEN: Final = 1000
"""Endpoints waiting to be deleted, beyond which no other is made room for."""
_MISSING: Final = frozenset({404, 410})
_GONE: Final = 410


@dataclass(slots=True)
class _Endpoint:
    """An endpoint that is watched, was watched, or is stored since before the start."""

    name: str
    is_stored: bool = False
    servers: int = 0
    """Servers at which it is watched."""
    is_polling: bool = False
    polled_at: float = -inf
    """Monotonic time of the last poll."""
    retry_at: float = -inf
    """Monotonic time before which it is not polled, after failures."""
    failures: int = 0
    absences: int = 0
    """Answers in turn that the server does not have it."""
    reader: HttpReader | None = None


class WatchedSource:
    """Polls each watched endpoint below ``config.prefix`` every ``config.every`` seconds.

    The polls are spread over the interval by the names (:func:`next_slot`), so that a restart repeats none. An endpoint
    that was never polled, or not for long, is polled at once. At most ``max_endpoints`` are known: watched ones, and
    those watched before, whose data stays; of these, the one watched least recently is deleted to make room. Where all
    are watched, further ones are refused.

    404, twice, or 410 deletes an endpoint. Failures put off the polls of their endpoint, and Retry-After all polls.
    """

    def __init__(
        self,
        config: HttpConfig,
        clock: Clock,
        *,
        convert: Converter,
        pacer: HostPacer,
        uniform: Callable[[float, float], float] = random.uniform,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self.name = config.name
        self.prefix = str(config.prefix)
        self.health = Health(config.name, clock)
        self._config = config
        self._clock = clock
        self._convert = convert
        self._pacer = pacer
        self._uniform = uniform
        self._transport = transport
        self._host = httpx.URL(config.of_endpoint(f"{self.prefix}/x").url).host
        self._stored: StoredState | None = None
        self._watched: dict[str, _Endpoint] = {}
        self._unwatched: OrderedDict[str, _Endpoint] = OrderedDict()
        """The next to be forgotten first."""
        self._forgotten: dict[str, None] = {}
        """Stored endpoints to be deleted."""
        self._failing: dict[str, tuple[str, Fault]] = {}
        """Errors by endpoint, the latest last."""
        self._queue = PollQueue()
        self._wake = asyncio.Event()
        self._free = asyncio.Semaphore(config.concurrent)
        self._clients: list[PollingClient] = []
        self._resumed_at = inf
        """Monotonic time from which an endpoint that was not polled by this process is polled at once."""
        self._paused_until = -inf
        self.refused = 0
        """Watched endpoints that were refused since :meth:`readmit`."""

    @property
    def claims(self) -> Sequence[Claim]:
        """Everything below the prefix."""
        return self._config.claims

    @property
    def watched(self) -> int:
        """Number of endpoints that are polled."""
        return len(self._watched)

    def attach(self, stored: StoredState) -> None:
        """Continue what is stored."""
        self._stored = stored
        for name in stored.names(self.prefix):
            self._unwatched[name] = _Endpoint(name, is_stored=True)
        while len(self._unwatched) > self._config.max_endpoints and self._make_room():
            pass

    # Interest

    def watch(self, name: str) -> bool:
        """Poll an endpoint because it is watched at one more server; False: too many are."""
        endpoint = self._watched.get(name) or self._admit(name)
        if endpoint is None:
            self.refused += 1
        else:
            endpoint.servers += 1
        self._update_health()
        return endpoint is not None

    def unwatch(self, name: str) -> None:
        """End a :meth:`watch`."""
        endpoint = self._watched[name]
        endpoint.servers -= 1
        if endpoint.servers:
            return
        del self._watched[name]
        self._pacer.expect(self._host, -60 / self._config.every)
        self._queue.discard(name)
        self._failing.pop(name, None)
        self._unwatched[name] = endpoint
        # What the server does not have is forgotten first: watchers may invent names.
        self._unwatched.move_to_end(name, last=endpoint.is_stored)
        self._update_health()

    def readmit(self) -> bool:
        """Return whether there is room for refused endpoints, which are to be watched again."""
        if not self.refused or len(self._watched) >= self._config.max_endpoints:
            return False
        self.refused = 0
        self._update_health()
        return True

    def _admit(self, name: str) -> _Endpoint | None:
        endpoint = self._unwatched.pop(name, None)
        if endpoint is None:
            if len(self._watched) + len(self._unwatched) >= self._config.max_endpoints and not self._make_room():
                return None
            endpoint = _Endpoint(name, is_stored=name in self._forgotten)
            self._forgotten.pop(name, None)
        self._watched[name] = endpoint
        self._pacer.expect(self._host, 60 / self._config.every)
        self._schedule(endpoint)
        return endpoint

    def _make_room(self) -> bool:
        oldest = next((each for each in self._unwatched.values() if not each.is_polling), None)
        if oldest is None or len(self._forgotten) >= MAX_FORGOTTEN:
            return False
        del self._unwatched[oldest.name]
        if oldest.is_stored:
            self._forgotten[oldest.name] = None
            self._wake.set()
        return True

    def _update_health(self) -> None:
        health, count = self.health, len(self._watched)
        health.progress = f"{count} watched"
        if self.refused:
            text = f"{count} endpoints are watched, {self.refused} more are not polled: max_endpoints"
            health.failed(text, times=0)
        elif self._failing:
            errors = [f"{name}: {text}" for name, (text, _) in islice(reversed(self._failing.items()), MAX_ERRORS)]
            more = f" (and {len(self._failing) - 1} more of {count})" if len(errors) > 1 else ""
            (_, fault) = next(reversed(self._failing.values()))
            health.failed(errors[0] + more, times=0, fault=fault, errors=errors if more else ())
        else:
            health.recovered()

    # Schedule

    def _schedule(self, endpoint: _Endpoint) -> None:
        """Queue the next poll of a watched endpoint."""
        if endpoint.is_polling:
            return  # then queued at its end
        now, every = self._clock.monotonic(), self._config.every
        # Slots are of the wall clock, which other processes have, too; a step of it puts no poll off for long.
        wall = self._clock.wall_ms() / 1000 - now
        if endpoint.polled_at > -inf:
            # Half an interval less, because polls may begin late.
            after = endpoint.polled_at + self._interval(endpoint) - every / 2
            due = next_slot(endpoint.name, wall + after, every) - wall
        elif endpoint.is_stored and now < self._resumed_at:
            due = next_slot(endpoint.name, wall + now, min(every, RESUME_S)) - wall
        else:
            self._queue.add_new(endpoint.name)
            self._wake.set()
            return
        if self._config.jitter:
            due += self._uniform(0, self._config.jitter)
        self._queue.add(endpoint.name, max(now, due, endpoint.retry_at))
        self._wake.set()

    def _interval(self, endpoint: _Endpoint) -> float:
        every = self._config.every
        return min(every * 2 ** min(endpoint.absences, 16), max(every, MISSING_S)) if endpoint.absences > 1 else every

    async def run(self, sink: Sink) -> None:
        """Poll until cancelled."""
        if self.health.last_success_ms is None:
            # Nothing to poll is no failure.
            self.health.last_success_ms = self._clock.wall_ms()
        self._resumed_at = self._clock.monotonic() + min(self._config.every, RESUME_S)
        self._free, self._clients = asyncio.Semaphore(self._config.concurrent), []
        for endpoint in self._watched.values():
            if endpoint.name not in self._queue:
                self._schedule(endpoint)
        async with AsyncExitStack() as closing, asyncio.TaskGroup() as tasks:
            while True:
                await self._free.acquire()
                endpoint = await self._next()
                if not self._clients:
                    self._clients.append(await closing.enter_async_context(self._client()))
                tasks.create_task(self._poll(self._clients.pop(), endpoint, sink))

    async def try_once(self, sink: Sink) -> None:
        """Poll every watched endpoint once."""
        async with self._client() as client:
            for endpoint in self._watched.values():
                await self._read(client, endpoint, sink)
        if not self._watched:
            self.health.succeeded()

    def _client(self) -> PollingClient:
        return PollingClient(self._config.timeout, self._transport)

    async def _next(self) -> _Endpoint:
        """Wait for the next poll."""
        while True:
            self._wake.clear()
            await self._forget()
            now = self._clock.monotonic()
            name = self._queue.pop(now) if now >= self._paused_until else None
            if name is not None:
                endpoint = self._watched[name]
                endpoint.is_polling = True
                return endpoint
            wait_s = max(self._queue.next_at, self._paused_until) - now
            if wait_s < inf:
                self.health.scheduled(wait_s)
            else:
                self.health.next_attempt_ms = None
            await wait(self._wake, wait_s)

    async def _forget(self) -> None:
        """Delete what was forgotten; what the store cannot delete now waits for the next call."""
        with suppress(StoreUnavailable):
            for name in list(self._forgotten):
                await self._delete(name)
                self._forgotten.pop(name, None)

    async def _delete(self, name: str) -> None:
        if self._stored is not None:
            with suppress(UnknownEndpoint, EndpointDeleted):
                await self._stored.delete(name)

    async def _poll(self, client: PollingClient, endpoint: _Endpoint, sink: Sink) -> None:
        try:
            await self._read(client, endpoint, sink)
        finally:
            self._clients.append(client)
            self._free.release()
            endpoint.is_polling = False
            if endpoint.name in self._watched:
                self._schedule(endpoint)

    async def _read(self, client: PollingClient, endpoint: _Endpoint, sink: Sink) -> None:
        """Poll an endpoint, and record the outcome."""
        endpoint.polled_at = self._clock.monotonic()
        if endpoint.reader is None:
            config = self._config.of_endpoint(endpoint.name)
            endpoint.reader = HttpReader(config, self._clock, convert=self._convert, pacer=self._pacer)
        reader = endpoint.reader
        try:
            try:
                await reader.read(client, sink, [reader.today])
                endpoint.is_stored, endpoint.absences = True, 0
            except PollFailed as error:
                if error.status not in _MISSING:
                    raise
                await self._miss(endpoint, error.status)
        except FAULTS as error:
            self._failed(endpoint, reader.redact(text_of(error)), error)
        else:
            endpoint.failures, endpoint.retry_at = 0, -inf
            self._failing.pop(endpoint.name, None)
            self.health.successes += 1
            self.health.last_success_ms = self._clock.wall_ms()
        # It may have waited for the pace of the host.
        endpoint.polled_at = max(endpoint.polled_at, reader.sent_at)
        self._update_health()

    async def _miss(self, endpoint: _Endpoint, status: int) -> None:
        """Delete an endpoint that the server does not have: after 404 if it is repeated, for a wrong one may pass."""
        endpoint.absences += 1
        if endpoint.is_stored and (status == _GONE or endpoint.absences > 1):
            await self._delete(endpoint.name)
            # An equal answer must be stored again.
            endpoint.is_stored, endpoint.reader = False, None

    def _failed(self, endpoint: _Endpoint, text: str, error: Exception) -> None:
        endpoint.failures += 1
        now, wanted_s = self._clock.monotonic(), requested_wait_s(error, self._clock.wall_ms() / 1000)
        self._paused_until = max(self._paused_until, now + wanted_s)
        endpoint.retry_at = now + max(wanted_s, backoff_s(self._config.every, endpoint.failures, self._uniform))
        self.health.failures += 1
        if endpoint.name in self._watched:
            self._failing.pop(endpoint.name, None)
            self._failing[endpoint.name] = text, fault_in(error)
