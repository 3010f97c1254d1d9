"""Makes the configured sources and keeps them running, each by itself."""

import asyncio
import random
from collections.abc import Iterable, Sequence
from typing import Any, Final

import structlog

from diem.process import metrics
from diem.process.clock import Clock
from services.data.sources.claims import Claims
from services.data.sources.config import Config, HttpConfig
from services.data.sources.http import HttpSource
from services.data.sources.market import Simulation
from services.data.sources.source import Sink, Source

RESTART_WITHIN_S: Final = 10.0

_logger = structlog.get_logger(__name__)


class Keeper:
    """All sources of a process.

    Raises:
        ClaimedTwice: two of them want the same endpoint.
    """

    def __init__(self, sources: Sequence[Source]) -> None:
        self._sources = sources
        self.claims = Claims(sources)

    @classmethod
    def configured(cls, config: Config, clock: Clock) -> "Keeper":
        """The sources that a configuration lists."""
        return cls(
            [HttpSource(one, clock) if isinstance(one, HttpConfig) else Simulation(one, clock) for one in config.source]
        )

    async def run(self, sink: Sink) -> None:
        """Run every source until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for source in self._sources:
                tasks.create_task(_keep(source, sink))

    def status(self) -> list[dict[str, Any]]:
        """How each source is doing."""
        return [source.health.status() for source in self._sources]

    def samples(self) -> Iterable[metrics.Sample]:
        """The sources' metrics."""
        for source in self._sources:
            yield metrics.SOURCE_POLLS.sample(source.health.successes, source.name)
            yield metrics.SOURCE_FAILURES.sample(source.health.failures, source.name)


async def _keep(source: Source, sink: Sink) -> None:
    while True:
        try:
            await source.run(sink)
        except Exception as error:
            # A defect of one source: it starts over, and the others never notice.
            _logger.exception("source stopped", source=source.name)
            source.health.failed(f"internal: {type(error).__name__}")
        await asyncio.sleep(random.uniform(0, RESTART_WITHIN_S))  # noqa: S311  # jitter, not a secret
