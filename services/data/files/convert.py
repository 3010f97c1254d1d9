"""Converts files to representations by a mapping: rows to points of series, or to documents."""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import chain
from operator import itemgetter
from typing import Any, Final, NamedTuple, Protocol, TypeVar

import orjson

from diem.errors import install_command
from diem.protocol import endpoints
from diem.protocol.media_types import DOCUMENT
from services.data.errors import InvalidDataset, MissingPackage, NoRows
from services.data.files.columns import Columns
from services.data.files.delimited import read_delimited
from services.data.files.grid import DEFAULT_LIMITS, Cell, FileLimits, Grid, InputFile, cell_text, place_of
from services.data.files.instants import CellTimes, Time
from services.data.files.mapping import Mapping
from services.data.files.names import COLUMN, FILE, fields_of, fill, split_heading
from services.data.files.numbers import BadCell, NumberReader
from services.data.files.series_builder import SeriesBuilder
from services.data.files.target import FileTarget
from services.data.files.unpack import Member, text_of, unpack
from services.data.kinds import KINDS, Representation
from services.data.kinds.kind import MAX_TITLE, Body
from services.data.kinds.series import parse_resolution
from services.data.kinds.series.form import Value, number

Given = TypeVar("Given")
Made = TypeVar("Made")
_NUMBER: Final = re.compile(r"\d+", re.ASCII)


class _Rows(Protocol):
    """Collects the rows of all grids of a file."""

    def add(self, grid: Grid, file: str) -> None: ...

    def finish(self) -> list[Representation]: ...


def convert(
    file: InputFile, mapping: Mapping, target: FileTarget, limits: FileLimits = DEFAULT_LIMITS
) -> list[Representation]:
    """Return the contents of a file's endpoints, in the order in which they appear.

    Raises:
        MalformedBody, InvalidDataset, DatasetTooLarge: the file is refused as a whole; the error names the place, and
        the key of the mapping that helps.
    """
    names = _Names(mapping, target, limits)
    rows: _Rows = _Documents(mapping, names) if mapping.kind == "document" else _Series(mapping, target, names)
    for member in unpack(file, mapping, limits):
        rows.add(read_grid(member, mapping, limits), member.name)
    found = rows.finish()
    if not found:
        raise NoRows("there are no rows (keys: header, where, rows)")
    return found


def read_grid(member: Member, mapping: Mapping, limits: FileLimits) -> Grid:
    """Read a member, by a library that is imported only where it is needed. Raises DataError."""
    match member.format:
        case "csv":
            return read_delimited(text_of(member, mapping), mapping, limits, member.label)
        case "json" | "xml":
            from services.data.files.trees import read_json, read_xml  # noqa: PLC0415

            read = read_json if member.format == "json" else read_xml
        case "parquet":
            try:
                from services.data.files.columnar import read_parquet as read  # noqa: PLC0415
            except ImportError:
                raise MissingPackage("reading Parquet needs the package pyarrow, which is not installed") from None
        case "xlsx":
            try:
                from services.data.files.workbook import read_workbook as read  # noqa: PLC0415
            except ImportError:
                raise MissingPackage(f"workbooks need the extra `files`: {install_command('files')}") from None
    return read(member.body, mapping, limits, member.label)


class _Names:
    """Names of endpoints from headings, cells and the name of the file."""

    def __init__(self, mapping: Mapping, target: FileTarget, limits: FileLimits) -> None:
        several = mapping.is_several
        self._endpoint, self._prefix = target.declared.endpoint, target.prefix
        self.template = mapping.name or target.name or ("{column}" if several else "")
        self._most = limits.endpoints
        self._origins: dict[str, tuple[str, ...]] = {}
        if self._endpoint is not None:
            if several:
                raise InvalidDataset("the rows or columns name several endpoints: use prefix in place of endpoint")
            self.template = ""
        elif not self.template:
            raise InvalidDataset("the endpoint below the prefix has no name (key: name, as '{file}' or '{column}')")
        self.has_column = COLUMN in fields_of(self.template)

    def name(self, fields: dict[str, str]) -> tuple[str, str]:
        """Return the endpoint and the title of these texts of the template's fields."""
        own = tuple(text for field, text in sorted(fields.items()) if field != FILE)
        title = " ".join(own)[:MAX_TITLE]
        if self._endpoint is not None:
            return self._endpoint, ""
        name = f"{self._prefix}/{fill(self.template, fields)}"
        try:
            endpoints.check_written(name)
        except endpoints.BadName as error:
            raise InvalidDataset(f"{error} (key: name)") from None
        if self._origins.setdefault(name, own) != own:
            first, second = " ".join(self._origins[name]), " ".join(own)
            raise InvalidDataset(f"{name} would be both {first!r} and {second!r} (key: name)")
        if len(self._origins) > self._most:
            raise InvalidDataset(f"more than {self._most} endpoints (key: name)")
        return name, title


