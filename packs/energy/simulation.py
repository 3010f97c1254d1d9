"""The simulation as a source: its series, their schedule, and the mapping of wall time to simulated time."""

import asyncio
import heapq
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final, Literal, NamedTuple
from zoneinfo import ZoneInfo

from pydantic import Field

from diem.errors import ConfigurationError
from diem.process.clock import Clock
from packs.energy.model import ZONES, Market, MarketSnapshot, noise
from services.data.errors import DataError
from services.data.kinds.series import WRITTEN_TOGETHER, Dataset, Point, build
from services.data.sources.source import Claim, Health, Sink, fault_of
from services.data.sources.tables import Name, SourceTable

QUARTER_S: Final = 900
HOUR_S: Final = 3600
DAY_S: Final = 86_400
MARKET_TIME: Final = ZoneInfo("Europe/Brussels")
"""The clock of the coupled day-ahead market: its delivery days begin at this midnight, in every zone."""
PUBLICATION_S: Final = 13 * HOUR_S
"""Seconds into a delivery day from which the next day's prices are final; until then they are indications."""
_MAX_SNAPSHOTS: Final = 256


Points = Callable[[float], list[Point]]


class SimulatedSeries(NamedTuple):
    """One endpoint: name, title, update interval in seconds, and its dataset at a time."""

    endpoint: str
    title: str
    every_s: float
    at: Callable[[float], Dataset]


class SimulatedKind(NamedTuple):
    """Description of a series."""

    quantity: str
    unit: str
    resolution: str
    area: str
    title: str


