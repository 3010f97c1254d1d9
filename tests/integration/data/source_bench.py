"""An HTTP source of a diem.toml, polled on real connections to a publisher's server."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import orjson

from diem.process.clock import ManualClock
from services.data.kinds import Representation
from services.data.sources.config import load
from services.data.sources.http import HttpSource
from services.data.sources.source import StoredState
from services.data.sources.tables import HttpConfig
from services.data.store.store import Store
from tests.support.file_threads import FILES
from tests.support.publisher import Publisher

CSV = "time,value\n2026-01-01T00:00:00Z,1\n"


class Bench:
    """The source, its clock, and its store, if there is one; without one, what it would store."""

    def __init__(
        self, directory: Path, publisher: Publisher, fields: str, path: str = "/p.csv", store: Store | None = None
    ) -> None:
        self.file = directory / "diem.toml"
        self.file.write_text(
            f'[[source]]\ntype = "http"\nname = "p"\nurl = "{publisher.url}{path}"\n'
            f'endpoint = "/p"\nunit = "MW"\nresolution = "PT1H"\n{fields}\n'
        )
        self.slept: list[float] = []
        self.clock = ManualClock(wall_ms=1_774_737_000_000)  # 2026-03-28T22:30:00Z
        self.stored: list[Representation] = []
        self.store = store
        self.restart()

    def restart(self) -> None:
        """Make the source anew, as a new process does."""
        (config,) = load(self.file).source
        assert isinstance(config, HttpConfig)
        self.source = HttpSource(config, self.clock, convert=FILES.convert, sleep=self._sleep)
        if self.store is not None:
            state = self.file.parent / "sources"
            store = self.store
            names, delete = store.index.below, store.writer.delete
            self.source.attach(StoredState(store.id, state, store.reader.current, names, delete))

    async def _sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.clock.advance(seconds)

    async def poll(self) -> str | None:
        """Poll once; return the error."""
        async with self.source._client() as client:
            await self.source.poll(client, self._sink)
        return self.source.health.error

    async def run(self, seconds: float) -> None:
        """Run the source until the clock has advanced so far."""
        end = self.clock.monotonic() + seconds

        async def sleep(seconds: float) -> None:
            await self._sleep(seconds)
            if self.clock.monotonic() >= end:
                raise asyncio.CancelledError

        self.source._sleep = sleep
        with suppress(asyncio.CancelledError):
            await self.source.run(self._sink)

    async def _sink(self, datasets: Sequence[Representation], *, source: str) -> None:
        self.stored += datasets
        if self.store is not None:
            await self.store.writer.put(datasets, source=source)

    def values(self, endpoint: str = "/p") -> dict[str, float | None]:
        """Return the values by time, without seconds, of what was stored last of an endpoint."""
        content = next(each.content for each in reversed(self.stored) if each.endpoint == endpoint)
        return {point["time"][:16]: point["value"] for point in orjson.loads(content)["points"]}
