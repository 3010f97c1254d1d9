"""Times and resolutions of points: UTC instants in whole seconds, their grid, and local times of a time zone."""

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from importlib.resources import files
from typing import Final, NamedTuple
from zoneinfo import ZoneInfo

DAY_S: Final = 86_400
# Years in which the canonical text of an instant has a fixed length.
_TIME: Final = re.compile(
    r"(?:19[7-9]\d|2[01]\d\d)-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:\.0{1,9})?)?(?P<offset>[Zz]|[+-]\d\d:?\d\d)?", re.ASCII
)
_DURATION: Final = re.compile(r"PT(?:([1-9]\d{0,3})M|([1-9]\d?)H)|P1D", re.ASCII)


class Instant(NamedTuple):
    """A point in time: Unix seconds and its canonical text, ``2026-01-01T00:00:00Z``."""

    seconds: int
    text: str


class Resolution(NamedTuple):
    """The distance between points: seconds and canonical text."""

    seconds: int
    text: str


def iso_seconds(seconds: int) -> str:
    """Return the canonical text of an instant in Unix seconds."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


# Datasets share their times: mostly a few days at a few resolutions.
@lru_cache(maxsize=8192)
def parse_instant(text: str) -> Instant:
    """Parse an ISO 8601 time with ``Z`` or an offset, in whole seconds; a blank may stand for the T.

    Raises:
        ValueError: another form, no offset, a fraction of a second, or a nonexistent time.
    """
    match = _TIME.fullmatch(text)
    if match is None or match["offset"] is None:
        missing = "" if match is None else "; a local time needs its zone, as with `diem put --zone Europe/Athens`"
        raise ValueError(f"{text[:40]!r} is not a time like 2026-01-01T00:00:00Z or 2026-01-01T01:00:00+01:00{missing}")
    return _instant(int(_parse(text).timestamp()))


def _parse(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text.upper())
    except ValueError as error:
        raise ValueError(f"{text[:40]!r} is not a time: {error}") from None


@lru_cache(maxsize=256)
def parse_resolution(text: str) -> Resolution:
    """Parse a resolution: ``PT<n>M`` or ``PT<n>H`` that divides the day, or ``P1D``; PT60M becomes PT1H.

    Raises:
        ValueError: ``text`` is something else.
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


_KEY: Final = re.compile(r"[A-Za-z0-9_+-]{1,32}(?:/[A-Za-z0-9_+-]{1,32}){0,2}", re.ASCII)
_END: Final = int(datetime(2200, 1, 1, tzinfo=UTC).timestamp())


@lru_cache(maxsize=64)
def zone(key: str) -> ZoneInfo:
    """Return a zone of the IANA database from the package tzdata: the machine's may be old or missing.

    Raises:
        ValueError: there is no such zone.
    """
    if _KEY.fullmatch(key):
        file = files("tzdata") / "zoneinfo" / key
        if file.is_file():
            with file.open("rb") as content:
                return ZoneInfo.from_file(content, key=key)
    raise ValueError(f"{key[:40]!r} is not a time zone like Europe/Athens or UTC")


class LocalClock:
    """Parses the times of a source: those without an offset are local times of its zone."""

    def __init__(self, key: str = "UTC") -> None:
        self._zone = zone(key)

    def instant(self, text: str, *, after: int, grid: int) -> Instant:
        """Parse one time of a series whose rows are in order.

        In the hour repeated in autumn, the first occurrence is summer time and the second standard time; the previous
        row and the grid decide between them. On a grid of days, midnight is the beginning of its day, also where clocks
        repeat or skip it.

        Args:
            text: ``2026-10-25T03:00``, with or without seconds, ``Z`` or an offset; a blank may stand for the T.
            after: the previous row's instant in Unix seconds.
            grid: the distance between points in seconds.

        Raises:
            ValueError: ``text`` is no time, or a local time skipped by the zone's clocks.
        """
        match = _TIME.fullmatch(text)
        if match is None:
            raise ValueError(f"{text[:40]!r} is not a time like 2026-01-01T00:00:00Z or, local, 2026-01-01T00:00")
        return self._local(_parse(text), after, grid) if match["offset"] is None else parse_instant(text)

    def days(self, step: Resolution) -> "LocalDays | None":
        """Return the check of a daily series; None if the grid of the resolution applies, as in UTC."""
        return LocalDays(self._zone) if step.seconds == DAY_S and self._zone.key != "UTC" else None

    def _local(self, time: datetime, after: int, grid: int) -> Instant:
        first, second = (_seconds(time.replace(tzinfo=self._zone, fold=fold)) for fold in (0, 1))
        if first > second:
            # PEP 495: fold 0 is a later instant than fold 1 only where clocks are put forward.
            if grid == DAY_S and _begins_a_day(first, self._zone, time):
                return _instant(first)
            raise ValueError(f"{time:%Y-%m-%dT%H:%M} does not exist in {self._zone.key}: the clocks were put forward")
        if first != second and grid != DAY_S and (first <= after or first % grid) and second % grid == 0:
            return _instant(second)
        return _instant(first)


class LocalDays:
    """Checks that all points of one ``P1D`` series begin days of a zone, or all begin days of UTC.

    A day begins when the clocks first show its date, and has 23 or 25 hours when they change.
    """

    def __init__(self, zone_: ZoneInfo) -> None:
        self._zone = zone_
        self._kinds = [zone_.key, "UTC"]

    def check(self, instant: Instant) -> None:
        """Check the next point; raises ValueError unless it begins a day of the same kind as the points before it."""
        kinds = [kind for kind in self._kinds if self._begins(instant.seconds, kind)]
        if not kinds:
            raise ValueError(f"{instant.text} is not the start of a day in {' or '.join(self._kinds)}")
        self._kinds = kinds

    def _begins(self, seconds: int, kind: str) -> bool:
        return seconds % DAY_S == 0 if kind == "UTC" else _begins_a_day(seconds, self._zone)


def _begins_a_day(seconds: int, zone_: ZoneInfo, of: datetime | None = None) -> bool:
    """Return whether a zone's clocks first show a date at this instant: that of the time ``of``, if given."""
    shown = datetime.fromtimestamp(seconds, zone_)
    before = (shown.astimezone(UTC) - timedelta(seconds=1)).astimezone(zone_)
    first = before.date() < shown.date() and not shown.fold
    return first and (of is None or of.date() == shown.date())


def _seconds(time: datetime) -> int:
    return int(time.astimezone(UTC).timestamp())


def _instant(seconds: int) -> Instant:
    if not 0 <= seconds < _END:
        raise ValueError(f"{iso_seconds(seconds)} is not within the years 1970 to 2199")
    return Instant(seconds, iso_seconds(seconds))