def _stem(file: str) -> str:
    base = file.rsplit("/", 1)[-1]
    stem = base.removesuffix(".gz").rpartition(".")[0]
    return stem or base


class _Series:
    """Collects the points of series."""

    def __init__(self, mapping: Mapping, target: FileTarget, names: _Names) -> None:
        self._mapping = mapping
        self._declared = target.declared
        self._names = names
        clock = target.declared.clock
        lag_s = self._step_s() if mapping.stamp == "end" else 0
        self._times = CellTimes(mapping, "UTC" if clock is None else clock.zone.key, lag_s)
        self._numbers = NumberReader(mapping)
        self._found: dict[str, SeriesBuilder] = {}

    def finish(self) -> list[Representation]:
        """Return the datasets."""
        return [each.build(self._declared, self._mapping) for each in self._found.values()]

    def add(self, grid: Grid, file: str) -> None:
        """Add the points of a grid."""
        columns = Columns(grid, self._mapping, self._names.template)
        known: dict[tuple[str, ...], SeriesBuilder] = {}
        for chunk in grid.chunks:
            selected = columns.select(chunk)
            if not selected.rows:
                continue
            cells = list(zip(*selected.rows, strict=True))
            try:
                self._add_chunk(_Cells(grid, columns, cells, selected.places, _stem(file)), known)
            except BadCell as error:
                place = place_of(grid.file, grid.place, selected.places[error.index])
                raise InvalidDataset(str(error), place) from None

    def _add_chunk(self, rows: "_Cells", known: dict[tuple[str, ...], SeriesBuilder]) -> None:
        columns, cells = rows.columns, rows.cells
        if self._mapping.across != "endpoint":
            self._add_across(rows, known)
            return
        times: Sequence[Time] = self._times.read([cells[index] for index in columns.time])
        if columns.period is not None:
            times = self._counted(rows, times)
        untils = [] if columns.until is None else self._ends([cells[columns.until]])
        for index in columns.values:
            points = _Points(times, self._numbers.read(cells[index]), rows.places, untils)
            self._extend(rows, known, rows.grid.columns[index], points)

    def _ends(self, columns: Sequence[Sequence[Cell]]) -> list[int]:
        return _each(self._times.origin, self._times.read(columns))

    def _counted(self, rows: "_Cells", times: Sequence[Time]) -> list[Time]:
        """Return the instants of periods counted from others."""
        cells, columns = rows.cells, rows.columns
        numbers = self._numbers.read(cells[columns.period or 0])
        stated = self._step_s() if columns.resolution is None else 0
        steps = [stated] * len(times) if columns.resolution is None else _each(_step_s, cells[columns.resolution])
        made: list[Time] = []
        for index, (begin, period, step) in enumerate(zip(times, numbers, steps, strict=True)):
            if period is None or period < 1 or period % 1:
                raise BadCell(index, f"{period} is not the number of a period, from 1 (key: period)")
            try:
                made.append(self._times.origin(begin) + (int(period) - 1) * step)
            except ValueError as error:
                raise BadCell(index, str(error)) from None
        return made

    def _step_s(self) -> int:
        common = self._declared.of(self._declared.endpoint or "")
        if not common.resolution:
            raise InvalidDataset("the resolution is missing, which is the length of periods (key: resolution)")
        try:
            return _step_s(common.resolution)
        except ValueError as error:
            raise InvalidDataset(str(error), "resolution") from None

    def _add_across(self, rows: "_Cells", known: dict[tuple[str, ...], SeriesBuilder]) -> None:
        """Add a table whose headings are times of day or numbers of periods."""
        columns, cells = rows.columns, rows.cells
        headings = [rows.grid.columns[index] for index in columns.values]
        own = [cells[index] for index in columns.time]
        count = len(rows.places)
        if self._mapping.across == "time":
            by_column: list[list[Any]] = [self._times.read([*own, [heading] * count]) for heading in headings]
        else:
            origins, step = self._ends(own), self._step_s()
            by_column = [[begin + (_period(heading) - 1) * step for begin in origins] for heading in headings]
        values_by_column = [self._numbers.read(cells[index]) for index in columns.values]
        # Row by row: the order of rows decides about the hour that clocks repeat.
        times = list(chain.from_iterable(zip(*by_column, strict=True)))
        values = list(chain.from_iterable(zip(*values_by_column, strict=True)))
        indexes = [index for index in range(count) for _ in headings]
        if self._mapping.across == "period":
            kept = self._within_days(times, values, [origins[index] for index in indexes], indexes)
            times, values, indexes = ([column[index] for index in kept] for column in (times, values, indexes))
        spread = [[column[index] for index in indexes] for column in cells]
        places = [rows.places[index] for index in indexes]
        self._extend(_Cells(rows.grid, columns, spread, places, rows.file), known, "", _Points(times, values, places))

    def _within_days(
        self, times: Sequence[int], values: Sequence[Value], origins: Sequence[int], rows: Sequence[int]
    ) -> list[int]:
        """Return the positions of periods that their day has: one of 23 hours leaves a column of 24 or 25 empty."""
        zone = self._times.clock.zone
        kept = []
        for index, (time, value, origin) in enumerate(zip(times, values, origins, strict=True)):
            begin = datetime.fromtimestamp(origin, zone)
            if datetime.fromtimestamp(time, zone).date() == begin.date():
                kept.append(index)
            elif value is not None:
                raise BadCell(rows[index], f"{begin:%Y-%m-%d} has fewer periods than values (keys: resolution, zone)")
        return kept

    def _extend(
        self, rows: "_Cells", known: dict[tuple[str, ...], SeriesBuilder], heading: str, points: "_Points"
    ) -> None:
        """Add points, one a row, to the series that the rows name."""
        fields = rows.columns.fields
        if not fields:
            _extend_one(self._series(rows, known, heading, ()), rows, points, None)
            return
        groups: defaultdict[tuple[Cell, ...], list[int]] = defaultdict(list)
        for index, key in enumerate(zip(*(rows.cells[index] for index in fields.values()), strict=True)):
            groups[key].append(index)
        for key, indexes in groups.items():
            try:
                series = self._series(rows, known, heading, tuple(map(cell_text, key)))
            except InvalidDataset as error:
                raise BadCell(indexes[0], str(error)) from None
            _extend_one(series, rows, points, None if len(groups) == 1 else indexes)

    def _series(
        self, rows: "_Cells", known: dict[tuple[str, ...], SeriesBuilder], heading: str, key: tuple[str, ...]
    ) -> SeriesBuilder:
        series = known.get((heading, *key))
        if series is None:
            text, unit = split_heading(heading)
            unit = self._mapping.units.get(heading) or self._mapping.units.get(text) or unit
            fields = {COLUMN: text} if self._names.has_column else {}
            fields |= dict(zip(rows.columns.fields, key, strict=True))
            name, title = self._names.name(fields | {FILE: rows.file})
            made = SeriesBuilder(name, title, unit, rows.grid.place)
            series = known[heading, *key] = self._found.setdefault(name, made)
        return series


