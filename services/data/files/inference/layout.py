"""Infers where the table of a text is: its delimiter and header line, comments, sections, and lines of units."""

import csv
import io
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from services.data.files.inference.numbers import GAPS, STYLES
from services.data.files.inference.times import formats_of

DELIMITERS: Final = ";\t,| "
MAX_LINES: Final = 400
"""Lines from which the layout is inferred, half of them from the end."""
MAX_HEADER: Final = 200
MAX_LINE: Final = 200_000
"""Longest line in characters; no table has longer ones."""
MAX_CELL: Final = 100
"""Longest cell in characters which may be a time or a number."""
_COMMENTS: Final = "#%!"
_NO_UNITS: Final[Mapping[str, str]] = MappingProxyType({})


class Layout(NamedTuple):
    """A table in a text.

    Attributes:
        keys: of the mapping. context: the text outside the table. others: titles of other tables. problem: why rows
        cannot be read, with the place; empty: they can. units: of columns, of a line below the header.
    """

    keys: dict[str, Any]
    context: str = ""
    others: tuple[str, ...] = ()
    problem: str = ""
    units: Mapping[str, str] = _NO_UNITS


Line = tuple[int, str]
Row = tuple[int, list[str]]
"""Cells with the number of their first line."""


def infer_layouts(text: str) -> list[Layout]:
    """Return the tables of a text, the likeliest first; empty: there is none."""
    lines = [*enumerate(io.StringIO(text, newline=None), 1)]
    if any(len(line) > MAX_LINE for _, line in lines):
        return []
    if (records := _records(lines)) is not None:
        return records
    comment = _comment(lines)
    candidates = [found for mark in DELIMITERS if (found := _delimited(lines, mark, comment)) is not None]
    if not candidates:
        return []
    return [max(candidates, key=lambda each: each[0])[1].layout]


def _comment(lines: Sequence[Line]) -> str:
    """Return the mark of comments; empty: there are none."""
    marks = Counter(line[:1] for _, line in lines)
    for mark in _COMMENTS:
        if 0 < marks[mark] < 0.7 * len(lines) or marks[mark] > 3:
            return mark
    return ""


def _rows(lines: Sequence[Line], delimiter: str) -> list[Row]:
    first = lines[0][0] if lines else 1
    reader = csv.reader((line for _, line in lines), delimiter=delimiter)
    rows: list[Row] = []
    before = 0
    try:
        for cells in reader:
            rows.append((first + before, [cell.strip() for cell in cells]))
            before = reader.line_num
    except csv.Error:
        return []
    return rows


