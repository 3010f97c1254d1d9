"""HTTP source: polls a URL on a schedule and parses the answers into datasets."""

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from functools import partial
from pathlib import PurePosixPath
from typing import Final
from urllib.parse import urlsplit

import httpx
import structlog

from diem.process.backoff import retry_after_s
from diem.process.clock import Clock
from services.data.errors import DataError, InvalidDataset, NoRows
from services.data.files.grid import InputFile
from services.data.files.target import Converter
from services.data.files.unpack import signature_of
from services.data.kinds import Representation, series
from services.data.kinds.series import zone
from services.data.large import run_sized
from services.data.sources.fetch import Answer, BoundedTransport, PollFailed, ReadBudget, make_client
from services.data.sources.pacing import HostPacer, Sleep
from services.data.sources.paging import ABSENT, NO_CONTENT, is_empty
from services.data.sources.parts import insert, join
from services.data.sources.retrieval import Retrieved, Retriever
from services.data.sources.source import Claim, Fault, Health, Sink, StoredState, fault_of
from services.data.sources.tables import HttpConfig
from services.data.sources.windows import BackfillFile, BackfillMark, RequestedDays, days_between

_ARCHIVES: Final = (b"PK", b"\x1f\x8b")
_NO_ROWS: Final = "the answer has no rows"
_CUT: Final = "the response has no length and its last line does not end: it may be incomplete"
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