class _Points(NamedTuple):
    """Columns of points, one a row; ``untils`` may be empty."""

    times: Sequence[Time]
    values: Sequence[Value]
    places: Sequence[int]
    untils: Sequence[int] = ()


def _extend_one(series: SeriesBuilder, rows: "_Cells", points: _Points, indexes: Sequence[int] | None) -> None:
    """Add the points of all rows, or those at ``indexes``, with their units and resolutions."""
    series.instants += _at(points.times, indexes)
    series.values += _at(points.values, indexes)
    series.places += _at(points.places, indexes)
    if points.untils:
        series.untils += _at(points.untils, indexes)
    for column, found in ((rows.columns.unit, series.units), (rows.columns.resolution, series.steps)):
        if column is None:
            continue
        cells = _at(rows.cells[column], indexes)
        for cell in set(cells):
            if (text := cell_text(cell)) and text not in found:
                found[text] = _at(rows.places, indexes)[cells.index(cell)]


def _at(column: Sequence[Given], indexes: Sequence[int] | None) -> Sequence[Given]:
    if indexes is None:
        return column
    return itemgetter(*indexes)(column) if len(indexes) > 1 else [column[indexes[0]]]


@dataclass(frozen=True, slots=True)
class _Cells:
    """Rows of a grid, by column."""

    grid: Grid
    columns: Columns
    cells: Sequence[Sequence[Cell]]
    places: Sequence[int]
    file: str


