"""The datasets of the market: which endpoints there are, and what each of them says at a given simulated time."""

from collections import OrderedDict
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final, NamedTuple

from services.data.datasets import Dataset, Point, build
from services.data.sources.market.model import Market, Snapshot
from services.data.sources.market.noise import noise

QUARTER_S: Final = 900
HOUR_S: Final = 3600
DAY_S: Final = 86_400
PUBLICATION_S: Final = 12 * HOUR_S
"""The time of day (UTC) at which tomorrow's prices are final; until then they are indications."""
_KEPT: Final = 256


Points = Callable[[float], list[Point]]


class Series(NamedTuple):
    """One endpoint: its name, its title, how often it is updated (seconds), and what it says at a time."""

    endpoint: str
    title: str
    every_s: float
    at: Callable[[float], Dataset]


class Book:
    """All series of a market. Snapshots of past quarters are kept (at most 256), so that a series costs little."""

    def __init__(self, market: Market, seed: int) -> None:
        self._market = market
        self._seed = seed
        self._kept: OrderedDict[int, Snapshot] = OrderedDict()
        self._now: tuple[int, Snapshot] | None = None
        self.series = list(self._all())

    def _all(self) -> Iterator[Series]:
        for name, zone in self._market.zones.items():
            own = name == "GR"
            land = zone.country
            prices = partial(self._prices, name)
            yield _euro(f"/dam/prices/{name}", f"Day-ahead prices {land}", 20 if own else 60, "PT1H", prices)
            imbalance = partial(self._imbalance, name)
            yield _euro(f"/imbalance/{name}", f"Imbalance price {land}", 15 if own else 60, "PT15M", imbalance)
            load = partial(self._quarters, _load(name))
            yield _power(f"/load/{name}", f"Load {land}", 2 if own else 12, "PT15M", load)
            forecast = partial(self._forecast, name)
            yield _power(f"/load/forecast/{name}", f"Load forecast {land}", 60 if own else 180, "PT1H", forecast)
            for kind in zone.plants:
                running = partial(self._hours, _generation(name, kind))
                title = f"Generation {land}, {kind}"
                yield _power(f"/generation/{name}/{kind}", title, 15 if own else 90, "PT1H", running)
        for border in self._market.borders:
            for (start, end), sign in ((border, 1), (border[::-1], -1)):
                flow = partial(self._hours, _flow(border, sign))
                yield _power(f"/flows/{start}/{end}", f"Flow {start} to {end}", 90, "PT1H", flow)

    # What the series say

    def _prices(self, name: str, time: float) -> list[Point]:
        """Today and tomorrow by the hour."""
        today = int(time // DAY_S) * DAY_S
        published = time - today >= PUBLICATION_S
        points = []
        for hour in range(48):
            start = today + hour * HOUR_S
            price = self._past(start).price[name] + 2.5 * noise(self._seed, f"auction/{name}", start, HOUR_S)
            if hour >= 24 and not published:
                price += (4 + 0.05 * abs(price)) * noise(self._seed, f"indication/{name}/{hour}", time, 240)
            points.append(Point(start, round(price, 2)))
        return points

    def _forecast(self, name: str, time: float) -> list[Point]:
        """Today and tomorrow by the hour; the error grows with the distance."""
        today = int(time // DAY_S) * DAY_S
        points = []
        for hour in range(48):
            start = today + hour * HOUR_S
            ahead = max(0.0, min(1.0, (start - time) / DAY_S))
            error = 0.008 + 0.02 * ahead
            revised = error * noise(self._seed, f"forecast/{name}/{hour}", time if ahead else start, 1800)
            points.append(Point(start, round(self._past(start).load[name] * (1 + revised))))
        return points

    def _imbalance(self, name: str, time: float) -> list[Point]:
        """The last day by the quarter: around the market's price, sometimes far from it."""

        def value(snapshot: Snapshot, start: float) -> float:
            surprise = noise(self._seed, f"imbalance/{name}", start, QUARTER_S)
            return round(snapshot.price[name] + 18 * surprise + 90 * surprise**5, 2)

        last = int(time // QUARTER_S) * QUARTER_S
        starts = range(last - 96 * QUARTER_S, last, QUARTER_S)
        return [*(Point(at, value(self._past(at), at)) for at in starts), Point(last, value(self._present(time), time))]

    def _quarters(self, value: Callable[[Snapshot], float], time: float) -> list[Point]:
        """The last day by the quarter; the last point is what is measured now."""
        return self._measured(value, time, QUARTER_S)

    def _hours(self, value: Callable[[Snapshot], float], time: float) -> list[Point]:
        """The last day by the hour; the last point is what is measured now."""
        return self._measured(value, time, HOUR_S)

    def _measured(self, value: Callable[[Snapshot], float], time: float, step_s: int) -> list[Point]:
        last = int(time // step_s) * step_s
        points = [Point(at, round(value(self._past(at)))) for at in range(last - DAY_S, last, step_s)]
        return [*points, Point(last, round(value(self._present(time))))]

    # Snapshots

    def _present(self, time: float) -> Snapshot:
        second = int(time)
        if self._now is None or self._now[0] != second:
            self._now = (second, self._market.snapshot(second))
        return self._now[1]

    def _past(self, start: int) -> Snapshot:
        found = self._kept.get(start)
        if found is None:
            # The middle of the quarter stands for all of it.
            found = self._kept[start] = self._market.snapshot(start + QUARTER_S / 2)
            if len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        else:
            self._kept.move_to_end(start)
        return found


def _euro(endpoint: str, title: str, every_s: float, resolution: str, points: Points) -> Series:
    return Series(endpoint, title, every_s, lambda time: build(endpoint, "EUR/MWh", resolution, points(time), title))


def _power(endpoint: str, title: str, every_s: float, resolution: str, points: Points) -> Series:
    return Series(endpoint, title, every_s, lambda time: build(endpoint, "MW", resolution, points(time), title))


def _load(name: str) -> Callable[[Snapshot], float]:
    return lambda snapshot: snapshot.load[name]


def _generation(name: str, kind: str) -> Callable[[Snapshot], float]:
    return lambda snapshot: snapshot.generation[name][kind]


def _flow(border: tuple[str, str], sign: int) -> Callable[[Snapshot], float]:
    return lambda snapshot: max(0.0, sign * snapshot.flow[border])
