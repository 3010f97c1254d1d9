"""Updates of a load test's or canary's own endpoints: at a steady rate, or all at once."""

import asyncio
import itertools
import math
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from http import HTTPStatus
from typing import Any, Final, Self

import httpx

from deploy.clients.data_service import DataService, ServiceRefused, detail_of, public_client
from diem.process.auth import SharedKey
from diem.process.backoff import wait

PREFIX: Final = "/diem-load"
"""Prefix of load tests' endpoints, so that other data is never overwritten."""
BATCH: Final = 50
"""Maximum number of datasets per request."""
REQUESTS_PER_S: Final = 100.0
"""Rate above which several updates share a request."""
AT_ONCE: Final = 8
"""Maximum number of pending requests; others wait."""
DELETE_TRIES: Final = 3
"""Attempts to delete an endpoint while the Data Service answers 429 or 503."""
MAX_PAUSE_S: Final = 10.0
"""Longest wait between them, regardless of ``Retry-After``."""
UNIT: Final = "1"
RESOLUTION: Final = "PT1H"
_LATER: Final = frozenset({HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE})


async def write_all(service: DataService, key: SharedKey, names: Sequence[str]) -> dict[str, int]:
    """Write each endpoint once, with the time as its value, and return their versions.

    Raises:
        ServiceRefused: the Data Service does not accept it, or does not state the versions.
        DataServiceUnavailable: it does not answer.
    """
    versions: dict[str, int] = {}
    for first in range(0, len(names), BATCH):
        now = itertools.repeat(round(1000 * time.time()))
        answer = await _put(service, key, names[first : first + BATCH], now)
        try:
            versions |= {str(each["endpoint"]): int(each["version"]) for each in answer.json()["accepted"]}
        except (ValueError, LookupError, TypeError):
            raise ServiceRefused("the Data Service", answer.status_code, "its answer has no versions") from None
    return versions


async def _put(service: DataService, key: SharedKey, names: Sequence[str], values: Iterator[int]) -> httpx.Response:
    """Write endpoints with one request, all or none. Raises ``ServiceRefused``, ``DataServiceUnavailable``."""
    body, headers = _datasets(names, values), {"Authorization": key.header}
    answer = await service.request("PUT", "/v1/data", json=body, headers=headers)
    if not answer.is_success:
        raise ServiceRefused("the Data Service", answer.status_code, detail_of(answer))
    return answer


def _datasets(names: Sequence[str], values: Iterator[int]) -> dict[str, Any]:
    """Return a bulk request; an endpoint's next value must differ, as an equal dataset is no update."""
    hour = time.strftime("%Y-%m-%dT%H:00:00Z", time.gmtime())
    fields = {"unit": UNIT, "resolution": RESOLUTION}
    return {
        "datasets": [{"endpoint": name, **fields, "points": [{"time": hour, "value": next(values)}]} for name in names]
    }


