"""Reads the sheets of workbooks into a grid, by calamine: values as they were stored; formulas never run.

Calamine decodes without a bound and lays out a sheet as far as its last cell, so both are checked before: what it gets
are the parts that it needs, uncompressed.
"""

import re
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import date, datetime, time, timedelta
from io import BytesIO
from itertools import chain, islice
from typing import Any, Final

from python_calamine import CalamineError, CalamineSheet, CalamineWorkbook, PasswordError, SheetTypeEnum

from services.data.errors import InvalidDataset, MalformedBody
from services.data.files.grid import CHUNK_ROWS, Cell, Chunk, FileLimits, Grid
from services.data.files.mapping import Mapping
from services.data.files.trees import parse_xml
from services.data.files.unpack import open_zip, repack

_PARTS: Final = frozenset(
    [
        "[Content_Types].xml", ".rels", "workbook.xml", "workbook.xml.rels", "sharedStrings.xml", "styles.xml",
        "mimetype", "manifest.xml",
    ]
)  # fmt: skip
"""Files of a workbook that calamine reads, beside that of the sheet."""
_CELL: Final = re.compile(rb"r\s*=\s*[\"']([A-Za-z]+)(\d+)[\"'][^<>]{0,500}(?<!/)>")
"""Of Office Open XML, with a content."""
_FORMULA: Final = re.compile(
    rb"<(?:\w+:)?c\s([^<>]*)>\s*<(?:\w+:)?f(?:\s[^<>]*)?(?:/>|>[^<]*</(?:\w+:)?f>)\s*"
    rb"(?:</(?:\w+:)?c>|<(?:\w+:)?v\s*/>|<(?:\w+:)?v>\s*</)"
)
"""Without a stored value."""
_PLACE: Final = re.compile(rb"\br\s*=\s*[\"']([A-Za-z]+\d+)")
_REPEATED: Final = re.compile(rb"<table:(table-row|(?:covered-)?table-cell)\b([^<>]*)>")
_TIMES: Final = re.compile(rb"number-(?:rows|columns)-repeated\s*=\s*[\"'](\d+)")
_ODS_TIME: Final = re.compile(r"PT(\d+)H(\d+)M(\d+)(?:[.,]\d+)?S")
_EXACT: Final = 2**53
_SECTORS_AT: Final = 512
_LAST_SECTOR: Final = 0xFFFFFFFA
_SHOWN: Final = 200
"""Characters of a list of sheets in an error."""


def read_workbook(body: bytes, mapping: Mapping, limits: FileLimits, file: str = "") -> Grid:
    """Return the rows of a sheet below its header; rows have their numbers in the sheet.

    Times and dates are texts in ISO 8601 without an offset, or as ``mapping.time_format``, if there is one column of
    times. Whole numbers are integers. Cells right of the header are left out.

    Raises:
        MalformedBody: not a workbook, or a damaged one.
        InvalidDataset: no such sheet or header, a formula without a stored value, or more cells than allowed.
    """
    if mapping.table:
        raise InvalidDataset("a sheet of a workbook has one table, or several with a title (key: table)", file)
    try:
        checked, name = _checked(body, mapping, limits, file)
        with CalamineWorkbook.from_filelike(BytesIO(checked)) as workbook:
            names = [sheet.name for sheet in workbook.sheets_metadata if sheet.typ == SheetTypeEnum.WorkSheet]
            sheet = workbook.get_sheet_by_name(name or _chosen(names, mapping, file))
            if sheet.total_height * sheet.total_width > limits.cells or sheet.total_width > limits.columns:
                raise _too_large(limits, file)
            rows = _rows(sheet, _CellReader(mapping))
    except PasswordError:
        raise InvalidDataset("the workbook is encrypted: save it without a password", file) from None
    except CalamineError as error:
        raise _damaged(str(error), file) from None
    except BaseException as error:
        if type(error).__name__ == "PanicException":  # of Rust; it has no public name
            raise _damaged("its reader failed", file) from None
        raise
    return _grid(rows, mapping, limits, file)


def _damaged(reason: str, file: str) -> MalformedBody:
    return MalformedBody(f"{file}: " * bool(file) + f"not a workbook, or a damaged one: {reason[:120]}")


def _too_large(limits: FileLimits, file: str) -> InvalidDataset:
    reason = f"the sheet has more than {limits.cells} cells or {limits.columns} columns: are there any far below?"
    return InvalidDataset(reason, file)


def _chosen(names: Sequence[str], mapping: Mapping, file: str) -> str:
    wanted = mapping.sheet
    if not names or (wanted is not None and wanted not in names):
        missing = "sheet of cells" if wanted is None else f"sheet {wanted!r}"
        known = ", ".join(names) or "none"
        shown = known if len(known) <= _SHOWN else known[:_SHOWN] + " ..."
        raise InvalidDataset(f"there is no {missing}, but {shown} (key: sheet)", file)
    return names[0] if wanted is None else wanted


