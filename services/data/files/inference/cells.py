"""The cells of a table by column, and how its numbers are written."""

import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Final

from services.data.files.grid import Cell, cell_text
from services.data.files.inference.numbers import NumberStyle, infer_numbers, parse_number
from services.data.files.inference.times import infer_clock

SAMPLE_ROWS: Final = 2000
"""Rows of which every cell is inspected, half of them from the end; times are read in all."""
HOUR: Final = re.compile(r"(?i)^(?:hours?|hr|hrs|hh|stunde|hora|heure|ora|h|time|timme|tunti|he|hour_?ending|heures)$")
"""Headings of columns of hours."""


class SampleTable:
    """Named columns and rows, and the text around them.

    Attributes:
        names: of the columns; empty ones have no heading. rows: all. cells: of all rows, by column. sample: of some.
        filled: those of the sample which are not empty. context: the text around the table. known: what the user
        states. units: of columns, as a line of its own has them. is_tree: of JSON or XML, whose rows
        have the columns of the objects around them, too. numbers: how they are written.
    """

    def __init__(
        self,
        columns: Sequence[str],
        rows: Sequence[Sequence[Cell]],
        context: str = "",
        known: Mapping[str, str] | None = None,
        *,
        units: Mapping[str, str] | None = None,
        is_tree: bool = False,
    ) -> None:
        self.names = [name.strip() for name in columns]
        self.rows = rows
        self.context = context
        self.known = known or {}
        self.units = units or {}
        self.is_tree = is_tree
        half = SAMPLE_ROWS // 2
        self.cells = self._by_column(rows)
        self.sample = self._by_column(rows if len(rows) <= SAMPLE_ROWS else [*rows[:half], *rows[-half:]])
        self.filled = [[cell for cell in column if cell_text(cell)] for column in self.sample]
        self.numbers = infer_numbers(self.sample)

    def _by_column(self, rows: Sequence[Sequence[Cell]]) -> list[Sequence[Cell]]:
        return list(zip(*rows, strict=True)) if rows else [() for _ in self.names]

    @cached_property
    def is_plain(self) -> bool:
        """True if columns have no headings but their numbers."""
        return all(name.isdecimal() for name in self.names)

    def label(self, index: int) -> str:
        """Return the name of a column for the mapping: its heading, else its number."""
        return self.names[index] or str(index + 1)

    def number(self, cell: Cell) -> float | None:
        """Return the number of a cell; None if it is none."""
        return parse_number(cell, self.numbers.style)

    def choose(self, style: NumberStyle) -> None:
        """Read numbers in another style."""
        self.numbers = self.numbers._replace(style=style)

    def is_clock(self, index: int) -> bool:
        """Return whether a column has times of day."""
        column = self.filled[index]
        forms = infer_clock(column) if column and not has_fractions(column) else []
        if not forms or (len({*map(cell_text, column)}) == 1 and len(column) > 1):
            return False
        if index not in self.numbers.columns:
            return True
        hours = {int(float(cell_text(cell))) for cell in column}
        return bool(HOUR.search(self.names[index])) and min(hours) == 0 and max(hours) <= 23 and forms[0].format == "%H"

    def joined(self, columns: Sequence[int], *, of_sample: bool = False) -> Sequence[Cell]:
        """Return the cells of several columns, joined by blanks."""
        cells = [(self.sample if of_sample else self.cells)[index] for index in columns]
        return cells[0] if len(cells) == 1 else [" ".join(map(cell_text, parts)) for parts in zip(*cells, strict=True)]


def has_fractions(column: Sequence[Cell]) -> bool:
    """Return whether there are numbers with fractions, which are no times, or truth values."""
    return any(isinstance(cell, bool) or (isinstance(cell, float) and not cell.is_integer()) for cell in column)
