"""HTTP source: polls a URL on a schedule and parses the answers into datasets."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from hashlib import blake2b
from pathlib import PurePosixPath
from typing import Final
from urllib.parse import urlsplit

import httpx

from diem.process.backoff import retry_after_s
from diem.process.clock import Clock
from services.data.errors import DataError, InvalidDataset
from services.data.kinds import series
from services.data.kinds.series import Dataset, zone
from services.data.large import run_sized
from services.data.sources.fetch import Answer, BoundedTransport, PollFailed, ReadBudget, Request, fetch, make_client
from services.data.sources.request import make_request
from services.data.sources.source import Claim, Fault, Health, Sink, fault_of
from services.data.sources.tables import HttpConfig


def next_time(times: Sequence[str], key: str, now_s: float) -> float:
    """Return the next of the times of day ``times`` (``HH:MM`` in the zone ``key``) after ``now_s``, in Unix seconds.

    Each occurs once a day: a repeated local time at its first occurrence, a skipped one an hour later.
    """
    there = zone(key)
    today = datetime.fromtimestamp(now_s, UTC).astimezone(there).date()
    found = []
    for day in range(-1, 3):
        for time in times:
            hour, minute = map(int, time.split(":"))
            date = today + timedelta(days=day)
            found.append(datetime(date.year, date.month, date.day, hour, minute, tzinfo=there).timestamp())
    return min(at for at in found if at > now_s)


BACKOFF_CAP_S: Final = 60.0
RETRY_AFTER_CAP_S: Final = 900.0
"""Longest honoured Retry-After."""
UNCONDITIONAL_EVERY_S: Final = 3600.0
"""Age of a body from which it is requested in full if its only validator is a time: some servers answer 304 to all
later ones, and the clock that it is from may have been ahead."""
_LEAST_WAIT_S: Final = 0.2
_LONGEST_SLEEP_S: Final = 30.0

Sleep = Callable[[float], Awaitable[None]]


@dataclass(slots=True)
class _Received:
    """The last stored answer to a request: its validators, when it was received, and the digest of its body."""

    key: str = ""
    validators: dict[str, str] = field(default_factory=dict)
    at: float = 0.0
    digest: bytes = b""


class HttpSource:
    """Polls ``config.url`` every ``config.every`` seconds, or at start and at each of the times ``config.at``.

    Failed polls are retried with exponential back-off and full jitter, no sooner than Retry-After (up to 15 minutes).
    Requests are conditional (ETag, Last-Modified), and scheduled ones follow a clock that is set back. Redirects are
    followed to the same scheme, host and port, and to ``config.redirects``; proxies of the environment and cookies are
    ignored; ``max_bytes`` bounds the body, both coded and decoded. A failed or refused poll leaves the stored data
    unchanged. At most ``max_endpoints`` different endpoints are accepted while the process runs.
    """

    def __init__(
        self,
        config: HttpConfig,
        clock: Clock,
        *,
        sleep: Sleep = asyncio.sleep,
        uniform: Callable[[float, float], float] = random.uniform,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self.name = config.name
        self.health = Health(config.name, clock)
        self._config = config
        self._clock = clock
        self._declared = config.declared(config.endpoint)
        self._sleep = sleep
        self._uniform = uniform
        self._transport = transport
        self._budget = ReadBudget()
        self._received = _Received()
        self._names: set[str] = set()
        self._failures = 0

    @property
    def claims(self) -> Sequence[Claim]:
        """The configured endpoint, or everything below the prefix."""
        return self._config.claims

    async def run(self, sink: Sink) -> None:
        """Poll until cancelled."""
        async with self._client() as client:
            while True:
                wait_s = await self.poll(client, sink)
                self.health.scheduled(wait_s)
                if self._config.at:
                    await self._until(self._now() + wait_s)
                else:
                    await self._sleep(wait_s)

    async def try_once(self, sink: Sink) -> None:
        """Poll once."""
        async with self._client() as client:
            await self.poll(client, sink)

    def _client(self) -> httpx.AsyncClient:
        return make_client(self._config.timeout, self._transport or BoundedTransport(self._budget))

    async def poll(self, client: httpx.AsyncClient, sink: Sink) -> float:
        """Poll once; return the seconds to wait before the next poll."""
        config, request = self._config, None
        try:
            request = make_request(config, self._today())
            if request.key != self._received.key:
                self._received = _Received(request.key)
            async with asyncio.timeout(config.timeout):
                found = await fetch(
                    client,
                    request,
                    self._conditions(self._received),
                    self._budget,
                    max_bytes=config.max_bytes,
                    redirects=config.redirects,
                )
            if found is not None:
                await self._store(found, request, self._received, sink)
        except (DataError, httpx.HTTPError, httpx.InvalidURL, OSError, TimeoutError) as error:
            text = _text(error)
            self.health.failed(text if request is None else request.redact(text), fault=_fault(error))
            self._failures += 1
            return self._retry_delay_s(error)
        self.health.succeeded()
        self._failures = 0
        return self._scheduled()

    def _conditions(self, received: "_Received") -> dict[str, str]:
        """Return the validators to send."""
        is_old = self._clock.monotonic() - received.at >= UNCONDITIONAL_EVERY_S
        if self._config.method != "GET" or (is_old and "If-None-Match" not in received.validators):
            return {}
        return received.validators

    def _today(self) -> date:
        return datetime.fromtimestamp(self._now(), zone(self._config.zone)).date()

    def _now(self) -> float:
        return self._clock.wall_ms() / 1000

    def _scheduled(self) -> float:
        config = self._config
        wait_s = next_time(config.at, config.zone, self._now()) - self._now() if config.at else config.every
        return wait_s + self._uniform(0, config.jitter) if config.jitter else wait_s

    def _retry_delay_s(self, error: Exception) -> float:
        every = self._config.every
        most = min(BACKOFF_CAP_S, every * 2 ** min(self._failures, 16))
        if not self._config.at:
            wait_s = self._uniform(min(_LEAST_WAIT_S, most), max(most, every))
        else:
            wait_s = min(self._uniform(_LEAST_WAIT_S, most), self._scheduled())
        if isinstance(error, PollFailed) and error.retry_after:
            wait_s = max(wait_s, min(retry_after_s(error.retry_after, self._now()), RETRY_AFTER_CAP_S))
        return wait_s

    async def _until(self, at: float) -> None:
        # In steps, because the wall clock may be set and the machine may sleep.
        left = at - self._now()
        while left > 0:
            await self._sleep(min(left, _LONGEST_SLEEP_S))
            before, left = left, at - self._now()
            if left > before:
                # The clock was ahead, and has been set back.
                left = self._scheduled()
                at = self._now() + left
                self.health.scheduled(left)

    async def _store(self, answer: Answer, request: Request, received: "_Received", sink: Sink) -> None:
        digest = blake2b(answer.body, digest_size=16).digest()
        if digest != received.digest:
            try:
                found = await run_sized(lambda: self._parse(answer), len(answer.body))
            except DataError:
                if request.is_echoed(answer.body):
                    raise InvalidDataset("it is not valid, and not shown because it has the secret in it") from None
                raise
            self._names |= {dataset.endpoint for dataset in found}
            for start in range(0, len(found), series.WRITTEN_TOGETHER):
                await sink(found[start : start + series.WRITTEN_TOGETHER], source=self.name)
        # Only now: a refused or unstored body must be fetched again.
        received.digest, received.at = digest, self._clock.monotonic()
        # A body possibly truncated at a line end is fetched again, changed or not.
        received.validators = {} if answer.open_ended and self._is_csv(answer.content_type) else answer.validators

    def _parse(self, answer: Answer) -> list[Dataset]:
        if self._is_csv(answer.content_type):
            if answer.open_ended and not answer.body.endswith((b"\n", b"\r")):
                raise PollFailed("the response has no length and its last line does not end: it may be incomplete")
            found = series.read_table(series.parse_csv(answer.utf8), self._declared)
        else:
            found = series.read_json(answer.utf8, self._declared)
        (claim,) = self.claims
        for dataset in found:
            if not claim.covers(dataset.endpoint):
                raise InvalidDataset(f"{dataset.endpoint} is not below the prefix {self._config.prefix}")
        if len(self._names.union(dataset.endpoint for dataset in found)) > self._config.max_endpoints:
            raise InvalidDataset(f"more than {self._config.max_endpoints} different endpoints (max_endpoints)")
        return found

    def _is_csv(self, content_type: str) -> bool:
        if self._config.format != "auto":
            return self._config.format == "csv"
        declared = content_type.lower()
        if "json" in declared or "csv" in declared:
            return "csv" in declared
        return PurePosixPath(urlsplit(self._config.url).path).suffix.lower() != ".json"


def _fault(error: Exception) -> Fault:
    # Incomplete bodies and wrong statuses are faults of the server, not of the data.
    return Fault.UNREACHABLE if isinstance(error, PollFailed) else fault_of(error)


def _text(error: Exception) -> str:
    if isinstance(error, DataError):
        return str(error)
    if isinstance(error, TimeoutError | httpx.TimeoutException):
        return "no complete answer in time"
    return f"{type(error).__name__}: {error}".rstrip(": ")[:200]