def _checked(body: bytes, mapping: Mapping, limits: FileLimits, file: str) -> tuple[bytes, str]:
    """Return a workbook that calamine can read within bounds, and the name of its sheet; empty if not known yet."""
    if not body.startswith(b"PK"):
        _check_chains(body, file)
        return body, ""  # xls is not compressed; of cells far apart, the bounds of the process hold
    with open_zip(body, limits, file) as archive:
        names = set(archive.namelist())
        if "content.xml" in names:
            sheet, part = "", "content.xml"
            _check_content(archive.read(part), limits, file)
        else:
            book = next((name for name in names if name.endswith("workbook.xml")), "")
            if not book:
                raise _damaged("it has no workbook.xml: save it as xlsx", file)
            folder = book.removesuffix("workbook.xml")
            texts = [archive.read(name) for name in (book, f"{folder}_rels/workbook.xml.rels") if name in names]
            sheet, part = _sheet_part(folder, texts, mapping, limits, file)
            if part not in names:
                raise _damaged(f"it has no {part[:80]!r}", file)
            _check_sheet(archive.read(part), limits, file)
    return repack(body, limits, lambda name: name == part or name.rpartition("/")[2] in _PARTS, file), sheet


def _check_chains(body: bytes, file: str) -> None:
    """Check that no chain of sectors of a compound file (MS-CFB section 2.3) is a ring: calamine would not end."""
    if len(body) < _SECTORS_AT or (shift := body[30]) not in {9, 12}:
        raise _damaged("its header is incomplete", file)
    size = 1 << shift

    def numbers(sector: int) -> list[int]:
        text = body[(sector + 1) * size : (sector + 2) * size]
        return [each for (each,) in struct.iter_unpack("<L", text[: len(text) // 4 * 4])]

    tables = [each for (each,) in struct.iter_unpack("<L", body[76:_SECTORS_AT])]
    more = int.from_bytes(body[68:72], "little")
    for _ in range(len(body) // size):
        if more >= _LAST_SECTOR:
            break
        *found, more = numbers(more) or [_LAST_SECTOR + 1]
        tables += found
    follows = list(chain.from_iterable(numbers(each) for each in tables if each <= _LAST_SECTOR))
    small = int.from_bytes(body[60:64], "little")
    _refuse_rings(follows, file)
    smalls: list[int] = []
    while small < len(follows):
        smalls += numbers(small)
        small = follows[small]
    _refuse_rings(smalls, file)


def _refuse_rings(follows: Sequence[int], file: str) -> None:
    """Refuse successors of sectors with a ring among them."""
    seen = bytearray(len(follows))
    for first in range(len(follows)):
        path, each = [], first
        while each < len(follows) and not seen[each]:
            seen[each] = 1
            path.append(each)
            each = follows[each]
        if each < len(follows) and seen[each] == 1:
            raise _damaged("its sectors form a ring", file)
        for each in path:
            seen[each] = 2


def _sheet_part(
    folder: str, texts: Sequence[bytes], mapping: Mapping, limits: FileLimits, file: str
) -> tuple[str, str]:
    """Return the name of the sheet, and of the file with its cells."""
    book, relations = [*map(_as_dict, (parse_xml(text, limits, file)[1] for text in texts)), {}][:2]
    targets = {
        each.get("@Id"): str(each.get("@Target"))
        for each in _elements(relations, "Relationship")
        if str(each.get("@Type")).endswith("/worksheet")
    }
    sheets = {
        str(each.get("@name")): targets[each["@id"]]
        for each in _elements(_as_dict(book.get("sheets")), "sheet")
        if each.get("@id") in targets
    }
    name = _chosen(list(sheets), mapping, file)
    target = sheets[name]
    return name, target[1:] if target.startswith("/") else folder + target


def _as_dict(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _elements(value: dict[str, Any], name: str) -> list[dict[str, Any]]:
    found = value.get(name)
    return [_as_dict(each) for each in (found if isinstance(found, list) else [found])]


def _check_sheet(text: bytes, limits: FileLimits, file: str) -> None:
    """Check a sheet of Office Open XML: its cells' places, and that formulas have values."""
    columns, rows = set(), set()
    for match in _CELL.finditer(text):
        columns.add(match[1])
        rows.add(match[2])
    width = max(map(_column_number, columns), default=0)
    if width > limits.columns or max((int(row[:10]) for row in rows), default=0) * width > limits.cells:
        raise _too_large(limits, file)
    for match in _FORMULA.finditer(text) if b"<f" in text or b":f" in text else ():
        if b't="str"' not in match[1]:  # else a stored value that is empty
            place = _PLACE.search(match[1])
            raise _no_value("a formula" if place is None else f"the formula in {place[1].decode()}", file)


def _no_value(formula: str, file: str) -> InvalidDataset:
    return InvalidDataset(
        f"{formula} has no stored value: open the workbook in a spreadsheet program and save it", file
    )


def _column_number(letters: bytes) -> int:
    number = 0
    for letter in letters.upper()[:8]:
        number = number * 26 + letter - 64
    return number


def _check_content(text: bytes, limits: FileLimits, file: str) -> None:
    """Check the sheets of an OpenDocument: how often rows and cells are repeated, and that formulas have values."""
    area = above = width = column = 0
    repeated = 1
    for match in _REPEATED.finditer(text):
        times = _TIMES.search(match[2])
        count = 1 if times is None else int(times[1][:10])
        if match[1] == b"table-row":
            above, repeated, column = above + repeated, count, 0
            continue
        column += count
        if b"value-type" in match[2]:
            width = max(width, column)
            area = (above + repeated) * width
        elif b"formula" in match[2]:
            raise _no_value("a formula", file)
        if width > limits.columns or area > limits.cells:
            raise _too_large(limits, file)


class _CellReader:
    """Makes cells of what calamine reads."""

    def __init__(self, mapping: Mapping) -> None:
        is_text = mapping.time_format.startswith("%") and len(mapping.times) == 1
        self._format = mapping.time_format if is_text else ""
        self._by_type: dict[type, Callable[[Any], Cell]] = {
            str: _text,
            float: _number,
            datetime: self._moment,
            date: self._day,
            time: lambda cell: cell.isoformat("seconds"),
            timedelta: _duration,
        }

    def row(self, cells: Iterable[object]) -> "Row":
        """Return the cells of a row; None for empty ones."""
        return [self._by_type.get(type(cell), bool)(cell) for cell in cells]

    def _moment(self, cell: datetime) -> str:
        if cell.microsecond:  # it was a number of days
            cell += timedelta(microseconds=500)
            cell = cell.replace(microsecond=cell.microsecond // 1000 * 1000)
        return cell.strftime(self._format) if self._format else cell.isoformat()

    def _day(self, cell: date) -> str:
        return cell.strftime(self._format) if self._format else cell.isoformat()


def _text(cell: str) -> str | None:
    match = _ODS_TIME.fullmatch(cell) if cell.startswith("PT") else None
    return cell or None if match is None else ":".join(part.zfill(2) for part in match.groups())


def _number(cell: float) -> float:
    return int(cell) if cell.is_integer() and abs(cell) < _EXACT else cell


def _duration(cell: timedelta) -> str:
    minutes, seconds = divmod(round(cell.total_seconds()), 60)
    return f"{minutes // 60:02d}:{minutes % 60:02d}:{seconds:02d}"


Row = list[Cell]


def _rows(sheet: CalamineSheet, cells: _CellReader) -> Iterator[tuple[int, Row]]:
    """Yield the rows with cells, and their numbers, from 1."""
    start = sheet.start
    if start is None:
        return
    blank: Row = [None] * start[1]  # rows above are there, columns are not
    for number, row in enumerate(sheet.iter_rows(), start=1):
        made = blank + cells.row(row)
        if made.count(None) < len(made):
            yield number, made


def _grid(rows: Iterator[tuple[int, Row]], mapping: Mapping, limits: FileLimits, file: str) -> Grid:
    numbered, comment, first = rows, mapping.comment, mapping.header
    if comment is not None:
        numbered = (each for each in rows if not str(each[1][0]).startswith(comment))
    if mapping.section is not None:
        title = mapping.section
        first = next((number + 1 for number, row in numbered if str(row[0]).strip().startswith(title)), -1)
        if first < 0:
            raise InvalidDataset(f"no row begins with {title!r} (key: section)", file)
    number, row = next((each for each in numbered if each[0] >= first), (0, []))
    if not number:
        raise InvalidDataset(f"the sheet has no row from {max(first, 1)} on (keys: header, sheet)", file)
    if mapping.header:
        columns = ["" if cell is None else str(cell).strip() for cell in row]
        while columns and not columns[-1]:
            columns.pop()
    else:
        columns = [str(index) for index in range(1, len(row) + 1)]
        numbered, number = chain([(number, row)], numbered), number - 1
    if mapping.section is not None:
        numbered = _until_empty(numbered, number)
    return Grid(columns, _chunks(numbered, len(columns), limits, file), "row", file)


def _until_empty(rows: Iterator[tuple[int, Row]], before: int) -> Iterator[tuple[int, Row]]:
    for number, row in rows:
        if number != before + 1:
            return
        yield number, row
        before = number


def _chunks(rows: Iterator[tuple[int, Row]], width: int, limits: FileLimits, file: str) -> Iterator[Chunk]:
    cut = ((number, row[:width]) for number, row in rows)
    kept = (each for each in cut if each[1].count(None) < len(each[1]))
    count = 0
    while found := list(islice(kept, CHUNK_ROWS)):
        count += len(found)
        if count > limits.rows:
            raise InvalidDataset(f"more than {limits.rows} rows: split the file", file)
        places, cells = zip(*found, strict=True)
        yield Chunk(cells, places)
