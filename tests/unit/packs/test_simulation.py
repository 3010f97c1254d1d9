"""The simulated market: reproducible, coherent and plausible."""

import asyncio
import itertools
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from diem.errors import ConfigurationError
from diem.process.clock import ManualClock
from diem.protocol import endpoints
from packs.energy import DEFAULT_CONFIG, Simulation
from packs.energy.model import BORDERS, ZONES, Market, MarketSnapshot, noise
from packs.energy.simulation import MarketSeries, SimulationConfig
from services.data.errors import StoreUnavailable
from services.data.kinds import SERIES, Representation
from services.data.kinds.kind import envelope
from services.data.kinds.series.quantities import conversion
from services.data.kinds.series.units import Conversion
from services.data.limits import InlineLimits
from services.data.sources.config import load
from services.data.store import StoredVersion

JUNE = datetime(2026, 6, 16, tzinfo=UTC).timestamp()
JANUARY = datetime(2026, 1, 14, tzinfo=UTC).timestamp()
CLOCK_BACK = datetime(2026, 10, 24, tzinfo=UTC).timestamp()


@pytest.fixture(scope="module")
def day() -> list[MarketSnapshot]:
    market = Market(1)
    return [market.snapshot(JUNE + hour * 3600) for hour in range(24)]


def stored(content: bytes) -> StoredVersion:
    return StoredVersion(10**12, 10**12, 0, SERIES, content)


def test_the_same_seed_and_time_are_the_same_market() -> None:
    assert Market(7).snapshot(JUNE) == Market(7).snapshot(JUNE)
    assert Market(7).snapshot(JUNE) != Market(8).snapshot(JUNE)


def test_load_is_generation_plus_imports(day: list[MarketSnapshot]) -> None:
    for snapshot in day:
        for zone in ZONES:
            imports = sum(f * ((zone == b) - (zone == a)) for (a, b), f in snapshot.flow.items())
            assert sum(snapshot.generation[zone].values()) + imports == pytest.approx(snapshot.load[zone], rel=0.01)


def test_plants_and_borders_stay_within_their_capacity(day: list[MarketSnapshot]) -> None:
    for snapshot in day:
        for name, zone in ZONES.items():
            for kind, power in snapshot.generation[name].items():
                assert -1e-6 <= power <= zone.plants[kind] * 1.01, (name, kind)
        for border, power in snapshot.flow.items():
            assert abs(power) <= BORDERS[border]


def test_power_flows_to_where_it_is_dearer(day: list[MarketSnapshot]) -> None:
    for snapshot in day:
        for (origin, target), power in snapshot.flow.items():
            difference = snapshot.price[target] - snapshot.price[origin]
            if abs(difference) > 5:
                assert power * difference > 0


def test_prices_follow_the_residual_load(day: list[MarketSnapshot]) -> None:
    residual = [s.load["GR"] - s.generation["GR"]["solar"] - s.generation["GR"]["wind"] for s in day]
    prices = [s.price["GR"] for s in day]
    mean_r, mean_p = sum(residual) / 24, sum(prices) / 24
    covariance = sum((r - mean_r) * (p - mean_p) for r, p in zip(residual, prices, strict=True))
    spread = (sum((r - mean_r) ** 2 for r in residual) * sum((p - mean_p) ** 2 for p in prices)) ** 0.5
    assert covariance / spread > 0.7


def test_a_day_has_a_solar_dip_and_an_evening_peak(day: list[MarketSnapshot]) -> None:
    prices = [snapshot.price["GR"] for snapshot in day]
    assert min(range(24), key=prices.__getitem__) in range(6, 14)
    assert max(range(24), key=prices.__getitem__) in range(16, 21)
    assert all(0 < price < 250 for price in prices)
    assert day[0].generation["GR"]["solar"] == 0


