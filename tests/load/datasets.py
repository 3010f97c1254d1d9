"""Datasets that say to which change they belong: their values carry a number that no other change of the run has."""

from functools import lru_cache
from typing import Any

import orjson

POINTS = 4
UNKNOWN = -1
"""The stamp of what is no dataset of this harness, or of another endpoint or version than the update with it."""


def dataset(endpoint: str, stamp: int, points: int = POINTS) -> dict[str, Any]:
    """Return a dataset whose values all have ``stamp``, a positive whole number, before the decimal point."""
    values = [
        {"time": f"2026-01-{1 + hour // 24:02}T{hour % 24:02}:00:00Z", "value": stamp + hour % 10 / 10}
        for hour in range(points)
    ]
    return {"endpoint": endpoint, "unit": "MW", "resolution": "PT1H", "points": values}


# Every client with the same endpoint gets the same bytes: they are parsed once.
@lru_cache(maxsize=1024)
def stamp_of(body: bytes, endpoint: bytes, version: int) -> int:
    """Return the stamp of a dataset as ``GET`` and updates have it; :data:`UNKNOWN` if it is not of this version."""
    try:
        found = orjson.loads(body)
        stamps = {int(point["value"]) for point in found["points"]}
        belongs = (found["endpoint"], found["version"]) == (endpoint.decode(), version) and len(stamps) == 1
    except (LookupError, TypeError, ValueError):
        return UNKNOWN
    return stamps.pop() if belongs else UNKNOWN
