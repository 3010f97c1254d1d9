"""Reads a URL: retrieves its answers for some days, parses them, and stores them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from functools import partial
from pathlib import PurePosixPath
from typing import Final
from urllib.parse import urlsplit

import httpx

from diem.process.backoff import retry_after_s
from diem.process.clock import Clock
from services.data.errors import DataError, InvalidDataset, NoRows
from services.data.files.grid import InputFile
from services.data.files.target import Converter
from services.data.files.unpack import signature_of
from services.data.kinds import DOCUMENT, Body, Representation, kind_of, series
from services.data.kinds.series import zone
from services.data.large import run_sized
from services.data.sources.fetch import Answer, PollFailed, PollingClient
from services.data.sources.pacing import HostPacer
from services.data.sources.paging import ABSENT, NO_CONTENT, is_empty
from services.data.sources.parts import insert, join
from services.data.sources.retrieval import Retrieved, Retriever
from services.data.sources.source import Fault, Sink, StoredState, fault_of
from services.data.sources.tables import HttpConfig
from services.data.sources.windows import RequestedDays

_ARCHIVES: Final = (b"PK", b"\x1f\x8b")
_NO_ROWS: Final = "the answer has no rows"
_CUT: Final = "the response has no length and its last line does not end: it may be incomplete"
BATCH_DAYS: Final = 10
"""Days stored together."""
BACKOFF_CAP_S: Final = 60.0
RETRY_AFTER_CAP_S: Final = 900.0
"""Longest honoured Retry-After."""
_LEAST_WAIT_S: Final = 0.2
FAULTS: Final = (DataError, httpx.HTTPError, httpx.InvalidURL, OSError, TimeoutError)
"""Errors of reading."""


class HttpReader:
    """Reads ``config.url`` on request: conditionally, within the bounds of ``config``, at the pace of the host.

    A failed or refused answer leaves the stored data unchanged. At most ``max_endpoints`` different endpoints are
    accepted.
    """

    def __init__(self, config: HttpConfig, clock: Clock, *, convert: Converter, pacer: HostPacer) -> None:
        self._config = config
        self._clock = clock
        self._convert = convert
        self._declared = config.declared(config.endpoint)
        self._retriever = Retriever(config, clock, pacer)
        self.window = RequestedDays(config)
        self.stored: StoredState | None = None
        """What is stored of earlier runs, into which parts of series are inserted."""
        self._names: set[str] = set()

    @property
    def today(self) -> date:
        """The day in the zone of the source."""
        return datetime.fromtimestamp(self._clock.wall_ms() / 1000, zone(self._config.zone)).date()

    @property
    def sent_at(self) -> float:
        """Monotonic time of the last request."""
        return self._retriever.sent_at

    def redact(self, text: str) -> str:
        """Return an error with the secrets of the last request hidden."""
        return self._retriever.redact(text)

    def forget(self) -> None:
        """Forget all answers: they must be stored again."""
        self._retriever.forget()

    async def read(
        self, client: PollingClient, sink: Sink, days: Sequence[date], *, backfill: bool = False
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
                except FAULTS as error:
                    if several and isinstance(error, PollFailed) and error.status in ABSENT:
                        absent = error
                    elif several and isinstance(error, DataError) and fault_in(error) is Fault.INVALID:
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

    async def _retrieve(self, client: PollingClient, day: date, batch: "_Batch", *, again: bool) -> bool:
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
        keep_from = self.window.keep_from(self.today)
        for part in parts:
            before = batch.made.get(part.endpoint)
            if before is not None:
                content: bytes | None = before.content
            else:
                content = None if self.stored is None else await self.stored.content(part.endpoint)
            made = await run_sized(partial(insert, part, content, keep_from), len(part.content) + len(content or b""))
            if made is not None:
                # What undoes several insertions is not that of the last one.
                batch.made[part.endpoint] = made if before is None else replace(made, undo=b"")

    async def _store(self, batch: "_Batch", sink: Sink) -> None:
        made = list(batch.made.values())
        self._names.update(batch.made)
        for start in range(0, len(made), series.WRITTEN_TOGETHER):
            await sink(made[start : start + series.WRITTEN_TOGETHER], source=self._config.name)
        # Only now: a refused or unstored body must be fetched again.
        for found in batch.found:
            self._retriever.confirm(found)

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
        if config.kind == "document" and config.endpoint is not None:
            title = config.describe(config.endpoint).title
            body = Body(answer.utf8, DOCUMENT, {"title": title})
            return [await run_sized(partial(kind_of(DOCUMENT).parse, config.endpoint, body), len(body.content))]
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
        (claim,) = self._config.claims
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


def fault_in(error: Exception) -> Fault:
    """Return the public description of an error of reading."""
    # Incomplete bodies and wrong statuses are faults of the server, not of the data.
    return Fault.UNREACHABLE if isinstance(error, PollFailed) else fault_of(error)


def text_of(error: Exception) -> str:
    """Return an error of reading in words."""
    if isinstance(error, DataError):
        return str(error)
    if isinstance(error, TimeoutError | httpx.TimeoutException):
        return "no complete answer in time"
    return f"{type(error).__name__}: {error}".rstrip(": ")[:200]


def backoff_s(every: float, failures: int, uniform: Callable[[float, float], float], *, least: bool = True) -> float:
    """Return the seconds until the next attempt after so many failures: random, below a bound that doubles up to 60 s.

    ``least``: the bound is at least ``every``.
    """
    most = min(BACKOFF_CAP_S, every * 2 ** min(failures, 16))
    return uniform(min(_LEAST_WAIT_S, most), max(most, every) if least else most)


def requested_wait_s(error: Exception, now_s: float) -> float:
    """Return the seconds that the server asked to wait (Retry-After), at most 15 minutes; 0 without any."""
    if not isinstance(error, PollFailed) or not error.retry_after:
        return 0.0
    return min(retry_after_s(error.retry_after, now_s), RETRY_AFTER_CAP_S)