def _delimited(lines: Sequence[Line], delimiter: str, comment: str) -> "tuple[float, _Found] | None":
    """Return the table of a delimiter with its score; None: there is none."""
    ends = [
        *lines[: MAX_LINES // 2 + MAX_HEADER],
        *lines[max(MAX_LINES // 2 + MAX_HEADER, len(lines) - MAX_LINES // 2) :],
    ]
    plain = [(number, "\n" if comment and line.startswith(comment) else line) for number, line in ends]
    rows = [(number, cells) for number, cells in _numbered(plain, delimiter) if any(cells)]
    widths = Counter(_width(cells) for _, cells in rows if len(cells) > 1)
    if not widths:
        return None
    blocks = _blocks(plain, rows)
    block = max(blocks, key=lambda each: sum(1 for _, cells in each if len(cells) > 1))
    width = Counter(len(cells) for _, cells in block if len(cells) > 1).most_common(1)
    if not width:
        return None
    count = width[0][0]
    table = [each for each in block if len(each[1]) == count or _width(each[1]) == count]
    while len(table) > 2 and _width(table[0][1]) == 1 < _width(table[-1][1]):
        del table[0]
    if len(table) < 2 and len(rows) > 1 and len(table) != len(rows):
        return None
    data = [cells for _, cells in table]
    typed = any(cell_class(cell) in {"time", "number"} for cells in data for cell in cells)
    if not typed and (delimiter == " " or len(table) < 3):
        return None
    if delimiter == " " and sum(not cell for cells in data for cell in cells) > sum(map(len, data)) / 20:
        return None
    weight = sum(_WEIGHTS[cell_class(cell)] for cells in data for cell in cells) / sum(len(cells) for cells in data)
    share = len(table) / len(rows)
    found = _Found(delimiter, comment, lines, rows, blocks, table)
    # Blanks are in times, too.
    return weight * (0.3 + share) * (0.8 if delimiter == " " else 1.0) + min(count, 10) / 1000, found


def _numbered(lines: Sequence[Line], delimiter: str) -> list[Row]:
    """Return rows with the numbers of their first lines, over a jump in the numbers."""
    jump = next((at for at in range(1, len(lines)) if lines[at][0] != lines[at - 1][0] + 1), len(lines))
    return _rows(lines[:jump], delimiter) + _rows(lines[jump:], delimiter)


def _width(cells: Sequence[str]) -> int:
    width = len(cells)
    while width > 1 and not cells[width - 1]:
        width -= 1
    return width


def _blocks(lines: Sequence[Line], rows: Sequence[Row]) -> list[list[Row]]:
    """Return rows grouped by empty lines between them."""
    empty = {number for number, line in lines if not line.strip(" ,;\t|\r\n")}
    blocks: list[list[Row]] = [[]]
    previous = 0
    for number, cells in rows:
        if any(each in empty for each in range(previous + 1, number)) and blocks[-1]:
            blocks.append([])
        blocks[-1].append((number, cells))
        previous = number
    return blocks


_MAX_FOOTER: Final = 20
"""Lines below a table that are not another one."""
_WEIGHTS: Final = {"time": 1.0, "number": 1.0, "gap": 0.8, "text": 0.45}


@lru_cache(maxsize=65_536)
def cell_class(cell: str) -> str:
    """Return ``time``, ``number``, ``gap`` or ``text``."""
    if not cell or cell.lower() in GAPS:
        return "gap"
    if len(cell) > MAX_CELL:
        return "text"
    if any(style.pattern.fullmatch(cell) for style in STYLES):
        return "number"
    if any(each.isdigit() for each in cell) and (
        _CLOCK.fullmatch(cell) or next(formats_of(cell), None) or _interval(cell)
    ):
        return "time"
    return "text"


_CLOCK: Final = re.compile(
    r"\d{1,2}:\d\d(?::\d\d(?:\.\d+)?)?(?:\s?[AaPp][Mm])?(?:\s?[-\u2013]\s?\d{1,2}:\d\d)?|\d\d\s?-\s?\d\d", re.ASCII
)


def _interval(cell: str) -> bool:
    """Return whether a cell begins with a date or a time, and a mark of intervals."""
    for mark in (" - ", " \u2013 ", "/", " bis ", " to "):
        first, found, _ = cell.partition(mark)
        if found and any("%d" in form for form in formats_of(first.strip())):
            return True
    return False


class _Found(NamedTuple):
    """A table of a delimiter, among all lines and rows of a text, grouped by empty lines."""

    delimiter: str
    comment: str
    lines: Sequence[Line]
    rows: Sequence[Row]
    blocks: Sequence[Sequence[Row]]
    table: Sequence[Row]

    @property
    def layout(self) -> Layout:
        """Where the table is."""
        keys: dict[str, Any] = {} if self.delimiter == "," else {"delimiter": self.delimiter}
        first = header_rows([cells for _, cells in self.table])
        # Of several lines of a header the first has the names.
        header = self.table[0] if first else _commented_header(self)
        top = self.table[0][0] if header is None else header[0]
        context = "".join(line for number, line in self.lines[:MAX_HEADER] if number < top)
        titles = _titles(self.blocks)
        if len(titles) > 1:
            return Layout({**keys, "section": titles[0]}, context, tuple(titles[1:]))
        above = [row for row in self.rows if row[0] < top]
        commented = [number for number, line in self.lines if self.comment and line.startswith(self.comment)]
        if header is not None and (above or top in commented):
            keys["header"] = top
        if any(number > top for number in commented) or (commented and not above and top not in commented):
            keys["comment"] = self.comment
        problem, units = "", _NO_UNITS
        if header is None:
            problem = _add_first_row(keys, above)
        elif first > 1:
            units, problem = _add_units(keys, self, first)
        problem = problem or _add_end(keys, self, above, top)
        return Layout(keys, context, (), problem, units)


def _add_first_row(keys: dict[str, Any], above: Sequence[Row]) -> str:
    """Add the keys of a table without a header; return why rows cannot be read."""
    keys["header"] = 0
    if above:
        number, cells = above[-1]
        if _width(cells) > 1:
            return f"line {number}: lines above a table without a header"
        keys["section"] = cells[0]
    return ""


def _add_units(keys: dict[str, Any], found: _Found, first: int) -> tuple[Mapping[str, str], str]:
    """Leave out a line of units below the header; return these, and why rows cannot be read."""
    mark = _mark_of_line(found) if first == 2 and "comment" not in keys else ""
    if not mark:
        number = found.table[first - 1][0]
        return _NO_UNITS, f"line {number}: the header has {first} lines, and a mapping reads one"
    keys["comment"] = mark
    (_, names), (_, units) = found.table[:2]
    return {name: unit for name, unit in zip(names, units, strict=False) if unit}, ""


def _add_end(keys: dict[str, Any], found: _Found, above: Sequence[Row], top: int) -> str:
    """Leave out what follows the table; return why rows cannot be read."""
    width, last = len(found.table[0][1]), found.table[-1][0]
    strange = [number for number, cells in found.rows if number > top and not _fits(cells, width)]
    if not strange:
        return ""
    if strange[0] > last:
        if "comment" not in keys and (mark := _footnote(found)):
            keys["comment"] = mark
            return ""
        if "section" in keys:
            return ""
        empty = {number for number, line in found.lines if not line.strip()}
        if above and _width(above[-1][1]) == 1 and empty.intersection(range(last, strange[0])):
            keys.pop("header", None)
            keys["section"] = above[-1][1][0]
            return ""
        below = sum(number > last and not line.isspace() for number, line in found.lines)
        if below <= _MAX_FOOTER and all(_width(cells) < width for number, cells in found.rows if number > last):
            keys["footer"] = below
            return ""
    return f"line {strange[0]}: a row of another table, or a footer"


def _mark_of_line(found: _Found) -> str:
    """Return the character with which the second line of a header begins, and no other; empty: there is none."""
    own = found.table[1][0]
    marks = {number: line[:1] for number, line in found.lines if number >= found.table[0][0]}
    mark = marks.pop(own)
    return "" if mark.isalnum() or mark in marks.values() else mark


def _commented_header(found: _Found) -> Row | None:
    """Return the header in the last comment above a table; None: there is none."""
    first, cells = found.table[0]
    above = [(number, line) for number, line in found.lines if number < first and line.startswith(found.comment or "#")]
    if not above or above[-1][0] + 3 < first:
        return None
    for number, names in _rows(above[-1:], found.delimiter):
        if len(names) == len(cells) and all(cell_class(name) == "text" for name in names):
            return number, names
    return None


def _footnote(found: _Found) -> str:
    """Return a mark with which all rows below a table begin, and none of its own; empty: there is none."""
    last = found.table[-1][0]
    marks = {cells[0][:1] for number, cells in found.rows if number > last}
    own = {cells[0][:1] for _, cells in found.table}
    return next((mark for mark in marks if len(marks) == 1 and mark not in own and mark in "*#%!<>=/\\"), "")


def _fits(cells: Sequence[str], width: int) -> bool:
    return len(cells) == width or (len(cells) > width and not any(cells[width:]))


def header_rows(table: Sequence[Sequence[str]]) -> int:
    """Return how many rows are headers: those with texts in columns of times or numbers below."""
    body = table[len(table) // 2 :] if len(table) > 3 else table[-1:]
    width = min(len(cells) for cells in table)
    wanted = []
    for column in range(width):
        classes = Counter(cell_class(cells[column]) for cells in body)
        classes.pop("gap", None)
        wanted.append(classes.most_common(1)[0][0] if classes else "gap")
    typed = [column for column, name in enumerate(wanted) if name in {"time", "number"}]
    for index, cells in enumerate(table[:10]):
        texts = [cell_class(cells[column]) == "text" or not cells[column] for column in typed]
        strange = sum(cell_class(cells[column]) not in {wanted[column], "gap"} for column in typed)
        if not typed or not strange or not (any(texts) or strange > len(typed) / 2):
            return index or int(not typed)
        if index == len(table) - 1:
            return index
    return 10


def _titles(blocks: Sequence[Sequence[Row]]) -> list[str]:
    """Return the titles of tables which empty lines end."""
    found: list[str] = []
    pending = ""
    for block in blocks:
        title, rows = pending, block
        pending = ""
        if _width(block[0][1]) == 1:
            title, rows = block[0][1][0], block[1:]
        if not rows:
            pending = title
        elif title and len(rows) > 1 and all(_width(cells) > 1 for _, cells in rows):
            found += [title] * (header_rows([cells for _, cells in rows]) == 1)
    return found


def _records(lines: Sequence[Line]) -> list[Layout] | None:
    """Return the tables of a file with rows of comments, headers and data (C, I, D), as AEMO's; None: another file."""
    kinds = Counter(line[:2] for _, line in lines)
    if not kinds["I,"] or not kinds["D,"] or kinds["I,"] + kinds["D,"] + kinds["C,"] < sum(kinds.values()):
        return None
    tables: Counter[tuple[str, ...]] = Counter()
    for _, cells in _rows([each for each in lines if each[1].startswith("D,")], ","):
        tables[tuple(cells[:3])] += 1
    found = [list(cells) for cells, _ in tables.most_common()]
    context = "".join(line for _, line in lines if line.startswith("C,"))
    names = [" ".join(each[1:]) for each in found]
    return [
        Layout({"table": each}, context, tuple(name for name in names if name != " ".join(each[1:]))) for each in found
    ]
