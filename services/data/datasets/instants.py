"""Times and resolutions of points: UTC instants in whole seconds, and the grid of ISO 8601 durations they lie on."""

import re
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final, NamedTuple

DAY_S: Final = 86_400
# The years within which an instant has the same length everywhere that DIEM writes it.
_INSTANT: Final = re.compile(r"(?:19[7-9]\d|2[01]\d\d)-\d\d-\d\dT\d\d:\d\d(:\d\d(?:\.0{1,9})?)?(?:Z|\+00:00)", re.ASCII)
_DURATION: Final = re.compile(r"PT(?:([1-9]\d{0,3})M|([1-9]\d?)H)|P1D", re.ASCII)


class Instant(NamedTuple):
    """A point in time: Unix seconds and the one way in which it is written, ``2026-01-01T00:00:00Z``."""

    seconds: int
    text: str


class Resolution(NamedTuple):
    """The distance of two points: its seconds and the one way in which it is written."""

    seconds: int
    text: str


def iso_seconds(seconds: int) -> str:
    """Unix seconds as the text of an instant."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


# Datasets share their times: a few days at a few resolutions are most of what is ever parsed.
@lru_cache(maxsize=8192)
def parse_instant(text: str) -> Instant:
    """Read an ISO 8601 time in UTC, to the whole second.

    Raises:
        ValueError: it is another form, another time zone, a fraction of a second or no such time; says which.
    """
    if _INSTANT.fullmatch(text) is None:
        raise ValueError(f"{text[:40]!r} is not a time in UTC like 2026-01-01T00:00:00Z")
    try:
        seconds = int(datetime.fromisoformat(text).timestamp())
    except ValueError as error:
        raise ValueError(f"{text[:40]!r} is no time: {error}") from None
    return Instant(seconds, iso_seconds(seconds))


@lru_cache(maxsize=256)
def parse_resolution(text: str) -> Resolution:
    """Read a resolution: ``PT<n>M`` or ``PT<n>H`` that divides the day, or ``P1D``; PT60M is written PT1H.

    Raises:
        ValueError: it is something else.
    """
    match = _DURATION.fullmatch(text)
    if match is None:
        raise ValueError(f"{text[:20]!r} is not a resolution: PT<n>M, PT<n>H or P1D")
    minutes, hours = match.groups()
    seconds = int(minutes) * 60 if minutes else int(hours) * 3600 if hours else DAY_S
    if seconds > DAY_S or DAY_S % seconds:
        raise ValueError(f"the day is not a whole number of {text}")
    return Resolution(seconds, _write(seconds))


def _write(seconds: int) -> str:
    if seconds == DAY_S:
        return "P1D"
    return f"PT{seconds // 3600}H" if seconds % 3600 == 0 else f"PT{seconds // 60}M"
