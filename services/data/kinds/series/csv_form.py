"""Parse and render datasets as CSV: columns ``time,value`` and optionally ``unit`` and ``endpoint``."""

import csv
import io
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeVar

from diem.protocol import endpoints
from services.data.errors import InvalidDataset, MalformedBody, WrongUnit
from services.data.kinds.series.form import END, POINTS, Dataset, Declared, EndpointDeclaration, clock_of, number
from services.data.kinds.series.times import parse_resolution
from services.data.kinds.series.units import Conversion
from services.data.kinds.series.units import unit as canonical_unit

_COLUMNS: Final = ("time", "value", "unit", "endpoint")
_MAX_FIELD: Final = 512

Found = TypeVar("Found")


class CsvRow(NamedTuple):
    """One line with data; columns that the table lacks are empty."""

    line: int
    time: str
    value: str
    unit: str
    endpoint: str


@dataclass(frozen=True, slots=True)
class CsvTable:
    """A table with a valid header and complete rows, values unchecked."""

    columns: frozenset[str]
    rows: list[CsvRow]


def parse_csv(body: bytes, *, max_rows: int = 100_000) -> CsvTable:
    """Parse CSV text into a table.

    The header has ``time`` and ``value``, optionally ``unit`` and ``endpoint``, in any order, and nothing else. Empty
    lines and a byte order mark are skipped.

    Raises:
        MalformedBody: the text is not UTF-8 or contains NUL.
        InvalidDataset: the header or a line is invalid; the error names the line.
    """
    text = _decode(body)
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    lines = _lines(reader)
    line, header = next(lines, (1, []))
    names = [name.strip().lower() for name in header]
    if len(set(names)) != len(names) or not {"time", "value"} <= set(names) <= set(_COLUMNS):
        if text.lstrip()[:1] == "<":
            found = _MARKUP.get(text.lstrip()[:5].lower(), "this is markup (HTML or XML), not CSV")
            raise InvalidDataset(found, f"line {line}")
        raise InvalidDataset(
            f"the header must be time,value[,unit][,endpoint], not {','.join(names)[:60]!r}", f"line {line}"
        )
    rows: list[CsvRow] = []
    for line, cells in lines:
        if len(cells) != len(names):
            raise InvalidDataset(f"{len(cells)} columns instead of {len(names)}", f"line {line}")
        if len(rows) == max_rows:
            raise InvalidDataset(f"more than {max_rows} lines", f"line {line}")
        by_name = dict(zip(names, map(str.strip, cells), strict=True))
        rows.append(CsvRow(line, *(by_name.get(column, "") for column in _COLUMNS)))
    return CsvTable(frozenset(names), rows)


_MARKUP: Final = dict.fromkeys(
    ("<html", "<!doc"), "this is an HTML page, not CSV: its address may need a login, or another path"
)
_SIGNATURES: Final = (
    (b"\x1f\x8b", "compressed with gzip: decompress it first (gunzip)"),
    (b"PK\x03\x04", "a zip archive or an Excel workbook: extract it, or save the sheet as CSV in UTF-8"),
    (b"PAR1", "Parquet: a source of the type directory reads it, as NAME.parquet"),
    (b"\xff\xfe", "UTF-16: save it as UTF-8 (iconv -f UTF-16 -t UTF-8)"),
    (b"\xfe\xff", "UTF-16: save it as UTF-8 (iconv -f UTF-16 -t UTF-8)"),
)
"""First bytes of formats often mistaken for CSV, with their names and the remedy."""


def _decode(body: bytes) -> str:
    """Return the text of a body.

    Raises:
        MalformedBody: not UTF-8, or a NUL character; the error names formats often mistaken for CSV.
    """
    found = next((kind for signature, kind in _SIGNATURES if body.startswith(signature)), None)
    if found is not None:
        raise MalformedBody(f"the body is not CSV, but {found}")
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        remedy = "save it as UTF-8 (iconv -f WINDOWS-1252 -t UTF-8)"
        raise MalformedBody(f"the CSV text is not UTF-8 (byte {error.start}): {remedy}") from None
    if "\0" in text:
        raise MalformedBody("the CSV text has a NUL character: perhaps it is UTF-16, save it as UTF-8")
    return text


def _lines(reader: Any) -> Iterator[tuple[int, list[str]]]:  # noqa: ANN401  # csv's reader type has no public name
    while True:
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise InvalidDataset(f"not CSV: {error}", f"line {reader.line_num}") from None
        if any(len(cell) > _MAX_FIELD for cell in cells):
            raise InvalidDataset(f"a field has more than {_MAX_FIELD} characters", f"line {reader.line_num}")
        if any(cell.strip() for cell in cells):
            yield reader.line_num, cells