BACKOFF_CAP_S: Final = 60.0
RETRY_AFTER_CAP_S: Final = 900.0
"""Longest honoured Retry-After."""
_LEAST_WAIT_S: Final = 0.2
_LONGEST_SLEEP_S: Final = 30.0
BATCH_DAYS: Final = 10
"""Days stored together."""
TRIAL_DAYS: Final = 3
"""Last days that a trial requests."""
_FAULTS: Final = (DataError, httpx.HTTPError, httpx.InvalidURL, OSError, TimeoutError)


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
        self._convert = convert
        self.name = config.name
        self.health = Health(config.name, clock)
        self._config = config
        self._clock = clock
        self._declared = config.declared(config.endpoint)
        self._sleep = sleep
        self._uniform = uniform
        self._transport = transport
        self._budget = ReadBudget()
        self._retriever = Retriever(config, clock, pacer or HostPacer(clock, sleep), self._budget)
        self._window = RequestedDays(config)
        self._stored: StoredState | None = None
        self._marks: BackfillFile | None = None
        self._mark: BackfillMark | None = None
        self._names: set[str] = set()
        self._failures = 0

    @property
    def claims(self) -> Sequence[Claim]:
        """The configured endpoint, or everything below the prefix."""
        return self._config.claims

    def attach(self, stored: StoredState) -> None:
        """Continue what is stored: parts of series are inserted, and a backfill resumes."""
        self._stored = stored
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

    def _client(self) -> httpx.AsyncClient:
        return make_client(self._config.timeout, self._transport or BoundedTransport(self._budget))

    async def poll(self, client: httpx.AsyncClient, sink: Sink, last: int = 0) -> float:
        """Poll once, of several days the ``last`` ones (0: all); return the seconds to wait before the next poll."""
        days = self._window.days(self._today())
        try:
            if wrong := await self._read(client, sink, days[-last:]):
                raise _DaysFailed(wrong)
        except _FAULTS as error:
            return self._failed(error)
        self.health.succeeded()
        self._failures = 0
        return self._scheduled()

    def _failed(self, error: Exception) -> float:
        """Record a failure; return the seconds to wait."""
        several = [self._retriever.redact(each) for each in error.errors] if isinstance(error, _DaysFailed) else ()
        self.health.failed(self._retriever.redact(_text(error)), fault=_fault(error), errors=several)
        self._failures += 1
        return self._retry_delay_s(error)

    async def _backfill(self, client: httpx.AsyncClient, sink: Sink, wait_s: float) -> float:
        """Request days since the configured one for ``wait_s`` at most; return the seconds to wait then.

        Days without data are passed over, as are days with invalid data, which are logged; any other failure is
        tried again after the next poll.
        """
        mark, since = self._mark, self._config.since
        if mark is None or self._marks is None or since is None:
            return wait_s
        until = self._clock.monotonic() + wait_s
        while self.health.error is None and self._clock.monotonic() < until:
            first = self._window.first(self._today())
            end = min(first, mark.before + BATCH_DAYS * _DAY)
            self.health.progress = mark.progress(since, first)
            if mark.before >= end:
                break
            try:
                wrong = await self._read(client, sink, list(days_between(mark.before, end)), backfill=True)
                for day, error in wrong:
                    _logger.warning("day without valid data", source=self.name, day=f"{day}", error=error)
                    mark.skip(day)
                mark.before = end
                self._marks.write(mark)
                if end == first:
                    # The last days' answers are newer than those that may have reached into them.
                    self._retriever.forget()
            except _FAULTS as error:
                return max(self._failed(error), until - self._clock.monotonic())
        return max(0.0, until - self._clock.monotonic())

    async def _read(
        self, client: httpx.AsyncClient, sink: Sink, days: Sequence[date], *, backfill: bool = False
    ) -> list[tuple[date, str]]:
        """Retrieve and store the answers for days; return those with invalid data, and their errors.

        Of several days, some may be absent; in a ``backfill``, all.

        Raises:
            DataError, httpx.HTTPError, OSError, TimeoutError: the first other failure; the answers before it are
                stored.
        """
        wrong: list[tuple[date, str]] = []
        absent: PollFailed | None = None
        present, is_new = 0, False
        unique = list({self._retriever.key(day): day for day in days}.values())
        several = backfill or len(unique) > 1
        for start in range(0, len(unique), BATCH_DAYS):
            batch = _Batch()
            failure: Exception | None = None
            for day in unique[start : start + BATCH_DAYS]:
                try:
                    # A new answer may reach into later days, whose own are newer.
                    is_new = await self._retrieve(client, day, batch, again=is_new) or is_new
                    present += 1
                except _FAULTS as error:
                    if several and isinstance(error, PollFailed) and error.status in ABSENT:
                        absent = error
                    elif several and isinstance(error, DataError) and _fault(error) is Fault.INVALID:
                        wrong.append((day, self._retriever.redact(str(error))))
                    else:
                        failure = error
                        break
            await self._store(batch, sink)
            if failure is not None:
                raise failure
        if absent is not None and not (present or wrong or backfill):
            raise PollFailed(f"{absent.reason}, for each of {len(unique)} days", status=absent.status)
        return wrong

    async def _retrieve(self, client: httpx.AsyncClient, day: date, batch: "_Batch", *, again: bool) -> bool:
        """Retrieve the answer for a day, and add it to a batch; return whether there is a new one to store."""
        found = await self._retriever.retrieve(client, day, again=again)
        if found is None:
            return False
        is_windowed = self._config.is_windowed
        if is_windowed and all(is_empty(page, self._config.rows) for page in found.pages):
            raise PollFailed(_NO_ROWS, status=NO_CONTENT)
        try:
            parts = join(await self._pages(found.pages))
        except NoRows:
            if is_windowed:
                raise PollFailed(_NO_ROWS, status=NO_CONTENT) from None
            raise
        except DataError:
            if self._retriever.is_echoed(found):
                raise InvalidDataset("it is not valid, and not shown because it has the secret in it") from None
            raise
        self._check(parts)
        if is_windowed:
            await self._insert(parts, batch)
        else:
            batch.made.update((part.endpoint, part) for part in parts)
        batch.found.append(found._replace(pages=()))
        return True

    async def _insert(self, parts: Sequence[Representation], batch: "_Batch") -> None:
        """Insert parts of series into those of a batch, or into the stored ones."""
        keep_from = self._window.keep_from(self._today())
        for part in parts:
            before = batch.made.get(part.endpoint)
            if before is not None:
                content: bytes | None = before.content
            else:
                content = None if self._stored is None else await self._stored.content(part.endpoint)
            made = await run_sized(partial(insert, part, content, keep_from), len(part.content) + len(content or b""))
            if made is not None:
                # What undoes several insertions is not that of the last one.
                batch.made[part.endpoint] = made if before is None else replace(made, undo=b"")

    async def _store(self, batch: "_Batch", sink: Sink) -> None:
        made = list(batch.made.values())
        self._names.update(batch.made)
        for start in range(0, len(made), series.WRITTEN_TOGETHER):
            await sink(made[start : start + series.WRITTEN_TOGETHER], source=self.name)
        # Only now: a refused or unstored body must be fetched again.
        for found in batch.found:
            self._retriever.confirm(found)

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

    async def _pages(self, answers: Sequence[Answer]) -> list[Sequence[Representation]]:
        """Return the contents of pages; of several, some may have no rows."""
        pages = []
        for answer in answers:
            try:
                pages.append(await self._contents(answer))
            except NoRows:
                if answer is answers[-1] and not pages:
                    raise
        return pages

    async def _contents(self, answer: Answer) -> Sequence[Representation]:
        config = self._config
        if config.mapping is None:
            return await run_sized(partial(self._parse, answer), len(answer.body))
        is_text = signature_of(answer.body) == "csv" and not answer.body.startswith(_ARCHIVES)
        if is_text and answer.open_ended and not _is_ended(answer):
            raise PollFailed(_CUT)
        file = InputFile(answer.url.path, answer.body, answer.content_type)
        return await self._convert(file, config.mapping, config.target)

    def _parse(self, answer: Answer) -> Sequence[Representation]:
        if self._is_csv(answer.content_type):
            if answer.open_ended and not _is_ended(answer):
                raise PollFailed(_CUT)
            found: Sequence[Representation] = series.read_table(series.parse_csv(answer.utf8), self._declared)
        else:
            found = series.read_json(answer.utf8, self._declared)
        return found

    def _check(self, found: Sequence[Representation]) -> None:
        (claim,) = self.claims
        for dataset in found:
            if not claim.covers(dataset.endpoint):
                raise InvalidDataset(f"{dataset.endpoint} is not below the prefix {self._config.prefix}")
        if len(self._names.union(dataset.endpoint for dataset in found)) > self._config.max_endpoints:
            raise InvalidDataset(f"more than {self._config.max_endpoints} different endpoints (max_endpoints)")

    def _is_csv(self, content_type: str) -> bool:
        if self._config.format != "auto":
            return self._config.format == "csv"
        declared = content_type.lower()
        if "json" in declared or "csv" in declared:
            return "csv" in declared
        return PurePosixPath(urlsplit(self._config.url).path).suffix.lower() != ".json"


def _is_ended(answer: Answer) -> bool:
    return answer.body.endswith((b"\n", b"\r"))


@dataclass(slots=True)
class _Batch:
    """New contents by endpoint, and the answers that they are made of."""

    made: dict[str, Representation] = field(default_factory=dict)
    found: list[Retrieved] = field(default_factory=list)


class _DaysFailed(InvalidDataset):
    """Days of a window with invalid data."""

    def __init__(self, days: Sequence[tuple[date, str]]) -> None:
        self.errors = [f"{day}: {error}" for day, error in days]
        super().__init__(self.errors[0] + (f" (and {len(days) - 1} more)" if len(days) > 1 else ""))


def _fault(error: Exception) -> Fault:
    # Incomplete bodies and wrong statuses are faults of the server, not of the data.
    return Fault.UNREACHABLE if isinstance(error, PollFailed) else fault_of(error)


def _text(error: Exception) -> str:
    if isinstance(error, DataError):
        return str(error)
    if isinstance(error, TimeoutError | httpx.TimeoutException):
        return "no complete answer in time"
    return f"{type(error).__name__}: {error}".rstrip(": ")[:200]
