"""Times and resolutions of points: UTC instants in whole seconds, their grid or calendar, and local times of a zone.

Whole seconds: one text of 20 characters for every instant, which sorts as the instants do, so that a point is found in
canonical bytes without parsing them. What happens more often than that is a stream, not the state of an endpoint.
"""

import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from importlib.resources import files
from typing import Final, NamedTuple
from zoneinfo import ZoneInfo

DAY_S: Final = 86_400
# Years in which the canonical text of an instant has a fixed length.
_TIME: Final = re.compile(
    r"(?:19[7-9]\d|2[01]\d\d)-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:\.0{1,9})?)?(?P<offset>[Zz]|[+-]\d\d:?\d\d)?", re.ASCII
)
_MIDNIGHT: Final = re.compile(r"24:00(?::00(?:\.0+)?)?(?![\d:.])")
"""The end of a day, as ISO 8601 writes it."""
_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_DURATION: Final = re.compile(r"PT(?:([1-9]\d{0,4})S|([1-9]\d{0,3})M|([1-9]\d?)H)", re.ASCII)
IRREGULAR: Final = "irregular"
"""Resolution of a series whose points may be at any second."""
_PERIODS: Final[dict[str, tuple[str, Callable[[date], bool]]]] = {
    "P1D": ("day", lambda _: True),
    "P1W": ("week (a Monday)", lambda day: day.weekday() == 0),
    "P1M": ("month", lambda day: day.day == 1),
    "P3M": ("quarter", lambda day: day.day == 1 and day.month % 3 == 1),
    "P1Y": ("year", lambda day: day.day == 1 and day.month == 1),
}
"""Resolutions of the calendar, with their names and the days on which they begin."""
_ALIASES: Final = {"P7D": "P1W", "P12M": "P1Y"}


class Instant(NamedTuple):
    """A point in time: Unix seconds and its canonical text, ``2026-01-01T00:00:00Z``."""

    seconds: int
    text: str


class Resolution(NamedTuple):
    """The distance between points.

    Attributes:
        seconds: the grid of the times in UTC: 1 for irregular series; a day for those of the calendar, which begin days
        of UTC or of a zone. text: canonical.
    """

    seconds: int
    text: str

    @property
    def is_calendar(self) -> bool:
        """True if points begin days, weeks, months, quarters or years."""
        return self.seconds == DAY_S