class LoadWriter:
    """Writes to its own endpoints, as an asynchronous context manager that deletes them at the end.

    The rate is independent of the answers (open loop), as long as ``AT_ONCE`` requests suffice.

    Args:
        service: the target.
        key: the write key.
        endpoints: number of endpoints.
        rate: updates a second.
    """

    def __init__(self, service: DataService, key: SharedKey, endpoints: int, rate: float) -> None:
        self.names = [f"{PREFIX}/{number}" for number in range(1, endpoints + 1)]
        self.accepted = 0
        """Updates that were accepted while :meth:`run` wrote."""
        self.failed: Counter[str] = Counter()
        """Updates of requests that were not accepted, by reason."""
        self.seconds = 0.0
        """Time for which :meth:`run` wrote."""
        self.left = ""
        """The endpoints that could not be deleted at the end, as a message; empty if there are none."""
        self._service = service
        self._key = key
        self._headers = {"Authorization": key.header}
        self._batch = min(BATCH, endpoints, math.ceil(rate / REQUESTS_PER_S))
        self._every_s = self._batch / rate
        self._values = itertools.count(1)
        self._http = public_client(service.tls)

    async def __aenter__(self) -> Self:
        """Create the endpoints, all or none. Raises ``ServiceRefused``, ``DataServiceUnavailable``."""
        first = 0
        try:
            for first in range(0, len(self.names), BATCH):
                await _put(self._service, self._key, self.names[first : first + BATCH], self._values)
        except BaseException as error:
            # A request without an answer may have created its endpoints.
            created = first if isinstance(error, ServiceRefused) else first + BATCH
            await self._close(self.names[:created])
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        """Delete the endpoints, as far as possible; :attr:`left` has the rest."""
        await self._close(self.names)

    async def run(self, stopping: asyncio.Event) -> None:
        """Write until ``stopping`` is set; pending requests are completed."""
        began = asyncio.get_running_loop().time()
        due = (began + number * self._every_s for number in itertools.count())
        names = itertools.cycle(self.names)
        await asyncio.gather(*(self._work(due, names, stopping) for _ in range(AT_ONCE)))
        self.seconds = asyncio.get_running_loop().time() - began

    async def _work(self, due: Iterator[float], names: Iterator[str], stopping: asyncio.Event) -> None:
        loop = asyncio.get_running_loop()
        for moment in due:
            if await wait(stopping, max(0.0, moment - loop.time())):
                return
            # The endpoints of a batch are distinct: there are enough of them.
            await self._put(list(itertools.islice(names, self._batch)))

    async def _put(self, names: Sequence[str]) -> None:
        try:
            url = f"{self._service.base}/v1/data"
            answer = await self._http.put(url, json=_datasets(names, self._values), headers=self._headers)
        except httpx.HTTPError as error:
            self.failed[type(error).__name__] += len(names)
            return
        if answer.is_success:
            self.accepted += len(names)
        else:
            self.failed[f"HTTP {answer.status_code}: {detail_of(answer)}"[:200]] += len(names)

    async def _close(self, names: Sequence[str]) -> None:
        """Delete endpoints and close the connections."""
        try:
            pending, faults = iter(names), Counter[str]()
            deleted = sum(await asyncio.gather(*(self._delete(pending, faults) for _ in range(AT_ONCE))))
            if deleted < len(names):
                reason = faults.most_common(1)[0][0]
                self.left = (
                    f"{len(names) - deleted:,} of {len(names):,} endpoints of {PREFIX} were not deleted: {reason}"
                )
        finally:
            await self._http.aclose()

    async def _delete(self, names: Iterator[str], faults: Counter[str]) -> int:
        """Delete until one fails, adding the reason to ``faults``; return the number deleted."""
        deleted = 0
        for name in names:
            try:
                answer = await self._try_delete(name)
            except httpx.HTTPError as error:
                faults[str(error) or type(error).__name__] += 1
                return deleted
            if not answer.is_success and answer.status_code != HTTPStatus.NOT_FOUND:
                faults[f"HTTP {answer.status_code}: {detail_of(answer)}"[:200]] += 1
                return deleted
            deleted += 1
        return deleted

    async def _try_delete(self, name: str) -> httpx.Response:
        """Return the answer to a request to delete an endpoint, the last one after retries."""
        for left in reversed(range(DELETE_TRIES)):
            answer = await self._http.delete(f"{self._service.base}/v1/data{name}", headers=self._headers)
            if not left or answer.status_code not in _LATER:
                break
            await asyncio.sleep(_pause_s(answer))
        return answer


def _pause_s(answer: httpx.Response) -> float:
    """Return the seconds of ``Retry-After``, at most :data:`MAX_PAUSE_S`; one second without it, or for a date."""
    text = answer.headers.get("Retry-After", "")
    return min(float(text), MAX_PAUSE_S) if text.isascii() and text.isdigit() else 1.0