def rows_to_datasets(
    table: CsvTable,
    *,
    endpoint: str | None,
    unit_: str | None,
    resolution: str | None,
    title: str = "",
    zone: str = "",
) -> list[Dataset]:
    """Return the datasets of a table, in the order in which their endpoints appear.

    Args:
        table: from :func:`parse_csv`.
        endpoint: the only endpoint; None when the table has an ``endpoint`` column.
        unit_: the unit; None when the table has a ``unit`` column. Given both, they must agree.
        resolution: the resolution; a table cannot state it.
        title: of every dataset.
        zone: of times without an offset and of days, as in Europe/Athens; empty: all times have one; days of UTC.

    Raises:
        InvalidDataset: the error names the line.
    """
    known = EndpointDeclaration(unit_, resolution, title)
    return read_table(table, Declared(endpoint, known, clock=clock_of(zone), converts=False))


def read_table(table: CsvTable, declared: Declared) -> list[Dataset]:
    """Return the datasets of a table, completed by ``declared``, in the order in which their endpoints appear.

    Raises:
        InvalidDataset: the error names the line.
    """
    endpoint = declared.endpoint
    if (endpoint is None) != ("endpoint" in table.columns):
        raise InvalidDataset(
            "the column endpoint is missing"
            if endpoint is None
            else "unexpected column endpoint: these rows are for one; a source with `prefix` takes several",
            "line 1",
        )
    if not table.rows:
        raise InvalidDataset("there are no points", "line 2")
    groups: dict[str, list[CsvRow]] = {}
    for row in table.rows:
        groups.setdefault(row.endpoint if endpoint is None else endpoint, []).append(row)
    return [_dataset(name, rows, declared) for name, rows in groups.items()]


def _dataset(name: str, rows: list[CsvRow], declared: Declared) -> Dataset:
    known = declared.of(name)
    if not known.resolution:
        # Without a question mark: texts of errors lose their queries, which may have secrets.
        raise InvalidDataset(
            "the resolution is missing: add resolution=PT1H to the query, or use `diem put --resolution PT1H`"
        )
    stated = known.unit or next((row.unit for row in rows if row.unit), None)
    if not stated:
        raise InvalidDataset(
            "the unit is missing: add unit=MW to the query, or a column unit, or use `diem put --unit MW`"
        )
    step = _stated("resolution", "", lambda: parse_resolution(known.resolution or ""))
    where = "" if known.unit else f"line {rows[0].line}"
    unit = _stated("unit", where, lambda: canonical_unit(stated))
    convert = _stated("unit", where, lambda: declared.conversion(unit, known.quantity))
    points: list[dict[str, Any]] = []
    times = declared.times(step)
    line = rows[0].line
    try:
        endpoints.check_written(name)
        for line, time, value, row_unit, _ in rows:
            if row_unit and row_unit != unit and canonical_unit(row_unit) != unit:
                raise WrongUnit(f"the unit is {unit}, not {row_unit[:20]!r}", f"line {line}")
            points.append({"time": times.read(time), "value": _cell(value, convert)})
    except (ValueError, endpoints.BadName) as error:
        raise InvalidDataset(str(error), f"line {line}") from None
    return declared.seal(name, convert.unit, step, points, times.zone)


def _stated(what: str, where: str, parse: Callable[[], Found]) -> Found:
    """Parse a unit or resolution; one from an option or setting has no place in the table."""
    try:
        return parse()
    except ValueError as error:
        raise InvalidDataset(str(error), where or what) from None


def _cell(text: str, convert: Conversion) -> int | float | None:
    if not text:
        return None
    try:
        # float() accepts "nan", "inf", "1_000" and digits of all scripts, none of them a valid value.
        value = float(text) if text.isascii() and "_" not in text else math.nan
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ValueError(f"{text[:20]!r} is not a number (decimal point, no thousands separators; empty for a gap)")
    return number(convert(value) if convert.changes else value)


_AS_ROWS: Final = (
    (b'{"time":"', b""), (b'","value":', b","), (b"null", b""), (b"},", b"\r\n"), (b"}", b"\r\n")
)  # fmt: skip
"""Parts of points in canonical form, and what they are in CSV."""


def render_csv(content: bytes) -> bytes:
    """Render the points of a stored dataset as ``time,value``; a gap is an empty value."""
    rows = content[content.index(POINTS) + len(POINTS) : -len(END)]
    # Each step is one call of a method of bytes: parsing takes several times as long.
    for part, written in _AS_ROWS:
        rows = rows.replace(part, written)
    return b"time,value\r\n" + rows
