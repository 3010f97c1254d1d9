"""The HTTP source: polls a URL and stores what it says, if it is new and if it is right."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from hashlib import blake2b
from pathlib import PurePosixPath
from typing import Final
from urllib.parse import urlsplit

import httpx

from diem.process.clock import Clock
from services.data import datasets
from services.data.datasets import Dataset
from services.data.errors import DataError, Invalid
from services.data.sources.config import HttpConfig
from services.data.sources.source import Claim, Health, Sink

BACKOFF_CAP_S: Final = 60.0
_LEAST_WAIT_S: Final = 0.2

Sleep = Callable[[float], Awaitable[None]]


class PollFailed(DataError):
    """One poll brought nothing that can be used."""

    code = "poll_failed"


class HttpSource:
    """Polls ``config.url`` every ``config.every`` seconds; after failures with exponential back-off and full jitter.

    It asks conditionally (ETag, Last-Modified), follows no redirect, takes no proxy from the environment, and reads at
    most ``max_bytes``. What was stored stays until something better comes: a failed or refused poll changes nothing.
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
        self._sleep = sleep
        self._uniform = uniform
        self._transport = transport
        self._validators: dict[str, str] = {}
        self._stored = b""
        self._in_a_row = 0

    @property
    def claims(self) -> Sequence[Claim]:
        """Its endpoint, or all below its prefix."""
        if self._config.endpoint is not None:
            return [Claim(self._config.endpoint)]
        return [Claim(str(self._config.prefix), below=True)]

    async def run(self, sink: Sink) -> None:
        """Poll until cancelled."""
        headers = {"Accept": "text/csv, application/json", "User-Agent": "DIEM"}
        async with httpx.AsyncClient(
            headers=headers,
            follow_redirects=False,
            trust_env=False,
            timeout=self._config.timeout,
            transport=self._transport,
        ) as client:
            while True:
                await self._sleep(await self.poll(client, sink))

    async def poll(self, client: httpx.AsyncClient, sink: Sink) -> float:
        """Poll once; returns the seconds to wait before the next."""
        try:
            async with asyncio.timeout(self._config.timeout):
                found = await self._fetch(client)
            if found is not None:
                await self._store(*found, sink)
        except (DataError, httpx.HTTPError, httpx.InvalidURL, OSError, TimeoutError) as error:
            self.health.failed(_text(error))
            self._in_a_row += 1
            most = min(BACKOFF_CAP_S, self._config.every * 2 ** min(self._in_a_row, 16))
            return self._uniform(min(_LEAST_WAIT_S, most), max(most, self._config.every))
        self.health.succeeded()
        self._in_a_row = 0
        return self._config.every

    async def _fetch(self, client: httpx.AsyncClient) -> tuple[httpx.Headers, bytes] | None:
        async with client.stream("GET", self._config.url, headers=self._validators) as response:
            if response.status_code == 304:
                return None
            if response.is_redirect:
                raise PollFailed(f"redirected ({response.status_code}); redirects are not followed")
            if response.status_code != 200:
                raise PollFailed(f"status {response.status_code}")
            body = bytearray()
            async for chunk in response.aiter_bytes():
                body += chunk
                if len(body) > self._config.max_bytes:
                    raise PollFailed(f"the body has more than {self._config.max_bytes} bytes")
            return response.headers, bytes(body)

    async def _store(self, headers: httpx.Headers, body: bytes, sink: Sink) -> None:
        digest = blake2b(body, digest_size=16).digest()
        if digest != self._stored:
            found = self._parse(headers, body)
            for start in range(0, len(found), datasets.MAX_DATASETS):
                await sink(found[start : start + datasets.MAX_DATASETS], source=self.name)
        # Only now: a body that was refused, or could not be stored, must be sent to us again.
        self._stored = digest
        pairs = (("If-None-Match", headers.get("etag")), ("If-Modified-Since", headers.get("last-modified")))
        self._validators = {name: value for name, value in pairs if value}

    def _parse(self, headers: httpx.Headers, body: bytes) -> list[Dataset]:
        config = self._config
        if self._is_csv(headers):
            table = datasets.parse_csv(body)
            found = datasets.rows_to_datasets(
                table, endpoint=config.endpoint, unit_=config.unit, resolution=config.resolution, title=config.title
            )
        else:
            found = datasets.parse_source(
                body, endpoint=config.endpoint, unit_=config.unit, resolution=config.resolution, title=config.title
            )
        (claim,) = self.claims
        for dataset in found:
            if not claim.covers(dataset.endpoint):
                raise Invalid(f"{dataset.endpoint} is not below the prefix {config.prefix}")
        return found

    def _is_csv(self, headers: httpx.Headers) -> bool:
        if self._config.format != "auto":
            return self._config.format == "csv"
        declared = headers.get("content-type", "").lower()
        if "json" in declared or "csv" in declared:
            return "csv" in declared
        return PurePosixPath(urlsplit(self._config.url).path).suffix.lower() != ".json"


def _text(error: Exception) -> str:
    if isinstance(error, DataError):
        return str(error)
    if isinstance(error, TimeoutError | httpx.TimeoutException):
        return "no complete answer in time"
    return f"{type(error).__name__}: {error}".rstrip(": ")[:200]