class MarketSeries:
    """All series of a market. Snapshots of past quarters are cached (at most 256) and shared by the series."""

    def __init__(self, market: Market, seed: int) -> None:
        self._market = market
        self._seed = seed
        self._snapshots: OrderedDict[int, MarketSnapshot] = OrderedDict()
        self._now: tuple[int, MarketSnapshot] | None = None
        self.all = list(self._make())

    def _make(self) -> Iterator[SimulatedSeries]:
        for name, zone in self._market.zones.items():
            own = name == "GR"
            land = zone.country
            kind = SimulatedKind("price", "EUR/MWh", "PT1H", name, f"Day-ahead prices {land}")
            yield _series(f"/dam/prices/{name}", 20 if own else 60, kind, partial(self._prices, name))
            kind = SimulatedKind("imbalance", "EUR/MWh", "PT15M", name, f"Imbalance price {land}")
            yield _series(f"/imbalance/{name}", 15 if own else 60, kind, partial(self._imbalance, name))
            kind = SimulatedKind("load", "MW", "PT15M", name, f"Load {land}")
            yield _series(f"/load/{name}", 2 if own else 12, kind, partial(self._quarters, _load(name)))
            kind = SimulatedKind("load_forecast", "MW", "PT1H", name, f"Load forecast {land}")
            yield _series(f"/load/forecast/{name}", 60 if own else 180, kind, partial(self._forecast, name))
            for plant in zone.plants:
                kind = SimulatedKind("generation", "MW", "PT1H", name, f"Generation {land}, {plant}")
                running = partial(self._hours, _generation(name, plant))
                yield _series(f"/generation/{name}/{plant}", 15 if own else 90, kind, running)
        for border in self._market.borders:
            for (start, end), sign in ((border, 1), (border[::-1], -1)):
                kind = SimulatedKind("flow", "MW", "PT1H", f"{start}>{end}", f"Flow {start} to {end}")
                yield _series(f"/flows/{start}/{end}", 90, kind, partial(self._hours, _flow(border, sign)))

    # Points of the series

    def _prices(self, name: str, time: float) -> list[Point]:
        """Return hourly prices of today and tomorrow: 48, or 47 or 49 where the clock changes."""
        today, tomorrow, end = _delivery_days(time)
        published = time - today >= PUBLICATION_S
        points = []
        for hour, start in enumerate(range(today, end, HOUR_S)):
            price = self._past(start).price[name] + 2.5 * noise(self._seed, f"auction/{name}", start, HOUR_S)
            if start >= tomorrow and not published:
                price += (4 + 0.05 * abs(price)) * noise(self._seed, f"indication/{name}/{hour}", time, 240)
            points.append(Point(start, round(price, 2)))
        return points

    def _forecast(self, name: str, time: float) -> list[Point]:
        """Return hourly loads of today and tomorrow, with an error that grows with the lead time."""
        today, _, end = _delivery_days(time)
        points = []
        for hour, start in enumerate(range(today, end, HOUR_S)):
            ahead = max(0.0, min(1.0, (start - time) / DAY_S))
            error = 0.008 + 0.02 * ahead
            revised = error * noise(self._seed, f"forecast/{name}/{hour}", time if ahead else start, 1800)
            points.append(Point(start, round(self._past(start).load[name] * (1 + revised))))
        return points

    def _imbalance(self, name: str, time: float) -> list[Point]:
        """Return the last day's prices by quarter-hour: around the market price, with rare spikes."""

        def value(snapshot: MarketSnapshot, start: float) -> float:
            surprise = noise(self._seed, f"imbalance/{name}", start, QUARTER_S)
            return round(snapshot.price[name] + 18 * surprise + 90 * surprise**5, 2)

        last = int(time // QUARTER_S) * QUARTER_S
        starts = range(last - 96 * QUARTER_S, last, QUARTER_S)
        return [*(Point(at, value(self._past(at), at)) for at in starts), Point(last, value(self._present(time), time))]

    def _quarters(self, value: Callable[[MarketSnapshot], float], time: float) -> list[Point]:
        """Return the last day by quarter-hour; the last point is the current value."""
        return self._measured(value, time, QUARTER_S)

    def _hours(self, value: Callable[[MarketSnapshot], float], time: float) -> list[Point]:
        """Return the last day by hour; the last point is the current value."""
        return self._measured(value, time, HOUR_S)

    def _measured(self, value: Callable[[MarketSnapshot], float], time: float, step_s: int) -> list[Point]:
        last = int(time // step_s) * step_s
        points = [Point(at, round(value(self._past(at)))) for at in range(last - DAY_S, last, step_s)]
        return [*points, Point(last, round(value(self._present(time))))]

    # Snapshots

    def _present(self, time: float) -> MarketSnapshot:
        second = int(time)
        if self._now is None or self._now[0] != second:
            self._now = (second, self._market.snapshot(second))
        return self._now[1]

    def _past(self, start: int) -> MarketSnapshot:
        found = self._snapshots.get(start)
        if found is None:
            # The middle of the quarter-hour stands for all of it.
            found = self._snapshots[start] = self._market.snapshot(start + QUARTER_S / 2)
            if len(self._snapshots) > _MAX_SNAPSHOTS:
                self._snapshots.popitem(last=False)
        else:
            self._snapshots.move_to_end(start)
        return found


def _delivery_days(time: float) -> tuple[int, int, int]:
    """Return the beginning of the delivery day of ``time``, and beginning and end of the next, in Unix seconds."""
    today = datetime.fromtimestamp(time, MARKET_TIME).replace(hour=0, minute=0, second=0, microsecond=0)
    # Arithmetic within one zone is in local time: a day later is the next midnight, 23, 24 or 25 hours away.
    begins = (today, today + timedelta(days=1), today + timedelta(days=2))
    today_s, tomorrow_s, end_s = (int(midnight.replace(fold=0).timestamp()) for midnight in begins)
    return today_s, tomorrow_s, end_s


def _series(endpoint: str, every_s: float, kind: SimulatedKind, points: Points) -> SimulatedSeries:
    def at(time: float) -> Dataset:
        return build(
            endpoint, kind.unit, kind.resolution, points(time), kind.title, area=kind.area, quantity=kind.quantity
        )

    return SimulatedSeries(endpoint, kind.title, every_s, at)


def _load(name: str) -> Callable[[MarketSnapshot], float]:
    return lambda snapshot: snapshot.load[name]


def _generation(name: str, kind: str) -> Callable[[MarketSnapshot], float]:
    return lambda snapshot: snapshot.generation[name][kind]


def _flow(border: tuple[str, str], sign: int) -> Callable[[MarketSnapshot], float]:
    return lambda snapshot: max(0.0, sign * snapshot.flow[border])


TICK_S: Final = 0.5
"""SimulatedSeries due within the same half second are stored together."""

Sleep = Callable[[float], Awaitable[None]]


class SimulationConfig(SourceTable):
    """Its ``[[source]]`` table."""

    type: Literal["simulation"]
    name: Name = "market"
    seed: int = Field(default=1, ge=0, description="Another seed is another weather.")
    time_scale: float = Field(default=1.0, gt=0, le=86_400, description="Simulated seconds per second.")
    start: datetime | None = Field(default=None, description="Simulated time at start; without it, the time it is.")
    pace: float = Field(default=1.0, gt=0, le=1000, description="Multiplies how often each endpoint is updated.")
    zones: list[str] | None = Field(default=None, min_length=1, description="Bidding zones; without it, all of them.")


class Simulation:
    """Publishes all series once, then each at its own interval, evenly spread.

    Simulated time starts at ``config.start``, or now, and runs ``time_scale`` times as fast as the clock. A series is a
    function of seed and simulated time alone.
    """

    Config = SimulationConfig

    def __init__(self, config: SimulationConfig, clock: Clock, *, sleep: Sleep = asyncio.sleep) -> None:
        unknown = [zone for zone in config.zones or () if zone not in ZONES]
        if unknown:
            raise ConfigurationError(f"source {config.name!r}: unknown zone {unknown[0]!r}; known: {', '.join(ZONES)}")
        self.name = config.name
        self.health = Health(config.name, clock)
        self._config = config
        self._clock = clock
        self._sleep = sleep
        self._series = MarketSeries(Market(config.seed, config.zones), config.seed).all

    @property
    def claims(self) -> Sequence[Claim]:
        """Every series of its zones."""
        return [Claim(series.endpoint) for series in self._series]

    async def run(self, sink: Sink) -> None:
        """Publish until cancelled."""
        began = self._clock.monotonic()
        first = self._first()
        agenda: list[tuple[float, int]] = []
        for index, series in enumerate(self._series):
            # Spread by the golden ratio, so that series with equal intervals are not due together.
            agenda.append((began + (index * 0.618 % 1) * self._every(series), index))
        heapq.heapify(agenda)
        await self._publish(self._series, first, sink)
        while True:
            now = self._clock.monotonic()
            due: list[SimulatedSeries] = []
            while agenda[0][0] <= now:
                when, index = agenda[0]
                series = self._series[index]
                due.append(series)
                # After a suspension of the machine, a series is published once, not once per missed interval.
                heapq.heapreplace(agenda, (max(when + self._every(series), now), index))
            if due:
                await self._publish(due, first + (now - began) * self._config.time_scale, sink)
            await self._sleep(TICK_S)

    async def try_once(self, sink: Sink) -> None:
        """Publish all series once."""
        await self._publish(self._series, self._first(), sink)

    def _first(self) -> float:
        """Return the simulated time at the start, in Unix seconds."""
        start = self._config.start
        if start is None:
            return self._clock.wall_ms() / 1000
        return (start if start.tzinfo else start.replace(tzinfo=UTC)).timestamp()

    def _every(self, series: SimulatedSeries) -> float:
        return max(TICK_S, series.every_s / self._config.pace)

    async def _publish(self, due: Sequence[SimulatedSeries], time: float, sink: Sink) -> None:
        try:
            for start in range(0, len(due), WRITTEN_TOGETHER):
                group = []
                for series in due[start : start + WRITTEN_TOGETHER]:
                    group.append(series.at(time))
                    await asyncio.sleep(0)  # the first snapshots of a day take a while: let other tasks run in between
                await sink(group, source=self.name)
        except DataError as error:
            self.health.failed(str(error), fault=fault_of(error))
        else:
            self.health.succeeded()
