"""Reads text of lines and cells into a grid."""

import csv
import io
from collections.abc import Callable, Iterator, Sequence
from itertools import compress, islice
from typing import Any, Final, NamedTuple

from services.data.errors import InvalidDataset
from services.data.files.grid import CHUNK_ROWS, Chunk, FileLimits, Grid, place_of
from services.data.files.mapping import Mapping

MAX_LINE: Final = 1_000_000
"""Longest line in characters: a longer one would take gigabytes as cells."""
DELIMITERS: Final = ";\t|,"
"""Of most files."""
Row = list[str]


def read_delimited(text: str, mapping: Mapping, limits: FileLimits, file: str = "") -> Grid:
    """Return the rows below the header; columns without a header are named 1, 2, and so on.

    Empty lines and comments are left out, as are empty cells beyond the last column.

    Raises:
        InvalidDataset: there is no header, or none like the mapping's; iterating the chunks raises it for lines.
    """
    _check_lines(text, file)
    for _ in range(mapping.footer):
        text = text.rstrip()[: text.rstrip().rfind("\n") + 1]
    lines = _Lines(text, mapping, file)
    header, first = _header(lines)
    columns = [name.strip() for name in header]
    while len(columns) > 1 and not columns[-1]:
        columns.pop()
    if len(columns) > limits.columns:
        raise InvalidDataset(f"more than {limits.columns} columns", lines.place(mapping.header))
    return Grid(columns, _chunks(lines, first, len(columns), limits), "line", file)


def _check_lines(text: str, file: str) -> None:
    at = 0
    while at + MAX_LINE < len(text):
        end = max(text.rfind(mark, at, at + MAX_LINE) for mark in "\n\r")
        if end < 0:
            raise InvalidDataset(f"a line has more than {MAX_LINE} characters", file)
        at = end + 1


class _Batch(NamedTuple):
    rows: Sequence[Row]
    places: Sequence[int]

    def select(self, keep: Sequence[bool]) -> "_Batch":
        """Return the rows to be kept."""
        return _Batch(list(compress(self.rows, keep)), list(compress(self.places, keep)))


_NOTHING: Final = _Batch([], [])


class _Lines:
    """Rows of a text with the numbers of their last lines; comments and empty lines are rows without cells."""

    def __init__(self, text: str, mapping: Mapping, file: str) -> None:
        self.mapping = mapping
        self.file = file
        self._quoted = '"' in text
        lines = io.StringIO(text, newline="")
        comment = mapping.comment
        shown = lines if comment is None else ("\n" if line.startswith(comment) else line for line in lines)
        self._reader: Any = csv.reader(shown, delimiter=mapping.delimiter, strict=True)

    def place(self, number: int) -> str:
        """Return the place of a line in messages."""
        return place_of(self.file, "line", number)

    def take(self, count: int) -> "_Batch":
        """Return the next rows with the numbers of their lines; fewer at the end."""
        reader = self._reader
        try:
            if self._quoted:
                # A cell may have several lines.
                found = [(row, reader.line_num) for row in islice(reader, count)]
                return _Batch([row for row, _ in found], [number for _, number in found])
            rows = list(islice(reader, count))
        except csv.Error as error:
            raise InvalidDataset(f"not a table: {error} (key: delimiter)", self.place(reader.line_num)) from None
        return _Batch(rows, range(reader.line_num - len(rows) + 1, reader.line_num + 1))


def _header(lines: _Lines) -> tuple[Row, _Batch]:
    """Return the header, and rows read beyond it."""
    mapping = lines.mapping
    if mapping.table:
        return _header_of_table(lines, mapping.table)
    first = mapping.header
    if (title := mapping.section) is not None:
        missing = f"no line begins with {title!r} (key: section)"
        batch = _skip_to(lines, lambda _, row: row[0].strip().startswith(title), missing)
        first = batch.places[0] + 1
    missing = "the file has no rows" if first < 2 else f"the file has no row from line {first} on (key: header)"
    batch = _skip_to(lines, lambda number, _: number >= first, missing)
    (row,) = batch.rows
    return (row, _NOTHING) if mapping.header else ([str(index) for index in range(1, len(row) + 1)], batch)


def _skip_to(lines: _Lines, found: Callable[[int, Row], bool], missing: str) -> _Batch:
    """Return the next row with cells for which ``found`` holds."""
    while (batch := lines.take(1)).rows:
        if any(map(str.strip, batch.rows[0])) and found(batch.places[0], batch.rows[0]):
            return batch
    raise InvalidDataset(missing, lines.file)


def _header_of_table(lines: _Lines, table: Sequence[str]) -> tuple[Row, _Batch]:
    """Return the last row before the first of the table with the same cells after the first one, as in AEMO's files."""
    width, header = len(table), None
    while (batch := lines.take(1)).rows:
        (row,) = batch.rows
        cells = _head(row, width)
        if cells == table:
            if header is None:
                break
            return header, batch
        if cells[1:] == table[1:] and len(row) > width:
            header = row
    raise InvalidDataset(f"no rows begin with {','.join(table)!r} below a header (key: table)", lines.file)


def _head(row: Row, width: int) -> Row:
    return [cell.strip() for cell in row[:width]]


def _chunks(lines: _Lines, first: _Batch, width: int, limits: FileLimits) -> Iterator[Chunk]:
    table, count = lines.mapping.table, 0
    batch = first if first.rows else lines.take(CHUNK_ROWS)
    while batch.rows:
        rows, end = batch.rows, None
        if lines.mapping.section is not None:
            end = next((index for index, row in enumerate(rows) if not any(map(str.strip, row))), None)
            batch = batch.select([True] * len(rows[:end]))
        if table:
            batch = batch.select([_head(row, len(table)) == table for row in rows])
        if not all(map(any, batch.rows)):
            batch = batch.select([any(row) for row in batch.rows])
        count += len(batch.rows)
        if count > limits.rows or count * width > limits.cells:
            raise InvalidDataset(
                f"more than {min(limits.rows, limits.cells // width)} rows: split the file", lines.file
            )
        if set(map(len, batch.rows)) - {width}:
            fitted = [_fitted(lines, number, row, width) for row, number in zip(*batch, strict=True)]
            batch = batch._replace(rows=fitted).select([bool(row) for row in fitted])
        if batch.rows:
            yield Chunk(batch.rows, batch.places)
        batch = lines.take(CHUNK_ROWS) if end is None else _NOTHING


def _fitted(lines: _Lines, number: int, row: Row, width: int) -> Row:
    """Return a row without empty cells beyond the last column; empty for a row of blanks."""
    if len(row) == width:
        return row
    if not any(map(str.strip, row)):
        return []
    if len(row) > width and not any(map(str.strip, row[width:])):
        return row[:width]
    given = lines.mapping.delimiter
    others = [mark for mark in DELIMITERS if mark != given and row[0].count(mark) >= max(1, width - 1)]
    remedy = f"delimiter = {others[0]!r}" if len(row) == 1 and others else "keys: delimiter, section, comment"
    raise InvalidDataset(f"{len(row)} cells instead of {width} ({remedy})", lines.place(number))