def iso_seconds(seconds: int) -> str:
    """Return the canonical text of an instant in Unix seconds."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


# Datasets share their times: mostly a few days at a few resolutions.
@lru_cache(maxsize=8192)
def parse_instant(text: str) -> Instant:
    """Parse an ISO 8601 time with ``Z`` or an offset, in whole seconds; a blank may stand for the T.

    ``24:00`` is the beginning of the next day.

    Raises:
        ValueError: another form, no offset, a fraction of a second, or a nonexistent time.
    """
    match = _TIME.fullmatch(text)
    if match is None or match["offset"] is None:
        missing = "" if match is None else "; a local time needs its zone, as with `diem put --zone Europe/Athens`"
        raise ValueError(f"{text[:40]!r} is not a time like 2026-01-01T00:00:00Z or 2026-01-01T01:00:00+01:00{missing}")
    seconds = int(_parse(text).timestamp())
    # Most texts are canonical; writing them takes longer than all the rest.
    is_canonical = len(text) == 20 and text[10] == "T" and text[19] == "Z" and not text.startswith("24", 11)
    return Instant(seconds, text) if is_canonical else instant_of(seconds)


def _parse(text: str) -> datetime:
    try:
        if _MIDNIGHT.match(text, 11):
            return datetime.fromisoformat(text[:11] + "00" + text[13:].upper()) + timedelta(days=1)
        return datetime.fromisoformat(text.upper())
    except ValueError as error:
        raise ValueError(f"{text[:40]!r} is not a time: {error}") from None


@lru_cache(maxsize=256)
def parse_resolution(text: str) -> Resolution:
    """Parse a resolution in one form: PT3600S and PT60M become PT1H, P7D becomes P1W.

    Valid are ``PT<n>S``, ``PT<n>M`` and ``PT<n>H`` that divide the day, ``P1D``, ``P1W``, ``P1M``, ``P3M``, ``P1Y``,
    and ``irregular``.

    Raises:
        ValueError: ``text`` is something else.
    """
    if text == IRREGULAR:
        return Resolution(1, text)
    text = _ALIASES.get(text, text)
    if text in _PERIODS:
        return Resolution(DAY_S, text)
    match = _DURATION.fullmatch(text)
    if match is None:
        known = f"PT<n>S, PT<n>M, PT<n>H, {', '.join(_PERIODS)} or {IRREGULAR}"
        raise ValueError(f"{text[:20]!r} is not a resolution: {known}")
    seconds, minutes, hours = (int(group or 0) for group in match.groups())
    seconds += minutes * 60 + hours * 3600
    if seconds > DAY_S or DAY_S % seconds:
        raise ValueError(f"the day is not a whole number of {text}")
    return Resolution(seconds, _write(seconds))


def _write(seconds: int) -> str:
    if seconds == DAY_S:
        return "P1D"
    if seconds % 60:
        return f"PT{seconds}S"
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
    """Parses times without an offset as local times of a zone, and dates as the beginning of their day there."""

    def __init__(self, key: str = "UTC") -> None:
        self.zone = zone(key)

    def __reduce__(self) -> tuple[type["LocalClock"], tuple[str]]:
        """Return how to make it again: a zone cannot be pickled."""
        return LocalClock, (self.zone.key,)

    def instant(self, text: str, *, after: int, grid: int) -> Instant:
        """Parse one time of a series whose rows are in order.

        In the hour repeated in autumn, the first occurrence is summer time and the second standard time; the previous
        row and the grid decide between them. On a grid of days, midnight is the beginning of its day, also where clocks
        repeat or skip it.

        Args:
            text: ``2026-10-25T03:00``, with or without seconds, ``Z`` or an offset; a blank may stand for the T. On a
                grid of days ``2026-10-25``, too.
            after: the previous row's instant in Unix seconds.
            grid: the distance between points in seconds.

        Raises:
            ValueError: ``text`` is no time, or a local time skipped by the zone's clocks.
        """
        if grid == DAY_S and _DATE.fullmatch(text):
            text += "T00:00"
        match = _TIME.fullmatch(text)
        if match is None:
            raise ValueError(f"{text[:40]!r} is not a time like 2026-01-01T00:00:00Z or, local, 2026-01-01T00:00")
        return self.resolve(_parse(text), after=after, grid=grid) if match["offset"] is None else parse_instant(text)

    def resolve(self, time: datetime, *, after: int, grid: int) -> Instant:
        """Return the instant of a local time without an offset; arguments and errors as of :meth:`instant`."""
        first, second = (_seconds(time.replace(tzinfo=self.zone, fold=fold)) for fold in (0, 1))
        if first > second:
            # PEP 495: fold 0 is a later instant than fold 1 only where clocks are put forward.
            if grid == DAY_S and _begins_a_day(first, self.zone, time):
                return instant_of(first)
            raise ValueError(f"{time:%Y-%m-%dT%H:%M} does not exist in {self.zone.key}: the clocks were put forward")
        if first != second and grid != DAY_S and (first <= after or first % grid) and second % grid == 0:
            return instant_of(second)
        return instant_of(first)


class TimeReader:
    """Parses the times of one series in order, and checks that they ascend on its grid or calendar.

    All points of a series of the calendar begin days, weeks, months, quarters or years of its zone, or all those of
    UTC. A day begins when the clocks first show its date, and has 23 or 25 hours when they change.

    Args:
        step: the resolution.
        clock: of times without an offset; None: all have one, and dates are in UTC.
        or_utc: whether periods may begin in UTC although the clock is of another zone.
    """

    def __init__(self, step: Resolution, clock: LocalClock | None = None, *, or_utc: bool = True) -> None:
        self._step = step
        self._clock = clock
        self._previous = -1
        self._zones: list[ZoneInfo] = []
        self._grid = step.seconds
        self.plain = step if clock is None and not step.is_calendar else None
        """The resolution, if a time's own text decides about it; None for a calendar or local times."""
        local = clock is not None and clock.zone.key != "UTC"
        if step.is_calendar and (local or step.text != "P1D"):
            # Days of UTC are on a grid, which is cheaper to check.
            own = [clock.zone] if clock is not None and local else []
            self._zones = [*own, zone("UTC")] if or_utc or not own else own
            self._grid = 1

    @property
    def zone(self) -> str:
        """The zone in which the periods of the points so far begin; empty for a series without a calendar."""
        if not self._step.is_calendar:
            return ""
        return self._zones[0].key if self._zones else "UTC"

    def read(self, text: str) -> str:
        """Parse the next time; return its canonical text. Raises ValueError."""
        if self.plain is not None:
            # Most points, in one call.
            instant = parse_instant(text)
            if instant[0] > self._previous and not instant[0] % self._grid:
                self._previous = instant[0]
                return instant[1]
            return self.check(instant)
        if self._clock is not None:
            return self.check(self._clock.instant(text, after=self._previous, grid=self._step.seconds))
        return self.check(parse_instant(text + "T00:00Z" if _DATE.fullmatch(text) else text))

    def check(self, instant: Instant) -> str:
        """Check the next instant; return its text. Raises ValueError."""
        seconds, text = instant
        if seconds <= self._previous:
            fault = "appears twice" if seconds == self._previous else "is earlier than the time before it"
            raise ValueError(f"{text} {fault}")
        if self._zones:
            self._check_calendar(instant)
        elif seconds % self._grid:
            raise ValueError(f"{text} is not on the grid of {self._step.text} (in UTC)")
        self._previous = seconds
        return text

    def _check_calendar(self, instant: Instant) -> None:
        period, begins = _PERIODS[self._step.text]
        zones = [
            each
            for each in self._zones
            if _begins_a_day(instant.seconds, each) and begins(datetime.fromtimestamp(instant.seconds, each).date())
        ]
        if not zones:
            names = " or ".join(each.key for each in self._zones)
            raise ValueError(f"{instant.text} is not the start of a {period} in {names}")
        self._zones = zones


def _begins_a_day(seconds: int, zone_: ZoneInfo, of: datetime | None = None) -> bool:
    """Return whether a zone's clocks first show a date at this instant: that of the time ``of``, if given."""
    shown = datetime.fromtimestamp(seconds, zone_)
    before = (shown.astimezone(UTC) - timedelta(seconds=1)).astimezone(zone_)
    first = before.date() < shown.date() and not shown.fold
    return first and (of is None or of.date() == shown.date())


def _seconds(time: datetime) -> int:
    return int(time.astimezone(UTC).timestamp())


def instant_of(seconds: int) -> Instant:
    """Return the instant of Unix seconds. Raises ValueError outside of the years 1970 to 2199."""
    if not 0 <= seconds < _END:
        raise ValueError(f"{iso_seconds(seconds)} is not within the years 1970 to 2199")
    return Instant(seconds, iso_seconds(seconds))