def test_summer_has_more_sun_than_winter() -> None:
    market = Market(1)
    assert (
        market.snapshot(JUNE + 10.5 * 3600).generation["GR"]["solar"]
        > 1.5 * market.snapshot(JANUARY + 10.5 * 3600).generation["GR"]["solar"]
    )


def test_noise_is_smooth_and_bounded() -> None:
    values = [noise(1, "x", t, 100) for t in range(2000)]
    assert all(-1 <= value <= 1 for value in values)
    assert max(abs(a - b) for a, b in itertools.pairwise(values)) < 0.05
    assert max(values) - min(values) > 0.5


def test_all_series_are_valid_endpoints_in_their_order_of_magnitude() -> None:
    market = MarketSeries(Market(1), 1)
    assert 180 <= len(market.all) <= 220
    assert all(endpoints.is_valid(series.endpoint) for series in market.all)
    assert len({series.endpoint for series in market.all}) == len(market.all)
    assert 2 < sum(1 / series.every_s for series in market.all) < 6  # updates a second: lively, not frantic


def _points(market: MarketSeries, endpoint: str, time: float) -> list[dict[str, Any]]:
    (series,) = [series for series in market.all if series.endpoint == endpoint]
    points: list[dict[str, Any]] = json.loads(series.at(time).content)["points"]
    return points


@pytest.mark.parametrize(
    ("endpoint", "count"),
    [
        ("/dam/prices/GR", 48),
        ("/load/forecast/GR", 48),
        ("/load/GR", 97),
        ("/imbalance/GR", 97),
        ("/generation/GR/solar", 25),
        ("/flows/GR/BG", 25),
    ],
)
def test_every_series_is_reproducible(endpoint: str, count: int) -> None:
    market, again = MarketSeries(Market(3, ["GR", "BG"]), 3), MarketSeries(Market(3, ["GR", "BG"]), 3)
    time = JUNE + 40_123
    _points(again, endpoint, time - 5000)
    points = _points(market, endpoint, time)
    assert points == _points(again, endpoint, time)
    assert len(points) == count


def test_tomorrows_prices_are_indications_until_they_are_published() -> None:
    market = MarketSeries(Market(1, ["GR", "BG"]), 1)
    morning, later = (_points(market, "/dam/prices/GR", JUNE + hour * 3600) for hour in (9, 11))
    assert morning[:24] == later[:24]
    assert morning[24:] != later[24:]
    noon, evening = (_points(market, "/dam/prices/GR", JUNE + hour * 3600) for hour in (12, 20))
    assert noon == evening


@pytest.mark.parametrize(
    ("day", "hours"),
    [((2026, 6, 16), 48), ((2026, 3, 28), 47), ((2026, 3, 29), 47), ((2026, 10, 24), 49), ((2026, 10, 25), 49)],
)
@pytest.mark.parametrize("endpoint", ["/dam/prices/GR", "/load/forecast/GR"])
def test_days_are_delivery_days_of_the_market_also_when_the_clock_changes(
    endpoint: str, day: tuple[int, int, int], hours: int
) -> None:
    midnight = datetime(*day, tzinfo=ZoneInfo("Europe/Brussels"))
    points = _points(MarketSeries(Market(1, ["GR", "BG"]), 1), endpoint, midnight.timestamp() + 8 * 3600)
    assert len(points) == hours
    assert datetime.fromisoformat(points[0]["time"]) == midnight


def test_the_past_does_not_change_and_the_present_does() -> None:
    market = MarketSeries(Market(1, ["GR", "BG"]), 1)
    now, soon = (_points(market, "/load/GR", JUNE + 40_000 + s) for s in (0, 20))
    assert now[:-1] == soon[:-1]
    assert now[-1]["value"] != soon[-1]["value"]


