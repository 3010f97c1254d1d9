"""The simulation as a source: which series is due when, and how wall time becomes simulated time."""

import asyncio
import heapq
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC
from typing import Final

from diem.process.clock import Clock
from diem.process.faults import ConfigurationError
from services.data import datasets
from services.data.errors import DataError
from services.data.sources.config import SimulationConfig
from services.data.sources.market.model import Market
from services.data.sources.market.series import Book, Series
from services.data.sources.market.zones import ZONES
from services.data.sources.source import Claim, Health, Sink, fault_of

TICK_S: Final = 0.5
"""Series that are due within the same half second are stored together."""

Sleep = Callable[[float], Awaitable[None]]


class Simulation:
    """Publishes all series once, then each at its own rhythm, evenly spread.

    Simulated time starts at ``config.start``, or now, and runs ``time_scale`` times as fast as the clock. What a series
    says is a function of seed and simulated time alone.
    """

    def __init__(self, config: SimulationConfig, clock: Clock, *, sleep: Sleep = asyncio.sleep) -> None:
        unknown = [zone for zone in config.zones or () if zone not in ZONES]
        if unknown:
            raise ConfigurationError(f"source {config.name!r}: unknown zone {unknown[0]!r}; known: {', '.join(ZONES)}")
        self.name = config.name
        self.health = Health(config.name, clock)
        self._config = config
        self._clock = clock
        self._sleep = sleep
        self._book = Book(Market(config.seed, config.zones), config.seed)

    @property
    def claims(self) -> Sequence[Claim]:
        """Every series of its zones."""
        return [Claim(series.endpoint) for series in self._book.series]

    async def run(self, sink: Sink) -> None:
        """Publish until cancelled."""
        began = self._clock.monotonic()
        first = self._clock.wall_ms() / 1000
        if self._config.start is not None:
            start = self._config.start
            first = (start if start.tzinfo else start.replace(tzinfo=UTC)).timestamp()
        agenda: list[tuple[float, int]] = []
        for index, series in enumerate(self._book.series):
            # Spread by the golden ratio, so that equal rhythms do not beat together.
            agenda.append((began + (index * 0.618 % 1) * self._every(series), index))
        heapq.heapify(agenda)
        await self._publish(self._book.series, first, sink)
        while True:
            now = self._clock.monotonic()
            due: list[Series] = []
            while agenda[0][0] <= now:
                when, index = agenda[0]
                series = self._book.series[index]
                due.append(series)
                # After a pause of the machine a series is published once, not once for every time it was missed.
                heapq.heapreplace(agenda, (max(when + self._every(series), now), index))
            if due:
                await self._publish(due, first + (now - began) * self._config.time_scale, sink)
            await self._sleep(TICK_S)

    def _every(self, series: Series) -> float:
        return max(TICK_S, series.every_s / self._config.pace)

    async def _publish(self, due: Sequence[Series], time: float, sink: Sink) -> None:
        try:
            for start in range(0, len(due), datasets.MAX_DATASETS):
                group = []
                for series in due[start : start + datasets.MAX_DATASETS]:
                    group.append(series.at(time))
                    await asyncio.sleep(0)  # the first look at a day takes a while: let others run in between
                await sink(group, source=self.name)
        except DataError as error:
            self.health.failed(str(error), fault=fault_of(error))
        else:
            self.health.succeeded()
