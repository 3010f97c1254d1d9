"""Load clients that fetch, like the SDK: they hold the versions that REST returned, or that came with their data."""

import asyncio
from time import monotonic
from typing import Any

import httpx

from tests.load.client import LoadClient, PartitionedLoadClient
from tests.load.contents import GONE, NOTHING, Seen, answered
from tests.load.recorder import Recorder

RETRY_SECONDS, RETRY_CAP_SECONDS = 0.5, 8.0


class Fetching(Recorder):
    """Fetches an endpoint after an update without data, one fetch per endpoint at a time, until held >= announced."""

    def __init__(self, *arguments: Any, http: httpx.AsyncClient, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.fetches = 0
        self._reads = http
        self._fetching: dict[bytes, asyncio.Task[None]] = {}
        self._outdated: set[bytes] = set()

    def level(self, endpoint: bytes) -> int:
        return self.held.get(endpoint, 0)

    def changed(self, endpoint: bytes) -> None:
        if endpoint in self._fetching:
            # The answer under way may be from before this: look again when it is there.
            self._outdated.add(endpoint)
            return
        task = asyncio.get_running_loop().create_task(self._fetch(endpoint))
        self._fetching[endpoint] = task
        task.add_done_callback(lambda _: self._fetching.pop(endpoint, None))

    def leave(self) -> None:
        super().leave()
        for task in self._fetching.values():
            task.cancel()

    async def _fetch(self, endpoint: bytes) -> None:
        failures = 0
        while True:
            self._outdated.discard(endpoint)
            version, seen = await self._fetched(endpoint)
            if version is not None and version > self.held.get(endpoint, 0):
                # An update that REST was faster with is dropped when it comes.
                self.announced[endpoint] = max(version, self.announced.get(endpoint, 0))
                self.hold(endpoint, version, seen, monotonic())
            if version is not None and self.held.get(endpoint, 0) >= self.announced.get(endpoint, 0):
                if endpoint not in self._outdated:
                    return
                continue
            await asyncio.sleep(self.random.random() * min(RETRY_CAP_SECONDS, RETRY_SECONDS * 2**failures))
            failures += 1

    async def _fetched(self, endpoint: bytes) -> tuple[int | None, Seen]:
        """Return REST's version with its data; None without an answer or a version."""
        self.fetches += 1
        try:
            return await read(self._reads, endpoint.decode())
        except httpx.HTTPError:
            return None, NOTHING


async def read(http: httpx.AsyncClient, endpoint: str) -> tuple[int | None, Seen]:
    """Return REST's version of an endpoint with its data; None if there is no version. Raises ``httpx.HTTPError``."""
    answer = await http.get(f"/v1/data{endpoint}")
    if answer.status_code == httpx.codes.OK:
        return answered(answer.headers, answer.content, endpoint)
    gone = answer.status_code == httpx.codes.GONE
    return (int(answer.json()["version"]), GONE) if gone else (None, NOTHING)


class ProbeClient(Fetching, LoadClient):
    """A fetching client with one connection at a time."""


class PartitionedProbeClient(Fetching, PartitionedLoadClient):
    """A fetching client with a connection to every owner of its endpoints."""
