"""Cells as numbers, a column at a time."""

import re
from collections.abc import Sequence
from typing import Final

from services.data.files.grid import Cell
from services.data.files.mapping import Mapping
from services.data.kinds.series.form import MAX_MAGNITUDE, Value, number

_PLAIN: Final = re.compile(r"[0-9eE+.\s-]*", re.ASCII)
"""Characters of numbers: float() accepts "nan", "inf", "1_000" and digits of all scripts, too."""
_GROUPED: Final = r"[+-]?\d{{1,3}}(?:{0}\d{{3}})+(?!\d)"
_BLANKS: Final = frozenset("\u00a0\u202f\u2009 ")
"""Marks between thousands which all are written as a blank."""
_SEPARATOR: Final = "\n"


class BadCell(ValueError):
    """A cell that is not what its column should be; ``index`` is its row in the column."""

    def __init__(self, index: int, reason: str) -> None:
        super().__init__(reason)
        self.index = index


class NumberReader:
    """Reads columns of numbers in the notation of a mapping."""

    def __init__(self, mapping: Mapping) -> None:
        self._decimal = mapping.decimal
        self._thousands = mapping.thousands
        self._gaps = frozenset(["", *mapping.gaps])
        marks = _BLANKS if mapping.thousands in _BLANKS else {mapping.thousands or ""}
        self._marks = "".join(sorted(marks))
        # Such as -999, which the shortest way would take for a value.
        self._is_plain = mapping.decimal == "." and not any(map(_PLAIN.fullmatch, mapping.gaps))
        self._grouped = re.compile(_GROUPED.format(f"[{re.escape(self._marks)}]")) if mapping.thousands else None

    def read(self, cells: Sequence[Cell]) -> Sequence[Value]:
        """Return the values of a column, None for gaps, whole ones perhaps as ``float``; raises :class:`BadCell`."""
        try:
            found = self._read_texts(cells)  # type: ignore[arg-type]  # raises TypeError for other cells than texts
        except (AttributeError, TypeError, ValueError):
            return [self._cell(index, cell) for index, cell in enumerate(cells)]
        given = [value for value in found if value is not None]
        if given and not -MAX_MAGNITUDE < min(given) <= max(given) < MAX_MAGNITUDE:
            return [self._cell(index, cell) for index, cell in enumerate(cells)]
        return found

    def _read_texts(self, cells: Sequence[str]) -> list[float | None]:
        """Read a column by few calls, without a turn of the interpreter or two for each cell.

        Raises:
            TypeError, ValueError: it needs a closer look.
        """
        if self._is_plain and "" not in cells and _PLAIN.fullmatch(_SEPARATOR.join(cells)):
            return list(map(float, cells))
        gaps = self._gaps
        values = [None if (text := cell.strip()) in gaps else text for cell in cells]
        given = _SEPARATOR.join([value for value in values if value is not None])
        if self._decimal == "," and "." not in given:
            given = given.replace(",", ".")
        elif self._decimal == ",":
            raise ValueError
        if _PLAIN.fullmatch(given) is None:
            raise ValueError
        numbers = iter(given.split(_SEPARATOR))
        return [None if value is None else float(next(numbers)) for value in values]

    def _cell(self, index: int, cell: Cell) -> Value:
        if cell is None or isinstance(cell, bool):
            if cell is None:
                return None
            raise BadCell(index, "a truth value is no number (key: value)")
        try:
            return number(cell) if not isinstance(cell, str) else self._text(cell.strip())
        except BadCell as error:
            error.index = index
            raise
        except ValueError as error:
            raise BadCell(index, str(error)) from None

    def _text(self, text: str) -> Value:
        if text in self._gaps:
            return None
        plain = text
        if self._grouped is not None and self._grouped.match(text):
            for mark in self._marks:
                plain = plain.replace(mark, "")
        if self._decimal == "," and "." not in plain:
            plain = plain.replace(",", ".")
        elif self._decimal == "," or "," in plain:
            mark = "comma" if self._decimal == "." else "point"
            raise BadCell(0, f"{text[:20]!r} has a {mark} (keys: decimal, thousands)")
        try:
            value = float(plain) if _PLAIN.fullmatch(plain) else None
        except ValueError:
            value = None
        if value is None:
            raise BadCell(0, f"{text[:20]!r} is no number (key: gaps, if it means a missing value; else value)")
        return number(value)
