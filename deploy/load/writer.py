"""Updates of endpoints that belong to the load test alone, at a steady rate."""

import asyncio
import itertools
import math
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final, Self

import httpx

from deploy.clients.data_service import DataService, ServiceRefused, detail_of, public_client
from diem.process.auth import SharedKey
from diem.process.backoff import wait

PREFIX: Final = "/diem-load"
"""Endpoints of load tests are below it: data of others is never overwritten."""
BATCH: Final = 50
"""Most datasets of a request."""
REQUESTS_PER_S: Final = 100.0
"""Above it, several updates are one request."""
AT_ONCE: Final = 8
"""Most pending requests; others wait."""
UNIT: Final = "1"
RESOLUTION: Final = "PT1H"


class Writer:
    """Writes to its own endpoints, as an asynchronous context manager; at the end it deletes them.

    The rate does not depend on the answers (open loop), as long as ``AT_ONCE`` requests are enough for it.

    Args:
        service: where to write.
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
        self._service = service
        self._headers = {"Authorization": key.header}
        self._batch = min(BATCH, endpoints, math.ceil(rate / REQUESTS_PER_S))
        self._every_s = self._batch / rate
        self._values = itertools.count(1)
        self._http = public_client(service.tls)

    async def __aenter__(self) -> Self:
        """Create the endpoints. Raises ``ServiceRefused``, ``DataServiceUnavailable``."""
        try:
            for first in range(0, len(self.names), BATCH):
                answer = await self._service.request(
                    "PUT",
                    "/v1/data",
                    json=self._datasets(self.names[first : first + BATCH]),
                    headers=self._headers,
                )
                if not answer.is_success:
                    raise ServiceRefused("the Data Service", answer.status_code, detail_of(answer))
        except BaseException:
            await self._http.aclose()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        """Delete the endpoints, as far as the Data Service answers."""
        try:
            names = iter(self.names)
            await asyncio.gather(*(self._delete(names) for _ in range(AT_ONCE)))
        finally:
            await self._http.aclose()

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
            # The endpoints of a batch are different: there are not fewer.
            await self._put(list(itertools.islice(names, self._batch)))

    async def _put(self, names: Sequence[str]) -> None:
        try:
            url = f"{self._service.base}/v1/data"
            answer = await self._http.put(url, json=self._datasets(names), headers=self._headers)
        except httpx.HTTPError as error:
            self.failed[type(error).__name__] += len(names)
            return
        if answer.is_success:
            self.accepted += len(names)
        else:
            self.failed[f"HTTP {answer.status_code}: {detail_of(answer)}"[:200]] += len(names)

    async def _delete(self, names: Iterator[str]) -> None:
        for name in names:
            try:
                await self._http.delete(f"{self._service.base}/v1/data{name}", headers=self._headers)
            except httpx.HTTPError:
                return

    def _datasets(self, names: Sequence[str]) -> dict[str, Any]:
        """Return a bulk request in which each dataset differs from the one before: an equal one is no update."""
        hour = time.strftime("%Y-%m-%dT%H:00:00Z", time.gmtime())
        return {
            "datasets": [
                {
                    "endpoint": name,
                    "unit": UNIT,
                    "resolution": RESOLUTION,
                    "points": [{"time": hour, "value": next(self._values)}],
                }
                for name in names
            ]
        }