class Run:
    """Return a simulation on a clock that advances when it sleeps."""

    def __init__(self, seconds: float, **config: Any) -> None:
        self.clock = ManualClock(wall_ms=int(JUNE * 1000))
        self.end = seconds
        self.stored: list[tuple[float, Representation]] = []
        self.refuse: Exception | None = None
        parsed = SimulationConfig.model_validate({"type": "simulation", "zones": ["GR", "BG"], **config})
        self.source = Simulation(parsed, self.clock, sleep=self._sleep)

    async def _sleep(self, seconds: float) -> None:
        self.clock.advance(seconds)
        if self.clock.monotonic() >= self.end:
            raise asyncio.CancelledError

    async def sink(self, datasets: Sequence[Representation], *, source: str) -> None:
        assert source == "market"
        assert len(datasets) <= 50
        if self.refuse:
            raise self.refuse
        self.stored += [(self.clock.monotonic(), dataset) for dataset in datasets]

    async def run(self) -> "Run":
        with pytest.raises(asyncio.CancelledError):
            await self.source.run(self.sink)
        return self


async def test_every_series_is_published_at_start_and_then_at_its_own_interval() -> None:
    run = await Run(30).run()
    first = {dataset.endpoint for time, dataset in run.stored if time == 0}
    assert first == {claim.endpoint for claim in run.source.claims}
    loads = [time for time, dataset in run.stored if dataset.endpoint == "/load/GR" and time > 0]
    assert len(loads) in range(13, 17)
    assert all(dataset.title for _, dataset in run.stored)
    assert run.source.health.status()["ok"]


async def test_simulated_time_has_the_configured_start_and_scale() -> None:
    run = await Run(20, start=datetime(2030, 1, 1, tzinfo=UTC), time_scale=900.0).run()
    loads = [
        json.loads(dataset.content)["points"][-1]["time"] for _, dataset in run.stored if dataset.endpoint == "/load/GR"
    ]
    assert loads[0] == "2030-01-01T00:00:00Z"
    assert loads[-1] in {"2030-01-01T04:15:00Z", "2030-01-01T04:30:00Z", "2030-01-01T04:45:00Z"}


async def test_a_store_that_cannot_commit_does_not_stop_the_simulation() -> None:
    run = Run(5)
    run.refuse = StoreUnavailable("the disk is full")
    await run.run()
    assert run.source.health.error == "the disk is full"
    assert run.source.health.failures > 1


def test_an_unknown_zone_is_one_clear_error() -> None:
    config = SimulationConfig(type="simulation", zones=["GR", "XX"])
    with pytest.raises(ConfigurationError, match="unknown zone 'XX'"):
        Simulation(config, ManualClock())


def test_every_series_has_quantity_unit_and_area() -> None:
    market = MarketSeries(Market(1, ["GR", "BG"]), 1)
    found = {series.endpoint: series.at(JUNE) for series in market.all}
    described = {name: (one.quantity, one.area) for name, one in found.items()}
    assert described["/dam/prices/GR"] == ("price", "GR")
    assert described["/imbalance/BG"] == ("imbalance", "BG")
    assert described["/load/GR"] == ("load", "GR")
    assert described["/load/forecast/GR"] == ("load_forecast", "GR")
    assert described["/generation/GR/solar"] == ("generation", "GR")
    assert described["/flows/BG/GR"] == ("flow", "BG>GR")
    for one in found.values():
        assert conversion(one.unit, one.quantity) == Conversion(one.unit)


def test_every_dataset_of_the_market_is_sent_with_its_update() -> None:
    configured = load(DEFAULT_CONFIG)
    limits = InlineLimits(by_prefix={each.prefix: each.max_bytes for each in configured.inline})
    market = MarketSeries(Market(1), 1).all
    longer = {
        series.endpoint
        # Times first: the series share what is computed for one. The clock that goes back makes the longest day.
        for start, hour in ((JUNE, 13), (JANUARY, 36), (CLOCK_BACK, 13), (CLOCK_BACK, 36))
        for series in market
        if len(envelope(series.endpoint, stored(series.at(start + hour * 3600).content)))
        > limits.limit(series.endpoint)
    }
    assert not longer
