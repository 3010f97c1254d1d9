"""Valid datasets with their canonical bytes, and declarations to complete a body."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Final, NamedTuple

import orjson

from diem.protocol.media_types import SERIES
from services.data.errors import InvalidDataset
from services.data.kinds.kind import MAX_TITLE
from services.data.kinds.representation import Representation, digest_of, label_text
from services.data.kinds.series.quantities import check_labels, conversion
from services.data.kinds.series.times import (
    Instant,
    LocalClock,
    Resolution,
    TimeReader,
    iso_seconds,
    parse_resolution,
)
from services.data.kinds.series.units import Conversion, unit

WRITTEN_TOGETHER: Final = 50
"""Maximum number of datasets that a source writes in one transaction."""
POINTS: Final = b',"points":['
"""What precedes the points in canonical content."""
END: Final = b"]}"
"""What follows them."""
MAX_MAGNITUDE: Final = 1e15
"""Larger values are considered mistakes; below, every whole number is exact in JSON."""

Value = int | float | None


class Point(NamedTuple):
    """A value at an instant (Unix seconds); None is a gap."""

    seconds: int
    value: Value


@dataclass(slots=True)
class Dataset(Representation):
    """A representation of the kind series. Title, area and quantity describe it and are not part of the content."""

    @property
    def unit(self) -> str:
        """The unit of its values."""
        return self.label("unit")

    @property
    def resolution(self) -> str:
        """The distance between points."""
        return self.label("resolution")

    @property
    def area(self) -> str:
        """The area; empty: unknown."""
        return self.label("area")

    @property
    def quantity(self) -> str:
        """The quantity; empty: unknown."""
        return self.label("quantity")

    def described(self, *, title: str = "", area: str = "", quantity: str = "") -> "Dataset":
        """Return the dataset with another description."""
        labels = series_labels(self.unit, self.resolution, self.label("zone"), area, quantity)
        return replace(self, title=title, labels=labels)


@lru_cache(maxsize=4096)
def series_labels(unit_: str, resolution: str, zone: str = "", area: str = "", quantity: str = "") -> str:
    """Return the labels of a series; the zone is that of the days of its calendar."""
    labels = {"unit": unit_, "resolution": resolution, "zone": zone, "area": area, "quantity": quantity}
    return label_text(labels)


def clock_of(zone: str) -> LocalClock | None:
    """Return the clock of a zone that a request names; None for an empty name. Raises InvalidDataset."""
    try:
        return LocalClock(zone) if zone else None
    except ValueError as error:
        raise InvalidDataset(str(error), "zone") from None


def number(value: object) -> int | float:
    """Return a finite number in canonical form: whole numbers as ``int``.

    Raises:
        ValueError: ``value`` is no number, not finite, or not below 1e15.
    """
    if type(value) is float:
        if not math.isfinite(value) or abs(value) >= MAX_MAGNITUDE:
            raise ValueError(f"{value} is out of range")
        return int(value) if value.is_integer() else value
    if type(value) is int:
        if abs(value) >= MAX_MAGNITUDE:
            raise ValueError("the number is out of range")
        return value
    raise ValueError("a value is a number, or null for a gap")


def seal(endpoint: str, unit_: str, resolution: Resolution, points: list[dict[str, Any]], zone: str = "") -> Dataset:
    """Make a dataset of checked points: ``{"time": <canonical text>, "value": <number() or None>}``.

    ``zone``: that of the :class:`TimeReader` of the times.
    """
    content = orjson.dumps({"unit": unit_, "resolution": resolution.text, "points": points})
    return seal_content(endpoint, content, unit_, resolution, zone)


def seal_content(endpoint: str, content: bytes, unit_: str, resolution: Resolution, zone: str) -> Dataset:
    """Make a dataset of canonical bytes."""
    return Dataset(endpoint, SERIES, content, digest_of(content), labels=series_labels(unit_, resolution.text, zone))


def build(
    endpoint: str,
    unit_: str,
    resolution: str,
    points: Iterable[Point],
    title: str = "",
    *,
    area: str = "",
    quantity: str = "",
    zone: str = "UTC",
) -> Dataset:
    """Make a dataset from values in memory, for sources, under the same rules as for bodies.

    ``zone``: where days begin, for resolutions of the calendar.

    Raises:
        InvalidDataset: the points are not on the grid of the resolution, do not ascend, or are no numbers.
    """
    try:
        step = parse_resolution(resolution)
        unit_ = unit(unit_)
        times = TimeReader(step, LocalClock(zone))
    except ValueError as error:
        raise InvalidDataset(str(error), endpoint) from None
    checked: list[dict[str, Any]] = []
    for seconds, value in points:
        try:
            time = times.check(Instant(seconds, iso_seconds(seconds)))
            checked.append({"time": time, "value": None if value is None else number(value)})
        except ValueError as error:
            raise InvalidDataset(str(error), endpoint) from None
    if not checked:
        raise InvalidDataset("there are no points", endpoint)
    return seal(endpoint, unit_, step, checked, times.zone).described(title=title, area=area, quantity=quantity)


def check_description(unit_: str, *, title: str, area: str, quantity: str) -> None:
    """Check the catalogue's description of an endpoint with this unit; empty texts are unknown.

    Raises:
        ValueError: one of them is not valid.
    """
    if len(title) > MAX_TITLE:
        raise ValueError(f"a title has at most {MAX_TITLE} characters")
    check_labels(unit_, area=area, quantity=quantity)


class EndpointDeclaration(NamedTuple):
    """Declaration of one endpoint; the data may state unit and resolution instead."""

    unit: str | None = None
    resolution: str | None = None
    title: str = ""
    area: str = ""
    quantity: str = ""


@dataclass(frozen=True, slots=True)
class Declared:
    """Declarations that complete a body: its endpoint, units, resolutions, and the clock of its times.

    Attributes:
        endpoint: the only endpoint; None when the body names its endpoints. common: declaration of every endpoint not
        in ``own``. own: declarations of single endpoints. clock: the source's clock; None for bodies with offsets in
        all times and without unit conversion. converts: whether units are converted if there is a clock.
    """

    endpoint: str | None
    common: EndpointDeclaration = field(default_factory=EndpointDeclaration)
    own: Mapping[str, EndpointDeclaration] = field(default_factory=dict)
    clock: LocalClock | None = None
    converts: bool = True

    def of(self, endpoint: str) -> EndpointDeclaration:
        """Return the declaration of an endpoint."""
        return self.own.get(endpoint, self.common)

    def times(self, step: Resolution) -> TimeReader:
        """Return the reader of the times of one series."""
        return TimeReader(step, self.clock)

    def conversion(self, unit_: str, quantity: str) -> Conversion:
        """Return the conversion from ``unit_`` to the stored unit; raises ValueError."""
        return Conversion(unit(unit_)) if self.clock is None or not self.converts else conversion(unit_, quantity)

    def seal(self, endpoint: str, unit_: str, step: Resolution, points: list[dict[str, Any]], zone: str) -> Dataset:
        """Make a dataset of points checked and converted to ``unit_``; arguments as of :func:`seal`."""
        known = self.of(endpoint)
        sealed = seal(endpoint, unit_, step, points, zone)
        return sealed.described(title=known.title, area=known.area, quantity=known.quantity)
