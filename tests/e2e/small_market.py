"""A market of three zones, written by the test: every kind of series that the page has a view for."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import orjson

from tests.support.running import Running

ZONES = ("BG", "GR", "RO")
BORDERS = (("BG", "GR"), ("BG", "RO"))
KINDS = ("gas", "hydro", "solar")
CLOCK = ZoneInfo("Europe/Brussels")

Dataset = dict[str, Any]


def midnight() -> datetime:
    """When today began in the market."""
    return datetime.now(CLOCK).replace(hour=0, minute=0, second=0, microsecond=0)


def series(endpoint: str, values: Sequence[float], *, start: datetime, minutes: int, unit: str = "MW") -> Dataset:
    """A dataset of equal steps."""
    begin = start.astimezone(UTC)
    points = [
        {"time": (begin + timedelta(minutes=minutes * index)).strftime("%Y-%m-%dT%H:%M:%SZ"), "value": value}
        for index, value in enumerate(values)
    ]
    resolution = "PT1H" if minutes == 60 else f"PT{minutes}M"
    return {"endpoint": endpoint, "unit": unit, "resolution": resolution, "points": points}


def prices(zone: str, base: float = 80.0) -> Dataset:
    """Today and tomorrow by the hour: ``base`` plus the number of the hour."""
    today = midnight()
    values = [*_day(today, base), *_day(today + timedelta(days=1), base + 24)]
    return series(f"/dam/prices/{zone}", values, start=today, minutes=60, unit="EUR/MWh")


def _day(midnight: datetime, first: float) -> list[float]:
    """Prices that rise by one an hour. Days of 23 and 25 hours have the same ends and the same mean."""
    hours = round(((midnight + timedelta(days=1)).astimezone(UTC) - midnight.astimezone(UTC)) / timedelta(hours=1))
    half = min(12, hours // 2)
    middle = [first + 11.5] * (hours - 2 * half)
    return [*(first + hour for hour in range(half)), *middle, *(first + hour for hour in range(24 - half, 24))]


def load(zone: str, now: float = 5000.0) -> Dataset:
    """The last day by the quarter; ``now`` is the latest value."""
    values = [4000.0 + quarter for quarter in range(96)] + [now]
    return series(f"/load/{zone}", values, start=_quarter() - timedelta(days=1), minutes=15)


def forecast(zone: str) -> Dataset:
    """Today and tomorrow by the hour, 5,000 MW throughout."""
    return series(f"/load/forecast/{zone}", [5000.0] * 48, start=midnight(), minutes=60)


def imbalance(zone: str, now: float = 90.0) -> Dataset:
    """The last day by the quarter."""
    values = [*[80.0] * 96, now]
    return series(f"/imbalance/{zone}", values, start=_quarter() - timedelta(days=1), minutes=15, unit="EUR/MWh")


def generation(zone: str, kind: str, now: float = 1000.0) -> Dataset:
    """The last day by the hour."""
    return series(f"/generation/{zone}/{kind}", [*[1000.0] * 24, now], start=_hour() - timedelta(days=1), minutes=60)


def flow(origin: str, target: str, now: float) -> Dataset:
    """The last day by the hour, in one direction."""
    return series(f"/flows/{origin}/{target}", [*[0.0] * 24, now], start=_hour() - timedelta(days=1), minutes=60)


def market() -> Iterator[Dataset]:
    """All of it, with values that the tests know."""
    for zone in ZONES:
        yield from (prices(zone), load(zone), forecast(zone), imbalance(zone))
        yield from (generation(zone, kind) for kind in KINDS)
    for origin, target in BORDERS:
        yield from (flow(origin, target, 300.0), flow(target, origin, 0.0))


async def write(system: Running, *datasets: Dataset) -> None:
    """Put datasets in one request; it must succeed."""
    response = await system.http.put(
        f"{system.page}v1/data",
        content=orjson.dumps({"datasets": datasets}),
        headers={"Authorization": f"Bearer {system.write_key}", "Content-Type": "application/json"},
    )
    response.raise_for_status()


def _quarter() -> datetime:
    now = datetime.now(UTC)
    return now.replace(minute=now.minute - now.minute % 15, second=0, microsecond=0)


def _hour() -> datetime:
    return datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