def _each(read: Callable[[Given], Made], given: Iterable[Given]) -> list[Made]:
    """Return what ``read`` makes of each; raises :class:`BadCell` with the place of a ValueError."""
    made = []
    for index, each in enumerate(given):
        try:
            made.append(read(each))
        except ValueError as error:
            raise BadCell(index, str(error)) from None
    return made


def _step_s(text: Cell) -> int:
    step = parse_resolution(cell_text(text))
    if step.is_calendar or step.seconds == 1:
        raise ValueError(f"periods shorter than a day are needed, not {step.text} (keys: stamp, period)")
    return step.seconds


def _period(heading: str) -> int:
    match = _NUMBER.search(heading)
    if match is None or not int(match[0]):
        raise InvalidDataset(f"the heading {heading[:40]!r} has no number of a period (keys: across, value)")
    return int(match[0])


class _Documents:
    """Collects documents, one a row."""

    def __init__(self, mapping: Mapping, names: _Names) -> None:
        self._mapping = mapping
        self._names = names
        self._numbers = NumberReader(mapping)
        self._gaps = frozenset(mapping.gaps)
        self._found: dict[str, Representation] = {}

    def finish(self) -> list[Representation]:
        """Return the documents."""
        return list(self._found.values())

    def add(self, grid: Grid, file: str) -> None:
        """Add the documents of a grid."""
        columns = Columns(grid, self._mapping, self._names.template)
        for chunk in grid.chunks:
            selected = columns.select(chunk)
            if not selected.rows:
                continue
            cells: list[Sequence[object]] = [
                [self._cell(cell) for cell in column] for column in zip(*selected.rows, strict=True)
            ]
            index = 0
            try:
                for column in columns.numbers:
                    values = self._numbers.read([row[column] for row in selected.rows])
                    cells[column] = [None if value is None else number(value) for value in values]
                for index in range(len(selected.rows)):
                    value = selected.objects[index] if selected.objects else _object(grid.columns, cells, index)
                    fields = {name: cell_text(selected.rows[index][at]) for name, at in columns.fields.items()}
                    self._add(*self._names.name(fields | {FILE: _stem(file)}), value)
            except (BadCell, InvalidDataset) as error:
                at = error.index if isinstance(error, BadCell) else index
                place = place_of(grid.file, grid.place, selected.places[at])
                raise InvalidDataset(str(error), place) from None

    def _cell(self, cell: Cell) -> Cell:
        text = cell.strip() if isinstance(cell, str) else cell
        return None if text in self._gaps else text

    def _add(self, name: str, title: str, value: object) -> None:
        if name in self._found:
            if self._mapping.duplicates == "refuse":
                raise InvalidDataset(f"another row is {name} (keys: name, duplicates)")
            if self._mapping.duplicates == "first":
                return
        body = Body(orjson.dumps(value), DOCUMENT, {"title": title})
        self._found[name] = KINDS["document"].parse(name, body)


def _object(columns: Sequence[str], cells: Sequence[Sequence[object]], index: int) -> dict[str, object]:
    return {name: column[index] for name, column in zip(columns, cells, strict=True) if name}
