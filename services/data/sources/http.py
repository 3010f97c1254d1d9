"""HTTP source: polls a URL on a schedule and parses the answers into datasets."""

import asyncio
import random
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Final

import httpx
import structlog

from diem.process.clock import Clock
from services.data.errors import InvalidDataset
from services.data.files.target import Converter
from services.data.kinds.series import zone
from services.data.sources.fetch import PollingClient
from services.data.sources.http_reader import (
    BATCH_DAYS,
    FAULTS,
    HttpReader,
    backoff_s,
    fault_in,
    requested_wait_s,
    text_of,
)
from services.data.sources.pacing import HostPacer, Sleep
from services.data.sources.source import Claim, Health, Sink, StoredState
from services.data.sources.tables import HttpConfig
from services.data.sources.windows import BackfillFile, BackfillMark, days_between

_DAY: Final = timedelta(days=1)
_logger = structlog.get_logger(__name__)


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


_LONGEST_SLEEP_S: Final = 30.0
TRIAL_DAYS: Final = 3
"""Last days that a trial requests."""


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
        convert: Converter,
        sleep: Sleep = asyncio.sleep,
        uniform: Callable[[float, float], float] = random.uniform,
        transport: httpx.AsyncBaseTransport | None = None,
        pacer: HostPacer | None = None,
    ) -> None:
        self.name = config.name
        self.health = Health(config.name, clock)
        self._config = config
        self._clock = clock
        self._sleep = sleep
        self._uniform = uniform
        self._transport = transport
        pacer = pacer or HostPacer(clock, sleep)
        pacer.expect(httpx.URL(config.url).host, 60 / config.every)
        self._reader = HttpReader(config, clock, convert=convert, pacer=pacer)
        self._marks: BackfillFile | None = None
        self._mark: BackfillMark | None = None
        self._failures = 0

    @property
    def claims(self) -> Sequence[Claim]:
        """The configured endpoint, or everything below the prefix."""
        return self._config.claims

    def attach(self, stored: StoredState) -> None:
        """Continue what is stored: parts of series are inserted, and a backfill resumes."""
        self._reader.stored = stored
        if self._config.since is not None:
            self._marks = BackfillFile(stored.directory, stored.id, self._config)
            self._mark = self._marks.read() or BackfillMark(self._config.since)

    async def run(self, sink: Sink) -> None:
        """Poll until cancelled."""
        async with self._client() as client:
            while True:
                wait_s = await self.poll(client, sink)
                wait_s = await self._backfill(client, sink, wait_s)
                self.health.scheduled(wait_s)
                if self._config.at:
                    await self._until(self._now() + wait_s)
                else:
                    await self._sleep(wait_s)

    async def try_once(self, sink: Sink) -> None:
        """Poll once: of several days, the last :data:`TRIAL_DAYS`."""
        async with self._client() as client:
            await self.poll(client, sink, last=TRIAL_DAYS)

    def _client(self) -> PollingClient:
        return PollingClient(self._config.timeout, self._transport)

    async def poll(self, client: PollingClient, sink: Sink, last: int = 0) -> float:
        """Poll once, of several days the ``last`` ones (0: all); return the seconds to wait before the next poll."""
        days = self._reader.window.days(self._reader.today)
        try:
            if wrong := await self._reader.read(client, sink, days[-last:]):
                raise _DaysFailed(wrong)
        except FAULTS as error:
            return self._failed(error)
        self.health.succeeded()
        self._failures = 0
        return self._scheduled()

    def _failed(self, error: Exception) -> float:
        """Record a failure; return the seconds to wait."""
        several = [self._reader.redact(each) for each in error.errors] if isinstance(error, _DaysFailed) else ()
        self.health.failed(self._reader.redact(text_of(error)), fault=fault_in(error), errors=several)
        self._failures += 1
        return self._retry_delay_s(error)

    async def _backfill(self, client: PollingClient, sink: Sink, wait_s: float) -> float:
        """Request days since the configured one for ``wait_s`` at most; return the seconds to wait then.

        Days without data are passed over, as are days with invalid data, which are logged; any other failure is
        tried again after the next poll.
        """
        mark, since = self._mark, self._config.since
        if mark is None or self._marks is None or since is None:
            return wait_s
        until = self._clock.monotonic() + wait_s
        while self.health.error is None and self._clock.monotonic() < until:
            first = self._reader.window.first(self._reader.today)
            end = min(first, mark.before + BATCH_DAYS * _DAY)
            self.health.progress = mark.progress(since, first)
            if mark.before >= end:
                break
            try:
                wrong = await self._reader.read(client, sink, list(days_between(mark.before, end)), backfill=True)
                for day, error in wrong:
                    _logger.warning("day without valid data", source=self.name, day=f"{day}", error=error)
                    mark.skip(day)
                mark.before = end
                self._marks.write(mark)
                if end == first:
                    # The last days' answers are newer than those that may have reached into them.
                    self._reader.forget()
            except FAULTS as error:
                return max(self._failed(error), until - self._clock.monotonic())
        return max(0.0, until - self._clock.monotonic())

    def _now(self) -> float:
        return self._clock.wall_ms() / 1000

    def _scheduled(self) -> float:
        config = self._config
        wait_s = next_time(config.at, config.zone, self._now()) - self._now() if config.at else config.every
        return wait_s + self._uniform(0, config.jitter) if config.jitter else wait_s

    def _retry_delay_s(self, error: Exception) -> float:
        wait_s = backoff_s(self._config.every, self._failures, self._uniform, least=not self._config.at)
        if self._config.at:
            wait_s = min(wait_s, self._scheduled())
        return max(wait_s, requested_wait_s(error, self._now()))

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


class _DaysFailed(InvalidDataset):
    """Days of a window with invalid data."""

    def __init__(self, days: Sequence[tuple[date, str]]) -> None:
        self.errors = [f"{day}: {error}" for day, error in days]
        super().__init__(self.errors[0] + (f" (and {len(days) - 1} more)" if len(days) > 1 else ""))
