"""What developers of other fields and of the energy market bring, and once could not store."""

import itertools
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple


class Payload(NamedTuple):
    """A payload, and what the page shows of it."""

    value: Any
    """JSON; of a series unit, resolution and points."""
    shown: str
    """The facts of a series; a row of the tree of a document."""


def _series(unit: str, resolution: str, times: Iterable[datetime]) -> dict[str, Any]:
    """Return a series with a gap at its second point."""
    values = (None if index == 1 else round(50.14 - index * 0.37, 2) for index in itertools.count())
    points = [
        {"time": time.isoformat().replace("+00:00", "Z"), "value": value}
        for time, value in zip(times, values, strict=False)
    ]
    return {"unit": unit, "resolution": resolution, "points": points}


def _every(step: timedelta, count: int) -> Iterable[datetime]:
    return (datetime(2026, 1, 1, tzinfo=UTC) + step * index for index in range(count))


_MONTHS: Final = [datetime(year, month, 1, tzinfo=UTC) for year in (2025, 2026) for month in range(1, 13)]

DOCUMENTS: Final = {
    "order-book": Payload(
        {
            "symbol": "BTC-EUR",
            "bids": [[67012.5, 0.25], [67012, 1.5e-7]],
            "asks": [[67013.1, 3]],
            "sequence": 2**53 - 1,
        },
        'symbol: "BTC-EUR"',
    ),
    "match": Payload(
        {"home": 2, "away": 0, "events": [{"minute": 45, "by": "Müller ⚽", "penalty": None}], "status": "half-time"},
        "home: 2",
    ),
    "vehicle": Payload(
        {"id": "bus 7", "lat": 37.98381, "lon": -23.727539, "speed": 0, "at": "2026-01-01T00:00:07.250Z"},
        "lat: 37.98381",
    ),
    "presence": Payload([{"user": "ada", "away": False}, {"user": "bob", "away": True}, {}, []], 'user: "ada"'),
    "flags": Payload({"dark-mode": True, "beta": False, "variant": "B", "": ""}, "dark-mode: true"),
}

SERIES: Final = {
    "day-by-minute": Payload(
        _series("MW", "PT1M", _every(timedelta(minutes=1), 1440)), "MW · every 1 min · 1440 values"
    ),
    "month-by-quarter-hour": Payload(
        _series("MWh", "PT15M", _every(timedelta(minutes=15), 2976)), "MWh · every 15 min · 2976 values"
    ),
    "year-by-hour": Payload(
        _series("EUR/MWh", "PT1H", _every(timedelta(hours=1), 8760)), "€/MWh · hourly · 8760 values"
    ),
    "pounds": Payload(
        _series("GBP/MWh", "PT30M", _every(timedelta(minutes=30), 48)), "GBP/MWh · every 30 min · 48 values"
    ),
    "by-second": Payload(_series("Hz", "PT1S", _every(timedelta(seconds=1), 3600)), "Hz · every 1 s · 3600 values"),
    "by-month": Payload(_series("GWh", "P1M", _MONTHS), "GWh · monthly · 24 values"),
}


def csv(series: Any) -> str:
    """Return a series as a file of CSV, without unit and resolution."""
    rows = (f"{point['time']},{'' if point['value'] is None else point['value']}" for point in series["points"])
    return "\n".join(["time,value", *rows, ""])
