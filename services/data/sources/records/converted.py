"""The changes of several records, in order: points of a series that come together are one change. Pure."""

from typing import NamedTuple, Protocol

from services.data.kinds.series.form import Point
from services.data.sources.records.converter import SeriesPoint
from services.data.sources.records.record import Record
from services.data.store import Change, Patch


class Converter(Protocol):
    """Makes changes of records, as ``RecordConverter``."""

    def convert(self, record: Record, /) -> Change | SeriesPoint | None:
        """Return the change that a record makes; None if it makes none; raises DataError."""
        ...

    def series_change(self, endpoint: str, points: dict[int, Point], /) -> Patch:
        """Return the insertion of points, by their seconds."""
        ...


class ConvertedChange(NamedTuple):
    """A change, and the index of the last record in it."""

    change: Change
    record: int


class ConvertedChanges:
    """Collects the changes of records that are stored together."""

    def __init__(self, converter: Converter) -> None:
        self._converter = converter
        self._made: list[ConvertedChange] = []
        self._points: dict[str, tuple[int, dict[int, Point]]] = {}
        """By series: the index of the last record, and the points by their seconds."""

    def add(self, index: int, change: Change | SeriesPoint | None) -> None:
        """Add the change that the record at an index makes; None: it makes none."""
        if isinstance(change, SeriesPoint):
            points = self._points.get(change.endpoint, (0, {}))[1]
            points[change.point.seconds] = change.point
            self._points[change.endpoint] = index, points
        elif change is not None:
            if change.endpoint in self._points:
                self._insert(change.endpoint)
            self._made.append(ConvertedChange(change, index))

    def all(self) -> list[ConvertedChange]:
        """Return all changes; none is added afterwards."""
        for endpoint in [*self._points]:
            self._insert(endpoint)
        return self._made

    def _insert(self, endpoint: str) -> None:
        last, points = self._points.pop(endpoint)
        self._made.append(ConvertedChange(self._converter.series_change(endpoint, points), last))
