"""Reports to the Data Service of the data sent to clients with updates, by API key and user, and the leases.

docs/access.md sections 4 and 5. A report has the reads since the last one, and the answer the leases until the next. A
report is sent early when a lease runs low. It is repeated with the same number until answered, so that it counts once,
unless the Data Service is killed between storing and answering. A killed process loses its unreported reads of some
seconds.

Of a Data Service and its stand-by, only the one with the store accepts reports, so both URLs are tried in turn.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from secrets import token_hex
from typing import Any, Final, cast

import orjson
import structlog

from diem.errors import DiemError
from diem.fanout.read_meter import LeaseReport, ReadMeters
from diem.links.edge import Edge
from diem.process.edge_settings import EdgeSettings
from diem.process.key_ring import KeyRing, KeyRole
from diem.process.tasks import on_failure
from diem.process.tls import LinkTls

REPORT_EVERY_S: Final = 10.0
EARLY_S: Final = 0.5
"""Least time between two reports."""
RETRY_S: Final = 2.0
"""The same after an unanswered one."""
TIMEOUT_S: Final = 5.0
END_TIMEOUT_S: Final = 1.0
"""Time for the last report of a stopping process."""
MAX_ACCOUNTS: Final = 250
"""Most API keys and users in one report, a third of the Data Service's limit; others are in the next."""
Post = Callable[[str, bytes], Awaitable[bytes]]
"""Sends a report to a URL, and returns the answer. Raises ReportFailed."""


@dataclass(eq=False)
class ReportFailed(DiemError):
    """A report was not answered, and will be repeated."""

    template = "reads could not be reported: {reason}"

    reason: str


class ReadReporter:
    """Reports the reads of one process, and applies the answers: leases, and accounts whose quota is used up.

    Args:
        meters: of this process.
        edge: whose connections use them.
        urls: of the Data Service and its stand-bys.
        post: sends a report to one of them.
    """

    def __init__(self, meters: ReadMeters, edge: Edge, urls: Sequence[str], post: Post) -> None:
        self._meters = meters
        self._edge = edge
        self._urls = list(urls)
        """The one that answered last comes first."""
        self._post = post
        self._source = token_hex(8)
        """Identifies this incarnation of the process."""
        self._number = 0
        self._pending: tuple[LeaseReport, int] | None = None
        """The report that has not been answered yet, and its number."""
        self._failing = False
        self._low = asyncio.Event()
        meters.on_low = self._low.set
        self._log = structlog.get_logger("reads")

    async def run(self) -> None:
        """Report every 10 s, and when a lease runs low, until cancelled."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(RETRY_S if self._failing else REPORT_EVERY_S):
                    await self._low.wait()
            self._low.clear()
            await self.report()
            await asyncio.sleep(EARLY_S)

    async def report(self) -> None:
        """Report the reads since the last time; nothing is sent without reads or lease requests."""
        if self._pending is not None and not await self._deliver(*self._pending):
            return
        for report in self._meters.reports(MAX_ACCOUNTS):
            self._number += 1
            if not await self._deliver(report, self._number):
                return

    async def _deliver(self, report: LeaseReport, number: int) -> bool:
        """Send a report and apply the answer; without one, return False and keep the report."""
        self._pending = report, number
        body = {
            "source": self._source,
            "number": number,
            "reads": report.reads,
            "exhausted": report.exhausted,
            "wanted": report.wanted,
        }
        try:
            answer = await self._send(orjson.dumps(body))
        except ReportFailed as error:
            if not self._failing:
                self._log.warning("reads are reported later", error=str(error))
            self._failing = True
            changed = self._meters.suspend()
        else:
            self._pending, self._failing = None, False
            changed = self._meters.apply(report.accounts, answer)
        self._edge.fanout.apply_quotas(changed)
        self._meters.resume_waiting(report.wanted)
        return not self._failing

    async def _send(self, report: bytes) -> dict[str, Any]:
        """Return the answer of the first URL with one.

        Raises:
            ReportFailed: none did.
        """
        failures = []
        for url in tuple(self._urls):
            try:
                answer = orjson.loads(await self._post(url, report))
                answer["exhausted"] = list(answer["exhausted"])
            except ReportFailed as error:
                failures.append(f"{url}: {error.reason}")
            except (LookupError, TypeError, ValueError) as error:
                failures.append(f"{url}: {type(error).__name__}: {error}")
            else:
                self._urls.remove(url)
                self._urls.insert(0, url)
                return cast("dict[str, Any]", answer)
        raise ReportFailed("; ".join(failures))


@asynccontextmanager
async def reporting(settings: EdgeSettings, edge: Edge, keys: KeyRing, tls: LinkTls) -> AsyncIterator[None]:
    """Count and report the reads of ``edge``'s clients while the block runs, and the rest within 1 s after it."""
    if not settings.reads_url:
        yield
        return

    async def post(url: str, report: bytes) -> bytes:
        # Loaded on demand: most processes on one machine have anonymous clients only.
        import httpx  # noqa: PLC0415

        from diem.links.internal_client import internal_client  # noqa: PLC0415

        try:
            async with internal_client(keys, TIMEOUT_S, tls, role=KeyRole.FEED) as http:
                answer = await http.post(url, content=report)
        except httpx.HTTPError as error:
            raise ReportFailed(str(error) or type(error).__name__) from error
        if answer.status_code != 200:
            raise ReportFailed(f"status {answer.status_code}")
        return answer.content

    edge.read_meters = meters = ReadMeters()
    reporter = ReadReporter(meters, edge, settings.reads_url, post)
    work = asyncio.create_task(reporter.run())
    work.add_done_callback(on_failure(_log_failure))
    try:
        yield
    finally:
        work.cancel()
        with suppress(TimeoutError):
            async with asyncio.timeout(END_TIMEOUT_S):
                await reporter.report()


def _log_failure(error: BaseException) -> None:
    # Clients are still served, but their reads are no longer counted.
    structlog.get_logger("reads").error("reports of reads have failed", exc_info=error)
